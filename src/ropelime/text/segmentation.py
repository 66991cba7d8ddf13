"""Split a text into sentences, paragraphs or words: spans of characters that tile it exactly.

White space between two units belongs to the first of them, and leading white space to the first unit.
Prose is split by ``sentencex``, which knows many languages; known errors of it are repaired.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import pairwise

import regex
import sentencex

from ropelime.text.vocabulary import SCRIPTS

Span = tuple[int, int]
_WINDOW = 4096  # Characters per call of the splitter, which is quadratic on long lines.
_LONG = 200  # Longer quotations and list items, which it keeps whole, are split again.
_WRAPPED = 40  # A line this long that stops in mid-sentence was wrapped by an editor.
# Languages are detected by the Unicode names of their letters or, if Latin, by function words.
_SCRIPTS = {"ARABIC": "ar", "CYRILLIC": "ru", "DEVANAGARI": "hi", "GREEK": "el", "TAMIL": "ta"}
_COMMON = {
    "en": "the of and to in is that it was he she for on are with as i you be a no do am at me",
    "de": "der die das und ist nicht ein eine zu mit von er sie ich am im den auf wir",
    "es": "el la los las de que y es un una en no se del con por al lo su",
    "fr": "le la les de des et est un une il elle que dans pour pas du ce je vous au",
    "it": "il la di che e è un una per non del della con sono gli le si",
    "pt": "o a os as de que e é um uma não do da em com por para no na",
}
_CLOSE = r"""["'”’»›)\]}」』）】》〉*_~`]"""
_OPEN = r"""["'“‘„«‹(\[{「『（【《〈¿¡*_~`]"""
_EMOJI = r"[\p{ExtPict}\p{Emoji_Modifier}\p{RI}\u200D\uFE0F\u20E3\U000E0020-\U000E007F]"
_UNSPACED = rf"[{SCRIPTS}]"
_ASKS = regex.compile(rf"[?？؟\u037e](?:[\s!]|{_CLOSE})*$")  # how a question ends, also in quotes
_FENCE = regex.compile(r"(`{3,})[^`]*$")
_ITEM = regex.compile(r"([-*+•◦▪●]|\(?(\d{1,3}|[A-Za-z]|[ivx]{2,4})\)|\d{1,3}(\.\d{1,3})*\.)\s+\S")
# As in Markdown, only a list that starts at 1 may interrupt a paragraph: "on page / 12. Then".
_LATE_ITEM = regex.compile(r"(?!1\.)\d+\.\s")
# Headings, table rows and indented code; six plain words in a row are just an indented paragraph.
_OWN_LINE = regex.compile(r"\s*(#{1,6}\s|\|)|( {4}|\t)(?!\s*([\p{L}'’\"“-]+[,;:]? ){6})")
_LABEL = regex.compile(r"\p{Lu}[\p{L}\p{N} _-]{0,24}:(?:\s|$)")  # A speaker or a field name.
_LINE_DONE = regex.compile(rf"[.!?…。！？।॥؟۔]{_CLOSE}*$")
# Two characters that must not be separated. Pairs cover nearly all grapheme clusters, at the price of
# refusing a few valid cuts: after a joiner or stacking sign without partner, or between two flags.
_PAIR = regex.compile(r"(?s)[\p{InSC=Virama}\p{InSC=Invisible_Stacker}\u200D].|\X")
_CLUSTER = regex.compile(r"\X")
_EXTENDS = regex.compile(r"[\p{GCB=Extend}\u200D]")
_CONTENT = regex.compile(r"[\p{L}\p{N}\p{So}\p{Sc}\p{Co}\p{RI}]")
# Where a word may begin depends on what stands before it, so a text is read once, in these pieces.
_PIECE = regex.compile(
    rf"(?<space>\s++)|(?<unspaced>{_UNSPACED})|(?<marks>(?:(?!{_UNSPACED})\p{{P}})++)"
    rf"|(?<joined>(?:(?!{_UNSPACED})[\p{{M}}\p{{Cf}}])++)"
    rf"|(?:(?!{_UNSPACED})[^\p{{P}}\p{{M}}\p{{Cf}}\s])++"
)
_JOINED = regex.compile(r"[\p{P}\p{M}\p{C}]")  # What does not begin a word behind an unspaced script.
_MARK = regex.compile(r"\p{M}")
_BOUNDARY = regex.compile(r"(?w)\b")
# Ends that it misses: marks or emoji after the stop, "…", Khmer, Tibetan, and "me." as in Maine.
_MISSED = regex.compile(
    rf"(?<![.!?…\[(])(?<stop>[.!?…]++)(?:(?<=…)|{_CLOSE}++|(?=\s*+{_EMOJI}))(?<emoji>\s*+{_EMOJI}++)*+"
    rf"\s++(?={_OPEN}*+\p{{Lu}})|(?<![។៕།༎])[។៕།༎]++\s++"
    rf"|(?:\b(?:art|ill|me|miss|no|ok)|(?<![\w,;] )\bNo)\.\s++(?={_OPEN}*+\p{{Lu}}[\p{{Ll}}\s'’])"
)
# Still part of a sentence: marks and note numbers right after the stop, and emoji.
_TRAILER = regex.compile(rf"((?<=\S)({_CLOSE}|\p{{No}}|\[\d+\])++(?!\w))?+(\s*+{_EMOJI}++)*+")
# Characters that the splitter does not split after, up to their partner if they have one.
_BINDER = regex.compile(r"""["“”„«»‘「」『』()\[\]•⁃\p{So}]|(?<!\w)['`]""")
_OPENER = regex.compile(rf"(?<=\s){_OPEN}+$")
_ENUMERATOR = regex.compile(r"\s*+\(?(?:\d{1,3}|\p{L}|[ivxIVX]{1,5})[.)](?<after>\s*+)")
# "end.Next" is two sentences, but "Node.Js", "a/b.Html?Q" and "foo.Bar()" are names.
_TIGHT = regex.compile(
    r"(?<=(?<![\w./:@#=&%$\\-])(?:[\p{Ll}\p{Lo}][\p{L}\p{M}'’]*\.+|[\p{L}\p{M}'’]+[!?]+))"
    rf"(?![ºª]){_OPEN}*[\p{{Lu}}\p{{Lo}}][\p{{L}}\p{{M}}'’]*(?:[\s,.;:!?)\"]|[^\x00-\x7F]|$)"
)
# Where not to cut: abbreviations that its lists lack, and quotations within a sentence.
_GLUE = regex.compile(
    r"(?<=\b(?:Mmes?|Mlles?|Assoc)\.\s+)(?=\p{Lu})|(?<=[」』])(?=って|と(?!て|ころ|にかく))"
    rf"|(?<=[.!?…]{_CLOSE}+\s+)(?=\p{{Ll}})"
    r"|(?<=\b(?i:vols?|eqs?|figs|chs?|art|pag|p|approx|max|tel|eds?|resp|incl|excl|est|trans)\.\s+)"
    r"(?=[\p{Ll}\d(])|(?<=\b(?:\p{L}\.\s?){1,4}\p{L}{1,2}\.\s+)(?=\p{Ll})"
)


def questions(text: str) -> list[Span]:
    """The sentences of a text that ask."""
    return [(a, b) for a, b in sentences(text) if _ASKS.search(text[a:b])]


def sentences(text: str) -> list[Span]:
    """Cut prose into sentences, and lists, headings, tables and code into lines."""
    # The splitter needs valid Unicode and plain spaces; replaced one for one, so offsets stay valid.
    flat = re.sub(r"[\ud800-\udfff]", "\ufffd", re.sub(r"\s", " ", text))
    blocks = [*_blocks(text), (len(text), False)]
    cuts: list[int] = []
    for (start, prose), (end, _) in pairwise(blocks):
        cuts += [start, *(_prose_cuts(flat, start, end) if prose else ())]
    spans: list[Span] = []
    whole = False  # Whether the last one has content.
    for begin, end in _tile(text, cuts):
        content = _CONTENT.search(text, begin, end) is not None
        # Marks alone are not a sentence: they join the one before, or open the first one.
        if spans and not (content and whole):
            begin = spans.pop()[0]
        spans.append((begin, end))
        whole |= content
    return spans


def paragraphs(text: str) -> list[Span]:
    """Cut a text at its blank lines, which may hold white space."""
    # A gap with a blank line in it has at least three lines once a character follows.
    gaps = (gap for gap in re.finditer(r"\s+", text) if len(f"{gap[0]}.".splitlines()) > 2)
    return _tile(text, [gap.end() for gap in gaps])


def words(text: str) -> list[Span]:
    """Cut a text at white space, and at Unicode word boundaries in scripts that use none."""
    cuts = {match.start() for match in re.finditer(r"\S+", text)}
    if not text.isascii():
        cuts.update(_unspaced_cuts(text))
    return _tile(text, sorted(cuts))


def _tile(text: str, cuts: Iterable[int]) -> list[Span]:
    """Turn rising cut offsets into spans, each moved past white space and never in a cluster."""
    size = len(text)
    lead = size - len(text.lstrip())
    edges, at = [0], 0
    for cut in cuts:
        at = max(at, cut)
        while at < size and text[at].isspace():
            at += 1
        if max(edges[-1], lead) < at < size and not _in_cluster(text, at):
            edges.append(at)
    return list(pairwise([*edges, size])) if lead < size else []


def _in_cluster(text: str, at: int) -> bool:
    """Whether a place lies in a cluster, also behind a linker that other marks follow."""
    if _PAIR.fullmatch(text[at - 1 : at + 1]):
        return True
    base = at - 1
    while base and _EXTENDS.match(text, base):
        base -= 1
    ends = (_CLUSTER.match(text, start).end() for start in range(base, min(base + 2, at)))
    return any(end > at for end in ends)  # marks behind white space begin a cluster


def _unspaced_cuts(text: str) -> Iterator[int]:
    """Yield word boundaries next to scripts that use no spaces; closing marks stay with their word."""
    opening, follows = True, False  # Only marks since the last space; an unspaced script just before.
    for piece in _PIECE.finditer(text):
        at, kind = piece.start(), piece.lastgroup
        if kind == "space":
            opening, follows = True, False
            continue
        begins = not opening and kind == "unspaced" and not _MARK.match(text, at)
        if (begins or (follows and not _JOINED.match(text, at))) and _BOUNDARY.match(text, at):
            yield at
        opening &= kind == "marks" or (kind == "unspaced" and unicodedata.category(text[at])[0] == "P")
        follows = kind == "unspaced" or (follows and kind is not None)


def _blocks(text: str) -> list[tuple[int, bool]]:
    """Group lines into blocks: where each starts, and whether it is prose to be split further."""
    blocks: list[tuple[int, bool]] = []
    at, fence, kind, runs_on = 0, "", "", False
    for line in text.splitlines(keepends=True):
        body = line.strip()
        if fence and body:
            closing = body.startswith(fence) and not body.strip("`")
            if not (closing or runs_on):
                blocks.append((at, False))
            fence, runs_on = "" if closing else fence, False
        elif opening := _FENCE.match(body):
            fence, kind, runs_on = opening[1], "line", True  # Into the first line of its code.
            blocks.append((at, False))
        elif body:
            before = kind if runs_on else ""
            item = _ITEM.match(body) and not (before == "prose" and _LATE_ITEM.match(body))
            own_line = _OWN_LINE.match(body if before == "item" else line)  # Items may indent.
            shape = "item" if item else "line" if own_line else "prose"
            if not (before and shape == "prose") or _LABEL.match(body):
                blocks.append((at, shape == "prose"))
                kind = shape
            # If prose has a stop here, the splitter decides whether it is only that of "Dr."
            done = kind == "line" or (kind == "item" and _LINE_DONE.search(body))
            runs_on = not done and len(body) >= _WRAPPED and body[-1] not in ":："
        elif not fence:
            runs_on = False
        at += len(line)
    return blocks


def language(sample: str, default: str = "en") -> str:
    """Guess a language code from the script, and from function words if that is Latin."""
    names = [unicodedata.name(char, "").split(" ")[0] for char in sample if char.isalpha()]
    script = max(dict.fromkeys(names), key=names.count, default="")
    if script != "LATIN":
        return _SCRIPTS.get(script, default)
    found = set(re.findall(r"\w+", sample.lower()))
    shared = {code: len(found.intersection(_COMMON[code].split())) for code in _COMMON}
    return max(shared, key=shared.__getitem__) if any(shared.values()) else default


def _prose_cuts(flat: str, start: int, end: int) -> Iterator[int]:
    bare = _BINDER.sub(" ", flat[start:end].rstrip())
    end = start + len(bare)
    spoken = language(bare[:400])
    cuts = {*_split(flat, start, end, spoken), *_missed(flat, start, end, spoken)}
    for begin, stop in pairwise([start, *sorted(cuts), end]):
        if stop - begin > _LONG:
            cuts.update(start + cut for cut in _split(bare, begin - start, stop - start, spoken))
    # Marks that open a block have no sentence before them, so they join the one after.
    last, head = start, next((m.start() for m in _CONTENT.finditer(flat, start, end)), end)
    number = _ENUMERATOR.match(flat, last, end)
    for cut in sorted(cuts):
        if cut < last:  # Within the marks that follow the stop before it.
            continue
        if opener := _OPENER.search(flat, max(last, cut - 8), cut):
            cut -= len(opener[0])
        elif (number and number.start("after") <= cut <= number.end()) or _GLUE.match(flat, cut, end):
            continue
        elif trailer := _TRAILER.match(flat, cut, end)[0]:
            cut += len(trailer)
        elif flat[cut - 1] in ".!?" and not _TIGHT.match(flat, cut, end):
            continue
        if max(last, head) < cut < end:
            yield cut
            last, number = cut, _ENUMERATOR.match(flat, cut, end)


def _split(flat: str, start: int, end: int, language: str) -> Iterator[int]:
    """Yield where the splitter starts a sentence, found again in the text in case it edits it."""
    while start < end:
        stop = min(end, start + _WINDOW)
        # A window may end within a quotation, so cuts in its last quarter are discarded.
        edge = end if stop == end else stop - _WINDOW // 4
        begins, at, half = [start], start, start + _WINDOW // 2
        for piece in map(str.strip, sentencex.segment(language, flat[start:stop])):
            begin = flat.find(piece, at, stop)
            if piece and at <= begin <= edge:
                begins.append(begin)
                at = begin + len(piece)
        yield from begins[2:]
        seam = begins[-1] if begins[-1] >= half else flat.rfind(" ", half, edge) + 1 or edge
        start = end if stop == end else seam


def _missed(flat: str, start: int, end: int, language: str) -> Iterator[int]:
    """Yield sentence starts that the splitter misses."""
    for match in _MISSED.finditer(flat, start, end):
        if match["stop"] == "." and not match["emoji"]:
            # Split again without the closing marks, which hide whether this is "Inc."
            word = regex.search(r"[\w.]*$", flat[max(start, match.start() - 24) : match.start()])[0]
            probe = f"It {word}. {flat[match.end() : match.end() + 24]}"
            if "".join(sentencex.segment(language, probe)[:1]).strip() != f"It {word}.":
                continue
        yield match.end()
