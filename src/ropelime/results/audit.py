"""An answer's own citations, checked: each mark is confirmed, refuted, unsupported or unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ropelime.results.citations import ground
from ropelime.results.explanation import ExplanationData
from ropelime.results.grounding import GroundedSentence
from ropelime.text.documents import Document, Documents
from ropelime.text.marks import FoundMark, MarkedAnswer
from ropelime.text.prompt import Span

MarkVerdict = Literal["confirmed", "refuted", "unsupported", "unknown"]
# What can fail an audit, and how each is said.
WORDED = {
    "refuted": "the statement does not come from it",
    "unsupported": "the statement has no source in the documents",
    "unknown": "names no known document",
    "uncited": "rests on a document, and no mark says so",
}
FORMAT, VERSION = "ropelime.audit", 1


@dataclass(frozen=True)
class DocumentSource:
    """A document that a statement comes from.

    Attributes:
        document: Its number, as marks call it.
        name: How to show it.
        text: The text in it that supports the statement most.
        share: How much of the statement it accounts for, from 0 to 1.
    """

    document: int
    name: str
    text: str
    share: float


@dataclass(frozen=True)
class Statement:
    """A part of the answer, a sentence or what a mark says it is about.

    Attributes:
        start: Where it begins in the answer as it was given.
        end: Where it ends.
        text: Its text without marks.
        probability: That it comes from the prompt.
        sources: The documents that it comes from, the largest share first.
    """

    start: int
    end: int
    text: str
    probability: float
    sources: tuple[DocumentSource, ...]


@dataclass(frozen=True)
class Mark:
    """A mark, and what became of it.

    Attributes:
        start: Where it stands in the answer as it was given.
        end: Where it ends; the same for an API's object, which is not part of the text.
        label: The mark as it is written, or the type of the API's object.
        documents: Numbers of the documents that it cites; several if they are chunks of one file.
        name: How to show what it cites.
        verdict: ``confirmed``; ``refuted``, if the statement comes from other documents;
            ``unsupported``, if it comes from none; ``unknown``, if the mark cites no known
            document.
        statement: What it is about.
        better: The document that the statement comes from, where the mark is refuted or unknown.
        quote: What it quotes from the document; empty where it quotes nothing.
        quote_found: Whether the cited document holds the quotation; None without one.
    """

    start: int
    end: int
    label: str
    documents: tuple[int, ...]
    name: str
    verdict: MarkVerdict
    statement: Statement
    better: DocumentSource | None = None
    quote: str = ""
    quote_found: bool | None = None

    @property
    def why(self) -> str:
        """The verdict in words."""
        says = WORDED.get(self.verdict, "the statement comes from it")
        if self.better is not None:
            says += f"; the source is {self.better.name}"
        return says + ("; the quotation is not in the document" if self.quote_found is False else "")


@dataclass(frozen=True)
class AuditData:
    """The citations of an answer, checked.

    Attributes:
        answer: The answer as it was given, as text.
        marks: Its marks.
        uncited: Sentences that come from a document and have no mark.
        fail_on: Which verdicts fail the audit; ``uncited`` is one of them too.
        explanation: The explanation of the answer without its marks.
    """

    answer: str
    marks: tuple[Mark, ...]
    uncited: tuple[Statement, ...]
    fail_on: tuple[str, ...]
    explanation: ExplanationData

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong that ``fail_on`` names."""
        return not any(self.counts[name] for name in self.fail_on)

    @property
    def counts(self) -> dict[str, int]:
        """How many marks have each verdict, and how many sentences are uncited."""
        verdicts: list[str] = [mark.verdict for mark in self.marks]
        names = ("confirmed", "refuted", "unsupported", "unknown")
        return {**{name: verdicts.count(name) for name in names}, "uncited": len(self.uncited)}

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without the explanation."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "ok": self.ok,
            "fail_on": list(self.fail_on),
            "counts": self.counts,
            "answer": self.answer,
            "marks": [{**asdict(mark), "why": mark.why} for mark in self.marks],
            "uncited": [asdict(statement) for statement in self.uncited],
        }


