"""A cache of answers on disk, so that the same request is paid for only once.

An entry is one small file, named by a digest of the request and readable by its owner only. It holds
the answer, not the request, and never a key.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from ropelime.clients.openai import Answer, Call

_FORMAT, _VERSION = "ropelime.answer", 1


@dataclass(frozen=True)
class Cache:
    """A folder of answers.

    Attributes:
        folder: Where they are; created with the first entry.
    """

    folder: Path

    def get(self, call: Call) -> Answer | None:
        """The cached answer to this call; None if there is none, or if it is damaged."""
        try:
            entry = json.loads(self._path(call).read_text(encoding="utf-8"))
            if entry["format"] != _FORMAT or entry["version"] != _VERSION:
                return None
            answer = Answer(**entry["answer"])
            texts = (answer.text, answer.model, answer.finish_reason)
            counts = (*answer.usage.values(), answer.retries)
            whole = all(isinstance(t, str) for t in texts) and all(isinstance(c, int) for c in counts)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None  # missing or damaged: the request is sent again and the entry overwritten
        return answer if whole and answer.text else None

    def put(self, call: Call, answer: Answer) -> None:
        """Store an answer atomically; of several writers the last one wins.

        Raises:
            OSError: If the folder cannot be written.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        entry = {"format": _FORMAT, "version": _VERSION, "answer": asdict(answer)}
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=".answer-")  # private: mode 0600
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(entry, file, ensure_ascii=False)
            os.replace(name, self._path(call))
        except BaseException:
            os.unlink(name)
            raise

    def _path(self, call: Call) -> Path:
        return self.folder / f"{call.digest}.json"
