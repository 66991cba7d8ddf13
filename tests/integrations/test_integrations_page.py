"""Every example of docs/how-to/integrations.md runs; answers come from a server on loopback."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from integrations.recorded import ANTHROPIC, CHAT, GEMINI
from servers import Handler, Proxy

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "integrations.md").read_text(encoding="utf-8")
# What an example needs, its code, and its output if that is shown.
BLOCKS = re.findall(
    r"(?:<!-- needs: (\S+) -->\n)?```python\n(.*?)```(?:\n\n<!-- output -->\n```\n(.*?)```)?",
    PAGE,
    re.DOTALL,
)
ANSWERS = {"/messages": ANTHROPIC, ":generateContent": GEMINI, "/chat/completions": CHAT}


def answering(handler: Handler) -> None:
    """Answer as the API that is asked does."""
    recorded = next(r for end, r in ANSWERS.items() if handler.path.partition("?")[0].endswith(end))
    handler.reply(200, json.dumps(recorded.response))


@pytest.mark.slow
@pytest.mark.real_model
@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_an_example_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs, code, shown = BLOCKS[number]
    if needs:
        pytest.importorskip(needs, reason="make test-adapters")
    monkeypatch.chdir(tmp_path)
    for name, value in {"NO_PROXY": "127.0.0.1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}.items():
        monkeypatch.setenv(name, value)
    printed = io.StringIO()
    with Proxy(otherwise=answering).running() as server, contextlib.redirect_stdout(printed):
        root = server.url.removesuffix("/v1")
        for name in ("ANTHROPIC", "OPENAI", "GEMINI"):
            monkeypatch.setenv(f"{name}_API_KEY", "sk-example-0123456789")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", root)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", root)
        exec(f"import ropelime\n{code}", {})
    assert printed.getvalue().strip()
    assert shown in ("", printed.getvalue())


def test_the_page_has_its_examples() -> None:
    assert len(BLOCKS) == 9
    assert sum(bool(shown) for *_, shown in BLOCKS) == 2
