"""An explanation as rows, one for each part of the prompt, and in brief for other programs."""

from __future__ import annotations

from typing import Any

from ropelime.errors import InputError
from ropelime.files import significant
from ropelime.results.citations import Cited, cite
from ropelime.results.explanation import ExplanationData
from ropelime.text.display import shorten

LONGEST = 500  # characters of a text in a brief
_WHOLE = ("document", "message")  # columns of whole numbers, empty where they do not apply


def rows(e: ExplanationData) -> list[dict[str, Any]]:
    """A row for each feature, in the order of the ranking.

    ``document`` (with ``source`` and ``page``) and ``message`` (with ``role``) say where it lies,
    counted from 1; they are None where the prompt has none. ``low`` and ``high`` are the ends of the
    90 % interval of the weight. ``verified`` is "changed" or "same", what became of the answer in a
    verifying call without this part alone, and None where there was no such call. Each signal has a
    column, as ``signal_words``.
    """
    return [
        {
            "feature": each.index,
            "rank": each.rank,
            "text": each.text,
            "weight": each.weight,
            "normalized_weight": each.normalized_weight,
            "low": None if each.interval is None else each.interval[0],
            "high": None if each.interval is None else each.interval[1],
            "verified": None if e.verified is None else e.verified.alone(each.index),
            **_place(e, e.features[each.index].part),
            "start": e.features[each.index].start,
            "end": e.features[each.index].end,
            **{f"signal_{name}": float(own[each.index]) for name, own in e.signals.items()},
        }
        for each in e.top()
    ]


def _place(e: ExplanationData, part: int) -> dict[str, Any]:
    """The document or the message of a feature."""
    chunk, chat = e.prompt.kind == "context", e.prompt.kind == "messages"
    origin = e.prompt.origin(part)
    return {
        "document": part + 1 if chunk else None,
        "source": (chunk and origin.source) or None,
        "page": (chunk and origin.page) or None,
        "message": part + 1 if chat else None,
        "role": e.prompt.messages[part].role if chat else None,
    }


def dataframe(e: ExplanationData) -> Any:
    """The rows as a pandas DataFrame, by the index of the feature."""
    try:
        import pandas
    except ImportError:
        raise InputError("Data frames need pandas: pip install 'ropelime[pandas]'") from None
    frame = pandas.DataFrame(rows(e)).set_index("feature")
    return frame.astype({**dict.fromkeys(_WHOLE, "Int64"), "low": float, "high": float})


def brief(e: ExplanationData, top: int = 5) -> dict[str, Any]:
    """What a person or a model needs to know, as plain data of bounded size."""
    trust = e.trust
    return {
        "parts": [
            {
                "rank": each.rank,
                "text": shorten(each.text, LONGEST),
                "where": e.prompt.where(e.features[each.index].part),
                "weight": significant(each.weight),
                "normalized_weight": significant(each.normalized_weight),
                "interval": None if each.interval is None else [*map(significant, each.interval)],
                "verified": None if e.verified is None else e.verified.alone(each.index),
            }
            for each in e.top(top)
        ],
        "parts_in_all": len(e.features),
        "trust": None if trust is None else significant(trust.value),
        "trust_says": "" if trust is None else trust.text,
        "warnings": list(e.diagnostics.warnings),
        "unit": str(e.config.get("unit", "")),
        "preset": str(e.config.get("preset", "")),
    }


def cited_brief(cited: Cited) -> dict[str, Any]:
    """Citations as plain data: each sentence with the numbers of its sources."""
    return {
        "sentences": [
            {
                "text": cited.answer[each.start : each.end],
                "sources": list(each.sources),
                "probability": significant(each.probability),
            }
            for each in cited.sentences
        ],
        "sources": [
            {"number": each.number, "text": shorten(each.text, LONGEST), "where": each.where}
            for each in cited.sources
        ],
    }


def attached(e: ExplanationData, top: int = 5) -> dict[str, Any]:
    """What is attached to the results of other libraries: the first parts, and the citations."""
    return {**brief(e, top), **cited_brief(cite(e))}
