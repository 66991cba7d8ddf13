"""Words of several languages: numbers, endings, words that say nothing, scripts without spaces."""

from __future__ import annotations

from itertools import pairwise

import regex

# Scripts that write no space between words; the second with the sign that lengthens a vowel.
SCRIPTS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
UNSPACED = rf"{SCRIPTS}ー"
NUMBER = r"\d+(?:[.,:]\d+)*"

# Words that only agree, in some languages.
_AGREES = """yes yeah yep true ja jo wahr oui vrai sí sì sim verdadero tak evet да はい 是 是的 对 對 네
    예 हाँ نعم"""
AGREES = frozenset(_AGREES.split())
_SMALL_WORDS = {
    "en": """an the this that these those it its i he she they them his her their we our us you your my
        me is are was were be been being am do does did has have had will would can could should of in
        on at to for from by with as and or but so than then there here answer option choice""",
    "de": """der die das den dem des ein eine einen einem einer es er sie wir ist sind war waren wurde
        wurden hat im am zu zur zum von vom mit und oder aber""",
    "fr": """le la les un une il elle est sont était été du de au aux en dans et ou mais""",
    "es": """el la los las una un es son era fue de del al en y o pero""",
    "it": """il lo la gli le un una è sono era di del della in al e o ma""",
    "pt": """o a os as um uma é são era foi de do da em no na e ou mas""",
    "ru": """и в на это он она был была""",
}
SMALL = {code: frozenset(found.split()) for code, found in _SMALL_WORDS.items()}

_ENDINGS = ("ing", "ed", "es", "s", "e")
_LEAST = 3  # letters that are left of a word without its ending
_THOUSANDS = regex.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_EMPTY_END, _EMPTY_START = regex.compile(r"[.:]00?$"), regex.compile(r"^(-?)0+(?=\d)")


def stem(word: str) -> str:
    """A word in lower case without its ending."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _LEAST:
            return word[: -len(ending)]
    return word


def number(written: str) -> str:
    """A number in one form: 1,000 as 1000, 9:00 and 9.0 as 9, 05 as 5."""
    plain = written.replace("−", "-")
    if _THOUSANDS.fullmatch(plain):
        plain = plain.replace(",", "")
    return str(_EMPTY_START.sub(r"\1", _EMPTY_END.sub("", plain)))


def character_pairs(run: str) -> list[str]:
    """The pairs of neighbouring characters of a run; itself if it is a single one."""
    return [a + b for a, b in pairwise(run)] or [run]
