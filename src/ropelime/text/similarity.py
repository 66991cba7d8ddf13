"""How similar two answers are, by their words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Set

import regex

from ropelime.text.actions import stem
from ropelime.text.lexical import UNSPACED, character_pairs

Similarity = Callable[[str, str], float]

_CHARACTER = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # scripts that write no space between words
_WORD = re.compile(rf"[{_CHARACTER}]|(?:(?![{_CHARACTER}])\w)+")

_TERM = regex.compile(
    rf"""(?P<article>\ba(?=\s+\p{{L}})|\bA(?=\s+(?!(?:is|was|and|or|because)\b)\p{{L}}))
    |(?P<number>(?<![\w.])[-−]?\d+(?:[.,]\d+)*(?!(?![{UNSPACED}])[\w]))
    |(?P<unspaced>(?:(?!\d)[{UNSPACED}]\p{{M}}*)+)
    |(?P<word>(?:(?![{UNSPACED}])[\w\p{{M}}])+)
    |(?P<sign>[\p{{S}}%\#&])""",
    regex.VERBOSE,
)
_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")
# What is elided or shortened: 's, 'll, and the French l', d', qu'.
_ELIDED = regex.compile(r"['’](?:s|d|m|t|re|ve|ll)\b|\b(?:[cdjlmnst]|qu)['’](?=\p{L})", regex.I)
_SHORT_NOT = regex.compile(r"n['’]t\b", regex.I)
_NAME = regex.compile(r"(?<=[\w,;)’']\s)\p{Lu}[\w\p{M}]+")  # not the first word of a sentence

# Words that only agree, and others that say nothing by themselves, in some languages.
_AGREES = frozenset(
    [
        "yes",
        "yeah",
        "true",
        "ja",
        "wahr",
        "oui",
        "vrai",
        "sí",
        "sì",
        "verdadero",
        "да",
        "はい",
        "是",
        "是的",
        "对",
        "對",
        "네",
        "예",
        "हाँ",
    ]
)
_SMALL_WORDS = {
    "en": """an the this that these those it its i he she they them his her their we our us you your my
        me is are was were be been being am do does did has have had will would can could should of in
        on at to for from by with as and or but so than then there here answer option choice""",
    "de": """der die das den dem des ein eine einen einem einer es er sie wir ist sind war waren wurde
        wurden hat im am zu zur zum von vom mit und oder aber""",
    "fr": """le la les un une il elle est sont était été du de au aux en dans et ou mais""",
    "es": """el la los las un una es son era fue de del al en y o pero""",
    "pt": """o a os as um uma é são era foi de do da em no na e ou mas""",
    "ru": """и в на это он она был была""",
}
_SMALL = {language: frozenset(found.split()) for language, found in _SMALL_WORDS.items()}
_EMPTY = _AGREES.union(*_SMALL.values())
_DENIES = regex.compile(
    r"(?<![\w-])(?:no(?! doubt)|not(?! only)|never|neither|nor|none|nothing|nobody|cannot|false"
    r"|nein|nicht|kein\w*|nie|niemals|falsch|non|pas|aucune?|jamais|faux|ningun[oa]?|nunca|falso|não"
    r"|niet|geen|nee|inte|нет|не|ни|नहीं|لا|ليس)"
    r"(?![\w-])|\wn['’]t\b|いいえ|ません|ない(?!し)|不(?![同仅僅但断斷少过過])|没|沒|未(?![来來])|無(?!料)|无|否"
    r"|아니|않|없",
    regex.IGNORECASE,
)
_NUMBERED = regex.compile(r"\bno\.?\s*(?=\d)", regex.IGNORECASE)  # "No. 5" denies nothing
_CLAUSE = regex.compile(  # the marks in "U.S." and "3.5" do not end it
    r"[^\s,;:.!?…–—，。、；：！？](?:[^,;:.!?…–—，。、；：！？\n]|\.(?=\S)|(?<=\.\p{Lu})\.)*"
)
_IN_THE = regex.compile(r"\bno\b", regex.I)  # of Portuguese
_CAPITALS = regex.compile(r"\b\p{Lu}{2,}\b")
_CHOSEN = 2  # how often a word counts that only one answer takes from the question


def words(text: str) -> list[str]:
    """The words of a text, in lower case; each Chinese or Japanese character is one."""
    return _WORD.findall(text.lower())


def token_f1(answer: str, reference: str) -> float:
    """F1 of the words that two answers share, as for SQuAD, articles included.

    1 if both have the same words, in any order, and 0 if they share none.
    """
    return _f1(Counter(words(answer)), Counter(words(reference)))


def answer_f1(question: str) -> Similarity:
    """A similarity of two answers to a question, from 0 to 1: F1 of what they say beyond the question.

    Many answers repeat their question. "The album was released in 2000" and "The album was released in
    1998" have nearly all words in common and are different answers. The rules, in this order:

    1. Answers of the same words are the same.
    2. They differ if just one denies ("no", "cannot"): anywhere if all else is the same, otherwise in
       its first clause. They also differ if both have numbers, or numbers and names, that are not in
       the question, and none in common.
    3. A bare "yes" or "no" is the same as an answer that begins so, or that only repeats the question.
       Other answers without a word that says something, such as "He did", are the same if one of them
       has all words of the other.
    4. Else it is the F1 of their words, without endings, articles and the like. Words of the question
       do not count, unless each answer has some that the other lacks: these are a choice, and count
       twice. To "Is Kessel or Dray larger?", "It is Kessel" and "It is Dray" differ. If nothing is left
       of one of them, the words of the question count too.

    Articles and the like are those of the language that has most of them here, without what the
    question writes in capitals ("US", "MIT"). Scripts without spaces are compared by pairs of
    characters. The order of words does not matter, and synonyms are not known.
    """
    asked = set(_terms(question))

    def answer_f1(answer: str, reference: str) -> float:
        language = _language(question, answer, reference)
        if language == "pt":
            answer, reference = (_IN_THE.sub("na", text) for text in (answer, reference))
        one, other = _terms(answer), _terms(reference)
        if not (one and other):
            return float(answer.strip() == reference.strip())
        if one == other:
            return 1.0
        empty = _empty(language, question)
        said, also = _content(one, empty), _content(other, empty)
        denied = [
            _denies(text if said == also else _first_clause(text)) for text in (answer, reference)
        ]
        if denied[0] is not denied[1] or _apart(answer, reference, asked, empty):
            return 0.0
        if said and also:
            return _beyond(said, also, asked)
        if not (said or also):
            return float(all(denied) or _bare({*one}, {*other}))
        full, text = (said, answer) if said else (also, reference)
        return float(full.keys() <= asked or not _content(_terms(_first_clause(text)), empty))

    return answer_f1


def is_bare(answer: str) -> bool:
    """Whether an answer only says that what was asked is so, or is not: "Yes.", "No, it isn't."."""
    terms = _terms(answer)
    return bool(terms) and not _content(terms, _EMPTY)


def _bare(one: Set[str], other: Set[str]) -> bool:
    """Whether answers of small words are the same: one only agrees, or has all words of the other."""
    return bool(_AGREES & (one | other)) or one <= other or other <= one


def _beyond(one: Counter[str], other: Counter[str], asked: Set[str]) -> float:
    """F1 of what is not in the question, and of what each answer took from it and the other did not."""
    left, chosen = [], []
    for each, against in ((one, other), (other, one)):
        left.append(Counter({w: n for w, n in each.items() if w not in asked}))
        chosen.append(Counter({w: _CHOSEN * n for w, n in each.items() if w in asked - against.keys()}))
    if all(chosen):
        left = [new + choice for new, choice in zip(left, chosen, strict=True)]
    return _f1(*left) if all(left) else _f1(one, other)


def _apart(one: str, other: str, asked: Set[str], empty: Set[str]) -> bool:
    """Whether both have numbers, or numbers and names, beyond the question and not in the other."""
    terms = [set(_terms(text)) for text in (one, other)]
    numbers = [{term for term in each if term[-1].isdecimal()} - asked for each in terms]
    names = [{t for name in _NAME.findall(text) for t in _terms(name)} for text in (one, other)]
    facts = [number | name - asked - empty for number, name in zip(numbers, names, strict=True)]
    return any(
        all(pair) and pair[0].isdisjoint(terms[1]) and pair[1].isdisjoint(terms[0])
        for pair in (numbers, facts)
    )


def _language(*texts: str) -> str:
    """The language that has most of the small words of some texts; English where none has more."""
    found = {word for text in texts for word in words(text)}
    return max(_SMALL, key=lambda language: len(found & _SMALL[language]))


def _empty(language: str, question: str) -> Set[str]:
    """Words that say nothing by themselves, in answers to a question."""
    names = () if question.isupper() else _CAPITALS.findall(question)
    return _AGREES | _SMALL[language] - {name.lower() for name in names}


def _content(terms: Collection[str], empty: Set[str]) -> Counter[str]:
    return Counter(term for term in terms if term not in empty and not _DENIES.fullmatch(term))


def _denies(text: str) -> bool:
    return _DENIES.search(_NUMBERED.sub("", text)) is not None


def _first_clause(answer: str) -> str:
    clause = _CLAUSE.search(_NUMBERED.sub("", answer))
    return clause[0] if clause else ""


def _terms(text: str) -> list[str]:
    """Words without endings, numbers, signs, and pairs of characters of scripts without spaces."""
    found: list[str] = []
    plain = _SHORT_NOT.sub(" not", unicodedata.normalize("NFKC", text))
    for match in _TERM.finditer(_ELIDED.sub(" ", plain)):
        term = match[0].lower()
        if match["number"]:
            number = term.replace("−", "-")
            found.append(number.replace(",", "") if _THOUSANDS.fullmatch(number) else number)
        elif match["unspaced"]:
            found += character_pairs(term)
        elif match["word"]:
            found.append(term if any(c.isdecimal() for c in term) or term in _EMPTY else stem(term))
        elif match["sign"]:
            found.append(term)
    return found


def _f1(one: Counter[str], other: Counter[str]) -> float:
    shared = (one & other).total()
    return 2 * shared / (one.total() + other.total()) if shared else float(one == other)
