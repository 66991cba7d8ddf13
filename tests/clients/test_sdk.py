"""What all clients of servers refuse before a request is sent."""

from __future__ import annotations

import pytest

from ropelime import InputError
from ropelime.clients.sdk import check_retries

# By how an error names them: pytest cannot name numbers of thousands of digits either.
REFUSED = {
    "101": 101,
    "-1": -1,
    f"-1{'0' * 39}": -(10**39),
    "9" * 40: 10**40 - 1,
    "a number of 41 digits": 10**40,
    "a negative number of 41 digits": -(10**40),
    "a number of 5,001 digits": 10**5000,
    "a number of 5,000 digits": 10**5000 - 1,
    "a negative number of 5,001 digits": -(10**5000),
    "True": True,
    "2.0": 2.0,
    "None": None,
    f"'{'2' * 38}…": "2" * 50,
}


@pytest.mark.parametrize("retries", [0, 2, 100])
def test_retries_that_are_taken(retries: int) -> None:
    check_retries(retries)


@pytest.mark.parametrize("given", REFUSED)
def test_retries_that_are_refused_are_named(given: str) -> None:
    with pytest.raises(InputError) as caught:
        check_retries(REFUSED[given])
    assert str(caught.value) == f"retries must be a whole number from 0 to 100, not {given}."
