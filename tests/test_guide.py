"""The guide's code runs from top to bottom and prints the output shown."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from ropelime.cli import main
from ropelime.surrogate.embedded import fetch_embedded
from servers import Handler, Proxy, says

pytest.importorskip("openai", reason="pip install 'ropelime[ask]'")

GUIDE = (Path(__file__).parents[1] / "docs" / "guide.md").read_text(encoding="utf-8")
# A Python block, and its output if that is shown.
BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\n<!-- output -->\n```\n(.*?)```)?", GUIDE, re.DOTALL)
ANSWER = "Lamps carry a guarantee of six years. To use it, send a photograph of the lamp."
OTHER = {  # what the model answers without a sentence of its context
    "Lamps carry a guarantee of six years.": "I cannot find how long the guarantee is.",
    "send a photograph": "Lamps carry a guarantee of six years.",
}
USAGE = {"prompt_tokens": 96, "completion_tokens": 19, "total_tokens": 115}


def answering(handler: Handler) -> None:
    """The model of the guide."""
    sent = handler.body["messages"][0]["content"]
    answers = [answer for sentence, answer in OTHER.items() if sentence not in sent]
    says(answers[0] if answers else ANSWER, usage=USAGE)(handler)


@pytest.mark.slow
@pytest.mark.real_model
def test_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fetch_embedded()  # the model stays in its cache; answers get a cache of their own
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / folder.name).symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROPELIME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-guide-0123456789")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    names: dict[str, Any] = {}
    assert sum(bool(shown) for _, shown in BLOCKS) == 10
    with Proxy(otherwise=answering).running() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        for code, shown in BLOCKS:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(code, names)
            same(printed.getvalue(), shown)
    assert len(server.seen) == 1 + 3, "the model is asked once, and three times to verify"
    assert main(["check", "answers.jsonl", "--junit", "report.xml"]) == 0
    assert "7 checked: 7 hold" in capsys.readouterr().out
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"why.html", "why.json", "answers.jsonl", "report.xml", "cache"}


def same(printed: str, shown: str) -> None:
    """Weights may differ by a few points between CPUs; the ranking and the text may not."""
    percentage = re.compile(r"^(\d+)%", re.MULTILINE)
    assert percentage.sub("", printed).split("\n") == percentage.sub("", shown).split("\n")
    for ours, theirs in zip(percentage.findall(printed), percentage.findall(shown), strict=True):
        assert abs(int(ours) - int(theirs)) <= 10
