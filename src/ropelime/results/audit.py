"""An answer's own citations, checked: each mark is confirmed, refuted, unsupported or unknown.

A statement that repeats a document and adds something to it is as likely as one that does not. So its
words count, too: no mark is confirmed if half of what the statement says beyond the question, or more,
stands in no part of the prompt; nor if the cited documents have no more than half of it and another
document has, with all numbers that the cited ones have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from ropelime.results.citations import ground
from ropelime.results.explanation import ExplanationData
from ropelime.results.grounding import GroundedSentence
from ropelime.results.unsaid import Words, own_words, read
from ropelime.text.documents import Document, Documents
from ropelime.text.lexical import question
from ropelime.text.marks import FoundMark, MarkedAnswer
from ropelime.text.prompt import Span
from ropelime.text.segmentation import language

MarkVerdict = Literal["confirmed", "refuted", "unsupported", "unknown"]
# What can fail an audit, and how each is said.
WORDED = {
    "refuted": "the statement does not come from it",
    "unsupported": "the statement has no source in the documents",
    "unknown": "names no known document",
    "uncited": "rests on a document, and no mark says so",
}
_LACKING = "half or more of what the statement says is not in it"
_CERTAIN = 0.995  # beyond it a chance would round to 100 %
_LISTED = 6  # words that no document has
_SOME, _SAMPLE = 50, 400  # documents, and characters of each, that tell their language
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
        missing: Its words and numbers that no part of the prompt has.
    """

    start: int
    end: int
    text: str
    probability: float
    sources: tuple[DocumentSource, ...]
    missing: tuple[str, ...] = ()

    @property
    def chance(self) -> str:
        """The probability in per cent."""
        p = self.probability
        return ">99%" if p > _CERTAIN else "<1%" if p < 1 - _CERTAIN else f"{p:.0%}"

    @property
    def unsaid(self) -> str:
        """What no part of the prompt has, in words; empty if there is nothing."""
        if not self.missing:
            return ""
        more = ", …" if len(self.missing) > _LISTED else ""
        return f"not in any document: {', '.join(self.missing[:_LISTED])}{more}"


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
            ``unsupported``, if it comes from none or too little of it is in them; ``unknown``, if the
            mark cites no known document.
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
        """The verdict in words, with the chance that the statement comes from the prompt."""
        chance, unsaid = self.statement.chance, self.statement.unsaid
        of_prompt = f"({chance} that it comes from the prompt)"
        if self.verdict == "confirmed":
            says = [f"the statement probably comes from it ({chance})"]
            unsaid = f"but {unsaid}" if unsaid else ""
        elif self.verdict == "unsupported":
            says = [f"{_LACKING if self.statement.sources else WORDED['unsupported']} {of_prompt}"]
        else:
            says = [WORDED[self.verdict]]
        if self.better is not None:
            says.append(f"the source is probably {self.better.name} {of_prompt}")
        if self.quote_found is False:
            says.append("the quotation is not in the document")
        return "; ".join(filter(None, [*says, unsaid]))


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
    sentences, said = ground(e), _Said(e, documents)
    abouts = [_about(mark, answer, sentences) for mark in answer.marks]
    marks = [
        _mark(mark, about, answer, sentences, said, _beside(about, abouts, answer.marks, documents))
        for mark, about in zip(answer.marks, abouts, strict=True)
    ]
    marked = {i for about in abouts for i in about}
    rest = [_statement(answer, [each], said) for i, each in enumerate(sentences) if i not in marked]
    uncited = tuple(each for each in rest if each.sources)
    return AuditData(answer.text, tuple(marks), uncited, tuple(fail_on), e)


@dataclass(frozen=True)
class _Said:
    """What the prompt says, by words.

    Attributes:
        e: The explanation.
        documents: The documents.
    """

    e: ExplanationData
    documents: Documents
    _read: dict[int, Words] = field(default_factory=dict)

    @cached_property
    def _asked(self) -> Words:
        return read(question(self.e.prompt, self.e.features))

    @cached_property
    def _anywhere(self) -> Words:
        return read(self.e.prompt.text, *(name for each in self.documents.all for name in each.names))

    @cached_property
    def _spoken(self) -> str:
        """The language of the documents, by the beginning of each; empty if it is not known."""
        return language(" ".join(each.text[:_SAMPLE] for each in self.documents.all[:_SOME]), "")

    def own(self, statement: str) -> dict[str, str]:
        """What a statement says beyond the question, by words."""
        return own_words(statement, self._asked, self._spoken)

    def missing(self, own: Mapping[str, str]) -> tuple[str, ...]:
        """Those words that no part of the prompt has."""
        return tuple(word for key, word in own.items() if not self._anywhere.has(key))

    def held(self, own: Iterable[str], documents: Iterable[Document]) -> int:
        """How many of them some documents have together."""
        words = []
        for each in documents:
            if each.index not in self._read:
                self._read[each.index] = read(each.text, *each.names)
            words.append(self._read[each.index])
        return sum(any(word.has(key) for word in words) for key in own)


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


def _beside(
    about: Sequence[int],
    abouts: Sequence[Sequence[int]],
    marks: Sequence[FoundMark],
    documents: Documents,
) -> list[Document]:
    """The documents that all marks cite which are about one of these sentences."""
    shared = (m for m, other in zip(marks, abouts, strict=True) if not {*about}.isdisjoint(other))
    return [each for mark in shared for each in documents.cited(mark.reference)]


def _mark(
    mark: FoundMark,
    about: Sequence[int],
    answer: MarkedAnswer,
    sentences: Sequence[GroundedSentence],
    said: _Said,
    beside: Sequence[Document],
) -> Mark:
    cited = said.documents.cited(mark.reference)
    statement = _statement(
        answer, [sentences[i] for i in about if 0 <= i < len(sentences)], said, mark.about
    )
    sources = {source.document for source in statement.sources}
    better = statement.sources[0] if sources else None
    verdict: MarkVerdict = "refuted"
    if not cited:
        verdict = "unknown"
    elif not sources:
        verdict = "unsupported"
    elif sources & {each.number for each in cited}:
        verdict, better = _by_words(statement, beside, said)
    quote = mark.reference.quote
    return Mark(
        start=mark.start,
        end=mark.end,
        label=mark.label,
        documents=tuple(each.number for each in cited),
        name=_cited_name(mark, cited),
        verdict=verdict,
        statement=statement,
        better=better if verdict in ("refuted", "unknown") else None,
        quote=quote,
        quote_found=any(each.quotes(quote) for each in cited) if quote and cited else None,
    )


def _by_words(
    statement: Statement, cited: Sequence[Document], said: _Said
) -> tuple[MarkVerdict, DocumentSource | None]:
    """The verdict on a mark whose document the statement comes from, and the document that has more."""
    own = said.own(statement.text)
    half = len(own) / 2
    if own and len(statement.missing) >= half:
        return "unsupported", None
    if said.held(own, cited) > half or not own:
        return "confirmed", None
    numbers = [key for key in own if key[0].isdecimal() and said.held([key], cited)]
    more = {
        each.number
        for each in said.documents.all
        if said.held(own, [each]) > half and said.held(numbers, [each]) == len(numbers)
    }
    if not more:
        return "confirmed", None
    better = next((source for source in statement.sources if source.document in more), None)
    return ("unsupported", None) if better is None else ("refuted", better)


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
    said: _Said,
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
    documents, found = said.documents, dict[int, DocumentSource]()
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
    text = answer.clean[slice(*span)]
    missing = said.missing(said.own(text))
    return Statement(*answer.to_text(*span), text, probability, tuple(order), missing)
