"""Answers that were paid for, kept by what was asked: the same question is not paid twice.

An entry is one small file, named by a digest of the question and readable by its owner only. It holds
the answer and not the question, and never a key.
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
        folder: Where they lie; made when the first one is kept.
    """

    folder: Path

    def get(self, call: Call) -> Answer | None:
        """The answer to this call, if it was kept whole."""
        try:
            entry = json.loads(self._path(call).read_text(encoding="utf-8"))
            if entry["format"] != _FORMAT or entry["version"] != _VERSION:
                return None
            answer = Answer(**entry["answer"])
            texts = (answer.text, answer.model, answer.finish_reason)
            counts = (*answer.usage.values(), answer.retries)
            whole = all(isinstance(t, str) for t in texts) and all(isinstance(c, int) for c in counts)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None  # not there, or damaged: it is asked for anew and written over
        return answer if whole and answer.text else None

    def put(self, call: Call, answer: Answer) -> None:
        """Keep an answer; of several writers the last one wins, and no reader sees half of one.

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
