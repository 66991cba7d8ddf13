"""What a statement says that no part of a prompt says: its content words and numbers, found by words.

A model finds a statement likely that repeats a document and adds something of its own. Words tell the
two apart where the statement is in the language of the documents. Synonyms are not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

import regex

from ropelime.text.actions import stem

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD = regex.compile(
    rf"(?P<number>\d+(?:[.,:]\d+)*)(?:(?:st|nd|rd|th|s)\b)?|(?:(?![{_UNSPACED}\d_])[\w\p{{M}}])+(?:['’](?:s|t|re|ve|ll|d)\b)?"
)
_ATTACHING = regex.compile(r"[\p{Hangul}\p{Arabic}\p{Hebrew}]")
_ELIDED = regex.compile(r"n?['’]\w+$")
# Words that say nothing by themselves, or only of the source, in some languages.
_SMALL_WORDS = """
a about after all also although an and any are as at be because been before being both but by can
could did do does during each either every for from given had has have he her here his how if in
into is it its like made make many may more most much must neither no nor not now of on one only or
other our out over per said same say says she should since so some such than that the their them
then there these they this those through to under until up upon us use used using very was we were
what when where whether which while who whom whose why will with within without would yes you your
according additionally claim claims compared correct describe described describes due furthermore
however include included includes including instead known located mention mentioned mentions
moreover overall right source sources state stated states therefore together true typically
aber als am an auch auf aus bei bis das dass dem den der des die durch ein eine einem einen einer
eines er es für hat haben im in ist kann mit nach nicht noch nur oder sein sich sie sind so um und
unter vom von vor war waren was wenn werden wie wird wurde wurden zu zum zur über
au aux avec ce ces cette comme dans de des du elle en est et il ils la le les leur mais ne ou par
pas plus pour qu que qui sa se ses son sont sur un une été
al como con del desde el ella en entre era es esta este fue ha han la las lo los más no o para pero
por se ser sin su sus también un una y
"""
_UNITS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen nineteen twenty"""
_TENS = "thirty forty fifty sixty seventy eighty ninety hundred"
_SMALL = frozenset(_SMALL_WORDS.split())
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_NUMBERS = {
    **{name: str(value) for value, name in enumerate(_ORDINALS.split(), 1)},
    **{name: str(value) for value, name in enumerate(_UNITS.split())},
    **{name: f"{value}0" for value, name in enumerate(_TENS.split(), 3)},
    "thousand": "1000",
}
_ALIKE = 4  # letters that two words of one family begin with, and
_FAMILY = 2 / 3  # the part of the longer one that these are


@dataclass(frozen=True)
class Words:
    """The words of a text.

    Attributes:
        content: Those that say something, each by its stem, as they are written; numbers as digits.
        small: Those that say nothing by themselves.
    """

    content: Mapping[str, str]
    small: frozenset[str]

    @cached_property
    def _families(self) -> dict[str, list[str]]:
        """Words that may be of one family, by what these begin with."""
        found: dict[str, list[str]] = {}
        for word in self.content:
            found.setdefault(word[:_ALIKE], []).append(word)
        return found

    def has(self, wanted: str) -> bool:
        """Whether a word stands here, or another one of its family; numbers as they are."""
        if wanted in self.content or wanted[0].isdecimal():
            return wanted in self.content
        return any(_related(wanted, known) for known in self._families.get(wanted[:_ALIKE], ()))


def read(*texts: str) -> Words:
    """The words of texts."""
    content: dict[str, str] = {}
    small = set()
    for text in texts:
        for found in _WORD.finditer(text):
            word = _ELIDED.sub("", found[0].lower()) or found[0].lower()
            if found["number"]:
                content.setdefault(_plain(found["number"]), found[0])
            elif word in _NUMBERS and word != "one":
                content.setdefault(_NUMBERS[word], found[0])
            elif word in _SMALL or len(word) < 2:
                small.add(word)
            else:
                content.setdefault(stem(word), found[0])
    return Words(content, frozenset(small))


def own_words(statement: str, asked: Words, known: Words) -> dict[str, str]:
    """The content words of a statement beyond those that were asked; none where they cannot be judged.

    That is where a statement is in another language than what is known, which lacks most of its small
    words, or in a script whose words have others attached to them.
    """
    if _ATTACHING.search(statement):
        return {}
    said = read(statement)
    own = {key: word for key, word in said.content.items() if not asked.has(key)}
    if said.small:
        alike = 2 * len(said.small & (known.small | asked.small)) >= len(said.small)
    else:
        alike = any(known.has(key) for key in own)
    return own if alike else {}


def _plain(number: str) -> str:
    """A number without the commas between thousands."""
    return number.replace(",", "") if regex.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", number) else number


def _related(one: str, other: str) -> bool:
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    return shared >= _ALIKE and shared >= _FAMILY * max(len(one), len(other))
