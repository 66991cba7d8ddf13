"""From a file to steps: which form it has, and the reader of that form."""

from __future__ import annotations

import os
from typing import Any

from ropelime.traces.steps import TraceData


def read(source: str | os.PathLike[str] | Any) -> TraceData:
    """The steps of a file, or of its data."""
    raise NotImplementedError
