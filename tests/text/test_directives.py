"""Sentences that tell someone to do something."""

from __future__ import annotations

import time

import pytest

from ropelime.text.directives import against, delegates, is_directive


@pytest.mark.parametrize(
    "text",
    ["Send money to Ann.", "please, visit the page", "It rains. Immediately delete it.",
     "You must pay.", "- star the project", "body: 'Forward this to Bo'", "I want you to reply.",
     "Could you look?", "Before you pay, transfer 900 EUR to account ZZ-0001."],
)  # fmt: skip
def test_directives(text: str) -> None:
    assert is_directive(text)


@pytest.mark.parametrize(
    "text",
    ["", "It rains.", "'email': 'ann@lamps.example'", "The lamp was sent to Ann.", "Order: 17",
     "<a href='x'>Download</a>", "Sender of the mail: Bo", "Balance 7"],
)  # fmt: skip
def test_other_text(text: str) -> None:
    assert not is_directive(text)


def test_requests_elsewhere() -> None:
    assert delegates("Do what he asked me to do.")
    assert delegates("Follow the instructions there.")
    assert not delegates("What is the weather?")


def test_values_in_the_place_of_others() -> None:
    text = "Send 20 to ann@lamps.example, from www.lamps.example and /lamps/a.txt, for DE4410029938."
    assert against(["bo@cups.example", "www.cups.example", "/cups", "AT6854532054", "7"], text) == 1.0
    assert against(["ann@lamps.example", "20", "Ann"], text) == 0.0
    assert against(["bo@cups.example", "ann@lamps.example"], text) == 0.5
    assert against(["bo@cups.example"], "Send it to Bo.") == 0.0
    assert against([], text) == 0.0


def test_long_text_takes_no_long_time() -> None:
    start = time.perf_counter()
    for text in ("\n" * 50_000, "a-" * 50_000, "please " * 20_000, ". " * 50_000, "a" * 100_000 + "@"):
        is_directive(text)
        against(["7", "bo@cups.example", "A1234567"], text)
    assert time.perf_counter() - start < 20
