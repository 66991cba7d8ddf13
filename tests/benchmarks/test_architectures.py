"""``python -m benchmarks architectures``: a line for each type, and the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.architectures import page
from benchmarks.architectures.compare import Comparison
from benchmarks.cli import main

LLAMA = Comparison(packed=True, cached=float("inf"), moves=True, exact_error=4e-6, cached_error=None)


def test_types_are_compared_and_written_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    types = ["llama", "mamba", "gpt_neo", "xlm", "mllama"]
    assert main(["architectures", *types, "--docs", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[:-1]] == types
    text = (tmp_path / "results" / "architectures.md").read_text(encoding="utf-8")
    assert "| `llama` | LlamaForCausalLM | packed | yes | yes |" in text
    assert "| `mamba` | MambaForCausalLM | one by one | no | as `delete` |" in text
    assert "| `gpt_neo` | GPTNeoForCausalLM | one by one | up to its window | yes |" in text
    assert "later tokens: `xlm` (XLMWithLMHeadModel)." in text
    assert text.endswith("`mllama`.\n")


def test_scores_that_differ_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(LLAMA, exact_error=0.1)
    monkeypatch.setattr(page, "examine", lambda model_type: wrong)
    assert main(["architectures", "llama"]) == 1
