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

from ropelime.text.segmentation import language
from ropelime.text.vocabulary import AGREES, NUMBER, SMALL, UNSPACED, number, stem

# Words that say nothing, beside those of the vocabulary, or only of the source.
_MORE = """
a about after all also although any because before both by ca can't cannot did do during each either
every given hers how if into its like made make many may more most much must neither no nor not now
off one only other out over per said same say says sha should since so some such their them
though through too under until up upon us use used using very what when where whether which while
who whom whose why within without wo yes
according additionally claim claims compared correct describe described describes due furthermore
however include included includes including instead known located mention mentioned mentions
moreover overall right source sources state stated states therefore together true typically
als an auch auf aus bei bis das dass durch für haben kann mehr nach nicht noch nur sein sich sie so
über um unter vor waren wenn werden wie wird worden
avec ce ces cette comme ils leur mais ne par pas plus pour qu que qui sa se ses son sur été
como con desde ella entre esta este ha han los más no para por ser sin su sus también
"""
_SMALL = AGREES.union(_MORE.split(), *SMALL.values())
_ONES = "one two three four five six seven eight nine"
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_TIMES = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_NUMBERS = {
    "zero": 0,
    **{name: value for value, name in enumerate(f"{_ONES} {_TEENS}".split(), 1)},
    **{name: 10 * value for value, name in enumerate(_TENS.split(), 2)},
    **{name: value for value, name in enumerate(_ORDINALS.split(), 1)},
    **_TIMES,
}
_TIMES_OF = rf"(?:[\s-]+(?P<times>{'|'.join(_TIMES)}))"
_WORD = regex.compile(
    rf"""(?P<number>{NUMBER})(?:(?:st|nd|rd|th|s)\b)?
    |\b(?P<tens>{"|".join(_TENS.split())})(?:[\s-]+(?P<ones>{"|".join(_ONES.split())}))?{_TIMES_OF}?\b
    |\b(?P<few>{"|".join(f"{_ONES} {_TEENS}".split())}){_TIMES_OF}\b
    |(?:(?![{UNSPACED}\d_])[\w\p{{M}}])+(?:['’](?:s|t|re|ve|ll|d)\b)?""",
    regex.VERBOSE | regex.IGNORECASE,
)
_ATTACHING = regex.compile(r"[\p{Hangul}\p{Arabic}\p{Hebrew}]")
_ELIDED = regex.compile(r"n?['’]\w+$")
_ALIKE = 4  # letters that two words of one family begin with, and
_FAMILY = 2 / 3  # the part of the longer one that these are


@dataclass(frozen=True)
class Words:
    """The words of a text that say something: by its stem each as it is written; numbers as digits."""

    content: Mapping[str, str]

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
    for text in texts:
        for found in _WORD.finditer(text):
            word = _ELIDED.sub("", found[0].lower()) or found[0].lower()
            if found["number"]:
                content.setdefault(number(found["number"]), found[0])
            elif named := found["tens"] or found["few"]:
                value = _NUMBERS[named.lower()] + _NUMBERS.get((found["ones"] or "").lower(), 0)
                times = _TIMES.get((found["times"] or "").lower(), 1)
                content.setdefault(str(value * times), found[0])
            elif word in _SMALL or len(word) < 2:
                continue
            elif word in _NUMBERS:
                content.setdefault(str(_NUMBERS[word]), found[0])
            else:
                content.setdefault(stem(word), found[0])
    return Words(content)


def own_words(statement: str, asked: Words, spoken: str) -> dict[str, str]:
    """The content words of a statement beyond those that were asked; none where they cannot be judged.

    That is where a statement is in another language than the one that is spoken in the documents, or in
    a script whose words have others attached to them.

    Args:
        statement: The statement.
        asked: The words of the question.
        spoken: The code of the language of the documents.
    """
    if _ATTACHING.search(statement) or language(statement, spoken) != spoken:
        return {}
    return {key: word for key, word in read(statement).content.items() if not asked.has(key)}


def _related(one: str, other: str) -> bool:
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    return shared >= _ALIKE and shared >= _FAMILY * max(len(one), len(other))
