"""The server's log, bounded: whatever clients send, it grows slowly."""

from __future__ import annotations

import logging
import logging.config
import time
from typing import Any

_BURST = 100  # records that may come at once
_PER_MINUTE = 10  # records in the long run: at most 60 MB a day
_LONGEST = 4000  # characters of a record; of a longer one, the beginning and the end


class Bounded(logging.Filter):
    """Lets so many records a minute pass, and says how many it has left out."""

    def __init__(self, burst: int = _BURST, per_minute: float = _PER_MINUTE) -> None:
        super().__init__()
        self._burst, self._pace = burst, per_minute / 60
        self._left, self._last, self._lost = float(burst), time.monotonic(), 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is written."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._last) * self._pace)
        self._last = now
        if self._left < 1:
            self._lost += 1
            return False
        self._left -= 1
        if self._lost:
            record.msg = (
                f"({self._lost:,} records before this one were left out.) {record.getMessage()}"
            )
            record.args, self._lost = (), 0
        return True


class Short(logging.Formatter):
    """Cuts the middle out of long records."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        text = super().format(record)
        if len(text) <= _LONGEST:
            return text
        return f"{text[: _LONGEST // 4]}\n[...]\n{text[-_LONGEST * 3 // 4 :]}"


_TO = {"handlers": ["stderr"], "level": "WARNING", "propagate": False}
_CONFIG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"bounded": {"()": Bounded}},
    "formatters": {"short": {"()": Short, "format": "%(levelname)s: %(message)s"}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "filters": ["bounded"], "formatter": "short"}
    },
    "loggers": dict.fromkeys(("ropelime", "uvicorn", "asyncio"), _TO),
}


def set_up() -> None:
    """Write the log of this process to standard error, within its bounds."""
    logging.config.dictConfig(_CONFIG)
