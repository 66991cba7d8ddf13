"""How similar two answers are, by their words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Set

import regex

from ropelime.text.actions import fields
from ropelime.text.segmentation import language
from ropelime.text.vocabulary import AGREES, NUMBER, SMALL, UNSPACED, character_pairs, number, stem

Similarity = Callable[[str, str], float]

_SMALL = AGREES.union(*SMALL.values())
_CHARACTER = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # scripts that write no space between words
_WORD = re.compile(rf"[{_CHARACTER}]|(?:(?![{_CHARACTER}])\w)+")

# "A" is an article before a word at the start of a sentence, unless the question has options B, C, ...
_TERM = regex.compile(
    rf"""(?P<article>\ba(?=\s+\p{{L}})
        |(?<=(?:^|[.!?:\n])\s*)\bA(?=\s+(?!(?:is|was|and|or|because)\b)\p{{L}}))
    |(?P<number>(?<![\w.])[-−]?{NUMBER})(?:(?:st|nd|rd|th)\b)?
    |(?P<unspaced>(?:(?!\d)[{UNSPACED}]\p{{M}}*)+)
    |(?P<word>(?:(?![{UNSPACED}])[\w\p{{M}}])+)
    |(?P<sign>[\p{{S}}%\#&])""",
    regex.VERBOSE,
)
_OPTION = regex.compile(r"\b[B-H]\b")
# What is elided or shortened: 's, 'll, and the French l', d', qu'.
_ELIDED = regex.compile(r"['’](?:s|d|m|t|re|ve|ll)\b|\b(?:[cdjlmnst]|qu)['’](?=\p{L})", regex.I)
_SHORT_NOT = regex.compile(r"(?:\b(ca|wo)|(?<=\w))n['’]t\b", regex.I)
_INITIALS = regex.compile(r"\b(?:\p{Lu}\.){2,}")
_NAME = regex.compile(r"(?<=[\w,;)’']\s)\p{Lu}[\w\p{M}]+")  # not the first word of a sentence

_DENIES = regex.compile(
    r"(?<![\w-])(?:no(?! doubt)|not(?! only)|never|neither|nor|none|nothing|nobody|cannot|false"
    r"|nein|nicht|kein\w*|nie|niemals|falsch|non|pas|aucune?|jamais|faux|ningun[oa]?|nunca|falso|não"
    r"|niet|geen|nee|inte|nej|ikke|nei|není|değil|hayır|không|tidak|нет|не|ни|नहीं|لا|ليس)"
    r"(?![\w-])|\wn['’]t\b|いいえ|ません|ない(?!し)|不(?![同仅僅但断斷少过過])|没|沒|未(?![来來])|無(?!料)|无|否"
    r"|아니|않|없",
    regex.IGNORECASE,
)
_NUMBERED = regex.compile(r"\bno\.?\s*(?=\d)", regex.IGNORECASE)  # "No. 5" denies nothing
_LEADING_NO = regex.compile(r"\W*(?:no|nein|non|não|нет|nee|nej)\b\s*[,.;:!–—]\s*(?=\w)", regex.I)
_CLAUSE = regex.compile(  # the marks in "U.S." and "3.5" do not end it
    r"[^\s,;:.!?…–—，。、；：！？](?:[^,;:.!?…–—，。、；：！？\n]|\.(?=\S)|(?<=\.\p{Lu})\.)*"
)
# "The text does not say", "I cannot help": words that do so in a question are what it is about.
_DECLINES = regex.compile(
    r"\b(?:(?P<verb>unclear|unknown)|(?:not|cannot|unable\s+to)\s+(?:\w+\s+){0,3}?"
    r"(?P<verb>says?|said|stated?|mention(?:s|ed)?|specif(?:y|ies|ied)|provided?|given?|known?|sure|clear"
    r"|determined?|tell|indicated?|information|help|assist|answer)"
    r"|no\s+(?:\w+\s+)?(?P<verb>information|mention|indication))\b",
    regex.I,
)
_IN_THE = regex.compile(r"\bno\b(?=\s+\w)", regex.I)  # of Portuguese
_CHOSEN = 2  # how often a word counts that only one answer takes from the question
_SHORT = 8  # words of an argument that has to be the same, as an address or a path
_SAMPLE = 400  # characters of a text that tell its language
_MANY = 1 / 3  # of the numbers of an answer: so many others make it another one


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

    1. Answers of the same words are the same. Tool calls are as similar as their arguments that
       are least alike, if tools and number of arguments are the same, and otherwise differ; an
       argument of up to eight words has to be the same.
    2. An answer that gives none ("The text does not say", "I cannot help with that") is the same as
       another such answer and differs from all others.
    3. They differ if just one denies ("no", "cannot"): anywhere if all else is the same, otherwise in
       its first clause. They also differ if each lacks a third of the numbers of the other, or if
       both have numbers and names and none in common; what the question has does not count. "No, it is
       closed" is also compared without its "No" with an answer that says neither yes nor no.
    4. A bare "yes" or "no" is the same as an answer that begins so, or that only repeats the question.
       Other answers without a word that says something, such as "He did", are the same if one of them
       has all words of the other.
    5. Else it is the F1 of their words, without endings, articles and the like. Words of the question
       do not count, unless each answer has some that the other lacks: these are a choice, and count
       twice. To "Is Kessel or Dray larger?", "It is Kessel" and "It is Dray" differ. If nothing is left
       of one of them, the words of the question count too. Where half is shared, and
       that has no number, answers differ if each has words that the other lacks: "Marta Velling" and
       "Ida Velling".

    Articles and the like are those of the language that has most of its common words here; what is
    written in capitals ("US") is none of them. Scripts without spaces are compared by pairs of
    characters. The order of words does not matter, and synonyms are not known.
    """
    lettered = _OPTION.search(question) is not None
    asked = set(_terms(question, lettered=lettered))

    def answer_f1(answer: str, reference: str) -> float:
        calls = fields(answer), fields(reference)
        if any(calls):
            return _of_calls(*(call or [] for call in calls))
        spoken = language(" ".join(text[:_SAMPLE] for text in (question, answer, reference)))
        texts = [_IN_THE.sub("na", t) if spoken == "pt" else t for t in (answer, reference)]
        compare = _Comparison(asked, _empty(spoken), lettered)
        declined = [_declines(text, asked) for text in texts]
        if any(declined):
            return float(all(declined))
        return max(compare(*pair) for pair in [texts, *_without_no(*texts)])

    return answer_f1


def is_bare(answer: str) -> bool:
    """Whether an answer only says that what was asked is so, or is not: "Yes.", "No, it isn't."."""
    terms = _terms(answer)
    alone = _empty(language(answer[:_SAMPLE]))
    return (len(terms) > 1 or bool(AGREES & {*terms}) or _denies(answer)) and not _content(terms, alone)


def repeats(answer: str, question: str) -> bool:
    """Whether all that an answer says stands in its question, and it does not only agree or deny."""
    spoken = language(f"{question[:_SAMPLE]} {answer[:_SAMPLE]}")
    terms, asked = _terms(answer), {*_terms(question)}
    content = _content(terms, _empty(spoken))
    judges = bool(AGREES & {*terms[:1]}) or bool(terms and _denies(terms[0]))
    return bool(content) and not judges and content.keys() <= asked


class _Comparison:
    """How similar answers to a question are.

    Attributes:
        asked: The terms of the question.
        empty: Words that say nothing by themselves.
        lettered: Whether the question has options with letters.
    """

    def __init__(self, asked: Set[str], empty: Set[str], lettered: bool) -> None:
        self.asked, self.empty, self.lettered = asked, empty, lettered

    def __call__(self, answer: str, reference: str) -> float:
        one, other = (_terms(text, lettered=self.lettered) for text in (answer, reference))
        if not (one and other):
            return float(answer.strip() == reference.strip())
        if one == other:
            return 1.0
        said, also = _content(one, self.empty), _content(other, self.empty)
        denied = [
            _denies(text if said == also else _first_clause(text)) for text in (answer, reference)
        ]
        if denied[0] is not denied[1] or self._apart((answer, one), (reference, other)):
            return 0.0
        if said and also:
            return self._beyond(said, also)
        if not (said or also):
            return float(all(denied) or _bare({*one}, {*other}))
        full, text = (said, answer) if said else (also, reference)
        leads = not _content(_terms(_first_clause(text)), self.empty)
        return float(full.keys() <= self.asked or leads)

    def _beyond(self, one: Counter[str], other: Counter[str]) -> float:
        """F1 of what is not in the question, and of what each took from it and the other did not."""
        left, chosen = [], []
        for each, against in ((one, other), (other, one)):
            left.append(Counter({w: n for w, n in each.items() if w not in self.asked}))
            own = self.asked - against.keys()
            chosen.append(Counter({w: _CHOSEN * n for w, n in each.items() if w in own}))
        if all(chosen):
            left = [new + choice for new, choice in zip(left, chosen, strict=True)]
        first, second = left if all(left) else (one, other)
        found = _f1(first, second)
        replaced = first - second and second - first and not any(map(_is_number, first & second))
        return 0.0 if replaced and found == 0.5 else found

    def _apart(self, one: tuple[str, list[str]], other: tuple[str, list[str]]) -> bool:
        """Whether numbers, or numbers and names, beyond the question are not those of the other."""
        lacking, facts = [], []
        for (text, terms), (_, others) in ((one, other), (other, one)):
            numbers = Counter(term for term in terms if _is_number(term) and term not in self.asked)
            strange = (numbers - Counter(others)).total()
            lacking.append(strange > 0 and strange >= _MANY * numbers.total())
            names = {term for name in _NAME.findall(text) for term in _terms(name)}
            own = {*numbers} | names - self.asked - self.empty
            facts.append(bool(own) and own.isdisjoint(others))
        return all(lacking) or all(facts)


def _of_calls(call: list[str], other: list[str]) -> float:
    """How similar two tool calls are: as the arguments that are least alike."""
    if len(call) != len(other) or call[:1] != other[:1]:
        return 0.0
    pairs = zip(sorted(call[1:]), sorted(other[1:]), strict=True)
    return min((_of_arguments(a, b) for a, b in pairs), default=1.0)


def _of_arguments(one: str, other: str) -> float:
    short = max(len(words(one)), len(words(other))) <= _SHORT
    return float(one.split() == other.split()) if short else token_f1(one, other)


def _without_no(one: str, other: str) -> list[tuple[str, str]]:
    """The answers without a leading no, where just one of them begins so and says more."""
    leading = [_LEADING_NO.match(text) for text in (one, other)]
    if (leading[0] is None) is (leading[1] is None):
        return []
    found, against = (leading[0], other) if leading[0] else (leading[1], one)
    rest = found.string[found.end() :] if found else ""
    begun = _terms(_first_clause(against))[:1]
    if is_bare(rest) or AGREES & {*begun} or (begun and _denies(begun[0])):
        return []
    return [(rest, against)]


def _bare(one: Set[str], other: Set[str]) -> bool:
    """Whether answers of small words are the same: one only agrees, or has all words of the other."""
    return bool(AGREES & (one | other)) or one <= other or other <= one


def _is_number(term: str) -> bool:
    return term[-1].isdecimal() and not term[0].isalpha()


def _empty(spoken: str) -> Set[str]:
    """Words of a language that say nothing by themselves."""
    return AGREES | SMALL.get(spoken, frozenset())


def _content(terms: Collection[str], empty: Set[str]) -> Counter[str]:
    return Counter(term for term in terms if term not in empty and not _DENIES.fullmatch(term))


def _denies(text: str) -> bool:
    return _DENIES.search(_NUMBERED.sub("", text)) is not None


def _declines(text: str, asked: Set[str]) -> bool:
    found = _DECLINES.search(_SHORT_NOT.sub(_not, text))
    return found is not None and stem(found["verb"].lower()) not in asked


def _first_clause(answer: str) -> str:
    clause = _CLAUSE.search(_NUMBERED.sub("", answer))
    return clause[0] if clause else ""


def _not(short: regex.Match[str]) -> str:
    """What "n't" stands for; "can't" and "won't" have another verb before it."""
    verb = {"ca": "can", "wo": "will"}.get((short[1] or "").lower(), "")
    return f"{verb} not"


def _terms(text: str, *, lettered: bool = False) -> list[str]:
    """Words without endings, numbers, signs, and pairs of characters of scripts without spaces."""
    found: list[str] = []
    plain = _SHORT_NOT.sub(_not, unicodedata.normalize("NFKC", text))
    plain = _INITIALS.sub(lambda name: name[0].replace(".", ""), plain)
    shouted = plain.isupper() and len(plain.split()) > 1
    for match in _TERM.finditer(_ELIDED.sub(" ", plain)):
        term = match[0].lower()
        if match["article"]:
            found += ["a"] if lettered and match[0] == "A" else []
        elif match["number"]:
            found.append(number(match["number"]))
        elif match["unspaced"]:
            found += character_pairs(term)
        elif match["sign"]:
            found.append(term)
        elif match[0].isupper() and len(term) > 1 and term in _SMALL and not shouted:
            found.append(match[0])  # "US" is not "us"
        elif term in _SMALL or _DENIES.fullmatch(term) or any(c.isdecimal() for c in term):
            found.append(term)
        else:
            found.append(stem(term))
    return found


def _f1(one: Counter[str], other: Counter[str]) -> float:
    shared = (one & other).total()
    return 2 * shared / (one.total() + other.total()) if shared else float(one == other)
