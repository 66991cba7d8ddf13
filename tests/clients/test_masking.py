"""A key is masked however it is written, whole or in pieces, and nothing else is."""

from __future__ import annotations

import base64
import html
import json
import quopri
import re
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelime.clients.masking import MASK, hidden, split_at_key

KEY = "sk-proj/Zt7Qm2+Xw9_LkR4vB8="


def base(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


WAYS: dict[str, Callable[[str], str]] = {
    "plain": lambda key: key,
    "upper": str.upper,
    "lower": str.lower,
    "json": lambda key: json.dumps(key)[1:-1].replace("/", "\\/"),
    "json, all": lambda key: "".join(f"\\u{ord(c):04x}" for c in key),
    "json in json": lambda key: "".join(f"\\\\u{ord(c):04X}" for c in key),
    "javascript": lambda key: "".join(f"\\x{ord(c):02x}" for c in key),
    "braces": lambda key: "".join(f"\\u{{{ord(c):x}}}" for c in key),
    "octal": lambda key: "".join(f"\\{ord(c):03o}" for c in key),
    "percent": lambda key: quote(key, safe=""),
    "percent, all": lambda key: "".join(f"%{ord(c):02X}" for c in key),
    "percent twice": lambda key: quote(quote(key, safe=""), safe=""),
    "entities": lambda key: "".join(f"&#{ord(c)};" for c in key),
    "hexadecimal entities": lambda key: "".join(f"&#x{ord(c):x};" for c in key),
    "entities twice": lambda key: html.escape("".join(f"&#{ord(c)};" for c in key)),
    "quoted-printable": lambda key: "".join(f"={ord(c):02X}" for c in key),
    "hex": lambda key: key.encode().hex(),
    "hex with colons": lambda key: key.encode().hex(":"),
    "hex with spaces": lambda key: key.encode().hex(" "),
    "spaced": " ".join,
    "zero width": "\u200b".join,
    "utf-16": lambda key: key.encode("utf-16-le").decode("latin-1"),
    "lines": lambda key: key[:9] + "\n" + key[9:],
    "base64": base,
    "base64 behind one": lambda key: base("x" + key),
    "base64 of a header": lambda key: base(f"Bearer {key}, thank you"),
    "base64 of basic": lambda key: base(f"me:{key}"),
    "base64 in json": lambda key: json.dumps(base(f"{{{key}}}")).replace("/", "\\/"),
    "base64 for urls": lambda key: base64.urlsafe_b64encode(f"k={key}".encode()).decode(),
    "base64, percent": lambda key: quote(base(f"??{key}??"), safe=""),
}


def revealed(text: str, key: str) -> bool:
    """Whether six characters in a row of a key can be read in a text, plain or in base64."""
    cores = [key, *(base("x" * n + key)[4:-4] for n in range(3))]
    return any(core[i : i + 6] in text for core in cores for i in range(len(core) - 5))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_it_is_masked_however_it_is_written(way: Callable[[str], str]) -> None:
    text = f"Your key is <{way(KEY)}>, thank you."
    masked = hidden(text, KEY)
    assert MASK in masked
    assert way(KEY) not in masked
    assert not revealed(masked, KEY)
    assert masked.startswith("Your key is <")
    assert masked.endswith(">, thank you.")


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_it_is_masked_in_pieces(way: Callable[[str], str], size: int) -> None:
    text = f"Your key is <{way(KEY)}>, thank you."
    shown, held = "", ""
    for at in range(0, len(text), size):
        ready, held = split_at_key(hidden(held + text[at : at + size], KEY), KEY)
        shown += ready
    late = re.compile(r"\[key\](3D|[;}])")  # the end of the last escape may come too late
    assert late.sub(MASK, shown + held) == late.sub(MASK, hidden(text, KEY))


def test_soft_line_ends_of_mail_do_not_help() -> None:
    encoded = quopri.encodestring(KEY.encode()).decode()
    assert not revealed(hidden(encoded, KEY), KEY)


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.characters(codec="utf-8"), max_size=300))
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert hidden(text, KEY) == text
    shown, held = split_at_key(text, KEY)
    assert shown + held == text


KEYS = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\\"), min_size=8, max_size=40
)


@settings(max_examples=400, deadline=None)
@given(key=KEYS, before=st.text("ab \n", max_size=5), way=st.sampled_from(sorted(WAYS)))
def test_any_key_is_masked(key: str, before: str, way: str) -> None:
    text = before + WAYS[way](key)
    assert WAYS[way](key) not in hidden(text, key)


@pytest.mark.parametrize(
    "key", ["a\\b\\c\\d\\e\\f\\g\\h", "%25" * 9, "&amp;#" * 9, "0x00=" * 9, "5c\\5c\\5c\\5c"]
)
def test_keys_that_look_like_escapes_cost_no_more(key: str) -> None:
    assert hidden(f"<{key}>", key) == f"<{MASK}>"
    for text in ("\\" * 5000, "%25" * 2000, key[:-1] * 500, key[:-1] + "\\" * 5000):
        assert key not in hidden(text, key)


@pytest.mark.parametrize("key", [None, "", "none", "1234567"])
def test_what_is_no_secret_is_not_looked_for(key: str | None) -> None:
    assert hidden("1234567 none", key) == "1234567 none"
    assert split_at_key("1234567 none", key) == ("1234567 none", "")


@pytest.mark.parametrize("unit", ["s", "sk-", "7", "73", "\\", "%25", "&amp;", "s    ", "0", "c2st"])
def test_long_texts_are_read_in_linear_time(unit: str) -> None:
    text = unit * (50_000 // len(unit))
    assert hidden(text, KEY) == text
    shown, held = split_at_key(text, KEY)
    assert shown + held == text