def judged(
    e: ExplanationData, answer: MarkedAnswer, documents: Documents, *, fail_on: Sequence[str]
) -> AuditData:
    """The marks of an answer against the explanation of the answer without them."""
    sentences = ground(e)
    marks, marked = [], set()
    for mark in answer.marks:
        about = _about(mark, answer, sentences)
        marked.update(about)
        marks.append(_mark(mark, about, answer, sentences, documents))
    rest = [
        _statement(answer, [each], documents) for i, each in enumerate(sentences) if i not in marked
    ]
    uncited = tuple(each for each in rest if each.sources)
    return AuditData(answer.text, tuple(marks), uncited, tuple(fail_on), e)


def _about(mark: FoundMark, answer: MarkedAnswer, sentences: Sequence[GroundedSentence]) -> list[int]:
    """The sentences that a mark is about.

    Those in its span where it has one; else the one that it stands in or behind, or before if it leads
    its line.
    """
    if mark.about is not None:
        start, end = (answer.to_clean(at) for at in mark.about)
        inside = [i for i, each in enumerate(sentences) if each.span[0] < end and each.span[1] > start]
        if inside:
            return inside
    at = answer.to_clean(mark.end)  # behind the words of a link
    if mark.leads:
        after = [i for i, each in enumerate(sentences) if each.span[1] > at]
        return after[:1] or [len(sentences) - 1]
    before = [i for i, each in enumerate(sentences) if each.span[0] < at]
    return before[-1:] or [0]


def _mark(
    mark: FoundMark,
    about: Sequence[int],
    answer: MarkedAnswer,
    sentences: Sequence[GroundedSentence],
    documents: Documents,
) -> Mark:
    cited = documents.cited(mark.reference)
    statement = _statement(
        answer, [sentences[i] for i in about if 0 <= i < len(sentences)], documents, mark.about
    )
    sources = {source.document for source in statement.sources}
    verdict: MarkVerdict = "refuted"
    if not cited:
        verdict = "unknown"
    elif not sources:
        verdict = "unsupported"
    elif sources & {each.number for each in cited}:
        verdict = "confirmed"
    quote = mark.reference.quote
    return Mark(
        start=mark.start,
        end=mark.end,
        label=mark.label,
        documents=tuple(each.number for each in cited),
        name=_cited_name(mark, cited),
        verdict=verdict,
        statement=statement,
        better=statement.sources[0] if verdict in ("refuted", "unknown") and sources else None,
        quote=quote,
        quote_found=any(each.quotes(quote) for each in cited) if quote and cited else None,
    )


def _cited_name(mark: FoundMark, cited: Sequence[Document]) -> str:
    if len(cited) == 1:
        return str(cited[0])
    if cited:
        numbers = ", ".join(str(each.number) for each in cited)
        return f"documents {numbers}" + (f", {cited[0].names[0]}" if cited[0].names else "")
    reference = mark.reference
    return reference.definition or next(iter(reference.names), "") or mark.label


def _statement(
    answer: MarkedAnswer,
    sentences: Sequence[GroundedSentence],
    documents: Documents,
    about: Span | None = None,
) -> Statement:
    """Sentences as one statement, with the documents that they come from."""
    if not sentences:  # an answer of nothing but marks
        return Statement(0, 0, "", 0.0, ())
    span = sentences[0].span[0], sentences[-1].span[1]
    if about is not None:
        start, end = (answer.to_clean(at) for at in about)
        inside = answer.clean[start:end]
        start += len(inside) - len(inside.lstrip())
        span = (start, start + len(inside.strip())) if inside.strip() else span
    found: dict[int, DocumentSource] = {}
    for source in (source for sentence in sentences for source in sentence.sources):
        document = documents.at(*source.span)
        if document is None:
            continue
        share = source.share / len(sentences)
        known = found.get(document.number)
        text = documents.prompt.text[slice(*source.span)].strip() if known is None else known.text
        share += 0.0 if known is None else known.share
        found[document.number] = DocumentSource(document.number, str(document), text, share)
    order = sorted(found.values(), key=lambda source: -source.share)
    probability = sum(sentence.probability for sentence in sentences) / len(sentences)
    return Statement(*answer.to_text(*span), answer.clean[slice(*span)], probability, tuple(order))
