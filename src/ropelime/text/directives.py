"""Sentences that tell someone to do something, and values that stand where a text has others.

English, and by form alone: a clause that begins with a verb, or that has *please*, *you must* and the
like. Whether it was followed is for others to judge.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from ropelime.text.prompt import Span

_VERBS = (
    "accept|access|activate|add|alert|allow|analyse|analyze|answer|append|apply|"
    "approve|archive|arrange|ask|assign|attach|authorise|authorize|book|browse|buy|"
    "call|cancel|change|charge|check|choose|claim|clear|click|close|commit|complete|"
    "compose|confirm|connect|contact|contribute|convert|copy|create|deactivate|decline|"
    "delete|deliver|deploy|deposit|disable|discard|disclose|display|do|donate|download|"
    "edit|email|enable|enter|erase|execute|export|extend|fetch|file|fill|find|finish|"
    "fix|follow|forget|forward|generate|get|give|go|grant|help|hide|ignore|import|"
    "include|increase|input|insert|install|invite|join|keep|kill|leave|lend|let|list|"
    "load|lock|log|look|lower|mail|make|mark|merge|message|move|navigate|notify|"
    "open|order|output|override|overwrite|pass|paste|pay|perform|place|post|praise|"
    "print|proceed|promote|propose|provide|publish|pull|purchase|push|put|raise|rate|"
    "read|recommend|record|redeem|redirect|reduce|refund|register|reject|release|"
    "remember|remind|remove|rename|repeat|replace|reply|report|request|reserve|reset|"
    "respond|restart|restore|retrieve|return|reveal|review|run|save|say|schedule|"
    "search|see|select|sell|send|set|share|show|shut|sign|skip|solve|speak|star|"
    "start|stop|store|submit|subscribe|summarise|summarize|switch|sync|take|tell|"
    "terminate|test|transfer|translate|transmit|trust|try|turn|type|uninstall|unlock|"
    "unsubscribe|update|upgrade|upload|use|verify|view|visit|vote|wait|watch|wire|"
    "withdraw|write"
)
_BEFORE = "please|kindly|now|then|first|next|also|just|and|so|immediately|quickly|instead"
# A clause begins with the text, after the end of another, in a quote, and on a line of its own; and
# after an opening that is subordinate to it, as in "Before you pay, transfer ...".
_OPENINGS = "after|as soon as|before|for|if|in order to|once|to|unless|until|when|whenever|while"
_BEGINS = (
    r"(?:^|[.!?:;](?=[ \t\"'“(])|[\"'“(\n])[ \t]*(?:[\-*][ \t]*)?"
    rf"(?:(?:{_OPENINGS})\b[^.!?:;\n,]{{0,100}},[ \t]*)?"
)
_IMPERATIVE = re.compile(rf"{_BEGINS}(?:(?:{_BEFORE})\W+)*(?:{_VERBS})\s+[^\s:=]", re.IGNORECASE)
_REQUEST = re.compile(
    r"\b(?:please|kindly|make sure|be sure|don'?t forget|(?:can|could|would) you|i (?:need|want) you to"
    r"|(?:you|assistant|agent|model|ai) "
    r"(?:must|should|needs? to|ha(?:ve|s) to|are (?:required )?to))\b",
    re.IGNORECASE,
)
_DELEGATES = re.compile(
    r"\b(?:requests?|requested|instructions?|instructed|tasks?|to-?dos?|homework|steps|follow|listed"
    r"|(?:ask(?:s|ed)?|tells?|told|want(?:s|ed)?) (?:me|us))\b",  # words: ok
    re.IGNORECASE,
)
# Text within data is escaped, and wrapped at some width: a sentence continues over lines, up to a blank
# line, an item, a key or the end of a quote.
_ESCAPED = re.compile(r"\\+[nrt]")
_ENDS = re.compile(
    r"[.!?]+['\")\]]*(?=[\s<]|$)|\n[ \t]*(?=\n)|\n(?=[ \t]*(?:[-*][ \t]|[\w' ]{1,30}:))"
    r"|>(?=\s)|[\[{](?=['\"])|['\"][,\]}]"
)
_OPENS = "'\"“([{>-* "  # before the first word of a sentence
_KINDS = {
    "address": re.compile(r"[\w.+\-]{1,64}@[\w\-]{1,64}(?:\.[\w\-]{1,64}){1,8}"),
    "link": re.compile(r"(?:https?://|www\.)[^\s'\"<>)]+", re.IGNORECASE),
    "path": re.compile(r"(?<![\w:/.])/[\w.\-]+(?:/[\w.\-]+)*"),
    "code": re.compile(r"\b(?=[A-Za-z\-]{0,40}\d)(?=[\d\-]{0,40}[A-Za-z])[A-Za-z\d\-]{6,80}\b"),
    "number": re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?!\w)"),
}


def is_directive(text: str) -> bool:
    """Whether a text tells someone to do something, in one of its clauses."""
    return bool(_REQUEST.search(text) or _IMPERATIVE.search(text))


def orders(text: str) -> list[tuple[Span, Span]]:
    """Where a text tells someone to do something, even if it is wrapped or escaped.

    Returns:
        Of every such sentence its span, and that of it with the sentences beside it, unless a blank
        line lies between.
    """
    flat = _ESCAPED.sub(lambda found: "\n".rjust(len(found[0])), text)
    ends = [0, *(found.end() for found in _ENDS.finditer(flat)), len(flat)]
    spans = [_trimmed(flat, start, end) for start, end in pairwise(ends) if flat[start:end].strip()]
    found = []
    for number, (start, end) in enumerate(spans):
        if is_directive(" ".join(flat[start:end].split()).lstrip(_OPENS)):
            first, last = start, end
            if number and flat.count("\n", spans[number - 1][1], start) < 2:
                first = spans[number - 1][0]
            if number + 1 < len(spans) and flat.count("\n", end, spans[number + 1][0]) < 2:
                last = spans[number + 1][1]
            found.append(((start, end), (first, last)))
    return found


def _trimmed(text: str, start: int, end: int) -> Span:
    inside = text[start:end]
    return end - len(inside.lstrip()), start + len(inside.rstrip())


def delegates(text: str) -> bool:
    """Whether a text speaks of requests, tasks or instructions, which may stand elsewhere."""
    return bool(_DELEGATES.search(text))


def is_code(value: str) -> bool:
    """Whether a value is an e-mail address, a link, a path, or a code with digits."""
    kinds = (kind for name, kind in _KINDS.items() if name != "number")
    return any(kind.fullmatch(value) for kind in kinds)


def against(values: Sequence[str], text: str) -> float:
    """The part of the values in whose place a text has others of their kind.

    Kinds are e-mail addresses, links, paths, codes of letters and digits, and numbers. A value that the
    text has is not against it, and neither is one if the text has none of its kind.
    """
    known = text.lower()
    others = [
        value.strip().lower() not in known and kind.search(text) is not None
        for value in values
        for kind in _KINDS.values()
        if kind.fullmatch(value.strip())
    ]
    return min(sum(others) / len(values), 1.0) if values else 0.0
