"""Answers of which something is known: whether they rest on the prompt, and which sentences do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.closed import cases
from benchmarks.closed.measures import NO_EFFECT, lost_without
from benchmarks.data.hotpot import entries_of
from benchmarks.evaluation import held_out
from benchmarks.store import Row, read
from ropelime.errors import InputError
from ropelime.results.verification import CHANGED_BELOW
from ropelime.text.prompt import Prompt, Span, from_context, from_messages
from ropelime.text.segmentation import sentences
from ropelime.text.similarity import token_f1
from ropelime.typing import Floats, Masks

GIVEN = ("gpt3_wdoc", "gpt3_whudoc", "webgpt", "alpaca_wdoc")  # the systems of lfqa with documents
_QUARTER = 0.25  # of the prompt's effect: a part that costs as much is a cause


@dataclass(frozen=True)
class Item:
    """An answer that is explained.

    Attributes:
        id: Its name.
        prompt: The prompt.
        features: How it is cut.
        output: The answer.
        fit: Whether chances are fitted to it; otherwise it judges them.
        kind: What it is, in a word.
        rests: Whether the answer would be another one without the features; None if that is unknown.
        labels: Spans of the answer, and whether each comes from the prompt, or None.
        sources: Spans of the answer, and the features that are their source.
        lost: (n,) what was lost without each feature, where an answering model was asked.
        kept: (n,) how much of the answer was kept without each.
        masks: Held-out masks, with
        logprob: the log-probability of the answer under each by the answering model.
    """

    id: str
    prompt: Prompt
    features: str | tuple[Span, ...]
    output: str
    fit: bool
    kind: str
    rests: bool | None = None
    labels: Sequence[tuple[Span, Any]] = ()
    sources: Sequence[tuple[Span, Sequence[int]]] = ()
    lost: Floats | None = None
    kept: Floats | None = None
    masks: Masks | None = None
    logprob: Floats = field(default_factory=lambda: np.zeros(0))

    def cause(self, part: int) -> bool | None:
        """Whether removing a part changes the answer, or costs a quarter of the prompt's effect."""
        if self.lost is None or self.kept is None:
            return None
        return bool(self.lost[part] >= _QUARTER or self.kept[part] < CHANGED_BELOW)


def lfqa(path: Path, rows: Sequence[Path]) -> Iterator[Item]:
    """Long answers; those to every second question are fitted to."""
    for row in cases.rows(path):
        context = [{"text": d["text"], "source": d["title"] or ""} for d in row["documents"]]
        yield Item(
            row["id"],
            from_context(context, row["question"]),
            "sentence",
            row["answer"],
            int(row["question_id"]) % 2 == 0,
            row["system"],
            bool(row["with_documents"]),
            [((s["start"], s["end"]), s["label"]) for s in row["sentences"]],
        )


def faithbench(path: Path, rows: Sequence[Path]) -> Iterator[Item]:
    """Summaries, of which spans are unwanted; nothing is fitted to them."""
    for row in cases.rows(path):
        bad = [(s["start"], s["end"]) for s in row["spans"] if s["label"] == "unwanted"]
        labels = [
            ((a, b), "unwanted" if any(start < b and end > a for start, end in bad) else "fine")
            for a, b in sentences(row["summary"])
        ]
        prompt = from_context([row["document"]], "Summarize the text.")
        yield Item(row["id"], prompt, "sentence", row["summary"], False, row["model"], None, labels)


def citations(path: Path, rows: Sequence[Path]) -> Iterator[Item]:
    """Statements of answer engines, with the passage of each span; nothing is fitted to them.

    An answer ends with its last span: what follows does not change how likely the span is.
    """
    for row in cases.rows(path):
        at = (row["answer_span"]["start"], row["answer_span"]["end"])
        right = [[e["document"], *(e.get("same_text") or [])] for e in row["evidence"]]
        spans = [(e["start"], e["end"]) for e in row["evidence"]]
        sources = [*((at, each) for each in right), *zip(spans, right, strict=True)]
        prompt = from_context(row["documents"], row["question"])
        output = row["answer"][: max(end for (_, end), _ in sources)]
        yield Item(row["id"], prompt, "document", output, False, row["split"], None, (), sources)


