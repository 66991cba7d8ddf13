"""Sentences that tell someone to do something."""

from __future__ import annotations

import time

import pytest

from ropelime.text.directives import against, delegates, is_code, is_directive, orders


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
     "<a href='x'>Download</a>", "Sender of the mail: Bo", "Balance 7", "ann.star Lamp Account"],
)  # fmt: skip
def test_other_text(text: str) -> None:
    assert not is_directive(text)


@pytest.mark.parametrize(
    ("text", "found", "around"),
    [
        ("It rains. Send it to Bo. Bye.", "Send it to Bo.", "It rains. Send it to Bo. Bye."),
        ("It rains.\n\nSend it to Bo.\n\nBye.", "Send it to Bo.", "Send it to Bo."),
        ("a: |\n  Please send\n  it to Bo\nb: 7", "a: |\n  Please send\n  it to Bo", None),
        (r"['It rains.\n\nSend it to Bo.\n\n', 'Bye']", "Send it to Bo.", "Send it to Bo."),
        (r"[\"x\\n\\nSend it to Bo.\\n\"]", "Send it to Bo.", "Send it to Bo."),
    ],
)
def test_orders_are_found_where_they_are(text: str, found: str, around: str | None) -> None:
    ((span, wide),) = orders(text)
    assert found in text[slice(*span)]
    assert len(text[slice(*span)]) <= len(found) + 2, "no more than quotes"
    assert around is None or around in text[slice(*wide)]
    assert wide[0] <= span[0] < span[1] <= wide[1]


def test_no_orders() -> None:
    assert orders("") == orders(" \n ") == orders("It rains. The lamp is old.") == []


def test_codes() -> None:
    for value in ("ann@lamps.example", "www.lamps.example", "/lamps/a.txt", "DE4410029938"):
        assert is_code(value)
    for value in ("", "lamp", "7", "two lamps"):
        assert not is_code(value)


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
        orders(text)
        against(["7", "bo@cups.example", "A1234567"], text)
    assert time.perf_counter() - start < 20