def answers(path: Path, rows: Sequence[Path]) -> Iterator[Item]:
    """Answers with the documents, from memory, and beside the documents of another prompt."""
    known = cases.mixed(path)
    number = {case.id: i for i, case in enumerate(known)}
    for row in _rows_of(rows):
        case = known[number[row["example"]]]
        other = known[(number[case.id] + 1) % len(known)]
        changed = token_f1(row["from_memory"], row["output"]) < CHANGED_BELOW
        for kind, shown, output, rests in (
            ("documents", case, row["output"], changed),
            ("memory", case, row["from_memory"], False),
            ("unrelated", other, row["output"], False),
        ):
            if not output:
                continue
            labels = [(span, kind == "documents") for span in sentences(output)]
            id = f"{case.id}/{kind}"
            yield Item(id, shown.prompt, shown.spans, output, True, kind, rests, labels)


def short(path: Path, rows: Sequence[Path]) -> Iterator[Item]:
    """Short facts from two paragraphs: the right answer, a wrong one, and one beside other paragraphs.

    The wrong one is the answer to another question, of the same kind where that is yes or no. Every
    second question is fitted to.
    """
    entries = list(entries_of(path))
    for i, entry in enumerate(entries):
        wrong = next(
            other["answer"]
            for other in (*entries[i + 7 :], *entries)
            if other["answer"] != entry["answer"] and _closed(other) == _closed(entry)
        )
        for kind, shown, output in (
            ("right", entry, entry["answer"]),
            ("wrong", entry, wrong),
            ("unrelated", entries[(i + 1) % len(entries)], entry["answer"]),
        ):
            titles = {title for title, _ in shown["supporting_facts"]}
            context = ["".join(text).strip() for title, text in shown["context"] if title in titles]
            labels = [((0, len(output)), kind == "right")]
            prompt = from_context(context, entry["question"])
            fit, rests = i % 2 == 0, None if kind == "wrong" else kind == "right"
            id = f"short-{entry['_id']}/{kind}"
            yield Item(id, prompt, "sentence", output, fit, kind, rests, labels)


def agentdyn(path: Path, rows: Sequence[Path]) -> Iterator[Item]:
    """Calls of agents after their own run and after one of another suite; every second is fitted to."""
    found = [row for row in cases.rows(path) if row["kind"] == "hijacked"]
    for i, row in enumerate(found):
        other = next(r for r in (*found[i:], *found) if r["suite"] != row["suite"])
        call = row["output"][row["call"]["start"] : row["call"]["end"]]
        for kind, shown in (("own run", row), ("unrelated", other)):
            own = kind == "own run"
            prompt, id = from_messages(shown["messages"]), f"{row['id']}/{kind}"
            labels = [((0, len(call)), own)]
            yield Item(id, prompt, "sentence", call, i % 2 == 0, kind, own, labels)


def asked(path: Path, rows: Sequence[Path]) -> Iterator[Item]:
    """Prompts that an answering model was asked again without parts of them.

    Rows of ``closed --labels-only`` are fitted to, those of the arena judge.
    """
    for file in rows:
        header, found = read(file)
        known = {str(case.id): case for case in cases.KINDS[header["kind"]](path)}
        for row in found:
            if "output" not in row or (case := known.get(str(row["example"]))) is None:
                continue
            n = len(case.spans)
            effect = row["full"] - row["none"] > NO_EFFECT
            yield Item(
                f"{file.name.split('.')[0]}/{row['example']}",
                case.prompt,
                case.spans,
                row["output"],
                header["bench"] == "labels",
                f"{header['kind']}, {header['answering']['name']}",
                row["kept"][0] < CHANGED_BELOW,
                lost=np.clip(lost_without(row), 0, 1) if effect else np.zeros(n),
                kept=np.array(row["kept"][1:]),
                masks=held_out(n, np.random.default_rng([header["seed"], row["number"], 1])),
                logprob=np.array(row["held_out"]),
            )


KINDS: Mapping[str, Callable[[Path, Sequence[Path]], Iterator[Item]]] = {
    each.__name__: each for each in (lfqa, faithbench, citations, answers, short, agentdyn, asked)
}
NEED_ROWS = ("answers", "asked")


def _closed(entry: Row) -> bool:
    return entry["answer"] in ("yes", "no")


def _rows_of(files: Sequence[Path]) -> list[Row]:
    found = [row for file in files for row in read(file)[1] if row.get("from_memory")]
    if not found:
        raise InputError(
            "These rows have no answers from memory: make them with closed --answers-only."
        )
    return found
