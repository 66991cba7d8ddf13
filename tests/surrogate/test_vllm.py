"""A surrogate behind a real vLLM server, beside the same model here: ``make test-vllm`` runs this."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropelime
from conftest import byte_level
from ropelime import InputError, ModelError
from ropelime.cli import main
from ropelime.surrogate import Ablation, ServerSurrogate, load_surrogate
from ropelime.surrogate.embedded import fetch_embedded
from ropelime.text import prompt as prompts
from scoring import prepare
from servers import Proxy, busy, cut, vllm_serve
from vllm_env import refused

PYTHON = os.environ.get("ROPELIME_VLLM")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.real_model,
    pytest.mark.skipif(PYTHON is None, reason="`make test-vllm` installs vLLM and runs these"),
    pytest.mark.skipif(bool(refused()), reason=refused() or "there is one for this machine"),
]

SECRET = "sk-vllm-2b7e151628aed2a6"
WINDOW = 320
CHUNKS = [
    "Varn is a small town on the coast. Ships come to its harbour in summer.",
    "The lighthouse of Varn was built by Oda Kelm. It is made of red stone.",
    "Berlin is the capital of Germany. It lies on the Spree.",
]
QUESTION = "Who built the lighthouse of Varn?"
RAG = prompts.from_context(CHUNKS, QUESTION)
ANSWER = "Oda Kelm built it."
EXPLAIN: dict[str, Any] = {
    "context": CHUNKS,
    "question": QUESTION,
    "output": ANSWER,
    "preset": "faithful",
    "scoring": "exact",
    "budget": 24,
    "progress": False,
}
NEAR = 1e-3  # nats for a whole answer; float32 adds up otherwise there and here


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = str(tmp_path_factory.mktemp("vllm") / "log.txt")
    options = ["--served-model-name", "smollm2", "other-name", "--api-key", SECRET]
    options += ["--max-model-len", str(WINDOW), "--max-num-seqs", "8"]
    with vllm_serve(str(PYTHON), str(fetch_embedded()), log, *options) as url:
        yield url


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("ROPELIME_SERVER_KEY", SECRET)


@pytest.fixture(scope="module")
def local() -> Any:
    return load_surrogate("smollm2", device="cpu", dtype="float32")


@pytest.mark.parametrize("ablation", ["delete", "placeholder:[...]"])
def test_the_same_numbers_as_here(served: str, local: Any, ablation: str) -> None:
    masks = np.array([[1, 1, 1], [0, 0, 0], [1, 0, 1], [0, 1, 0], [1, 0, 1]], dtype=bool)
    there = ServerSurrogate(served, model="smollm2")
    how: dict[str, Any] = {"ablation": Ablation.of(ablation)}
    ours = prepare(there, RAG, "document", ANSWER, **how).score(masks, kl=False)
    theirs = prepare(local, RAG, "document", ANSWER, **how).score(masks, kl=False)
    np.testing.assert_allclose(ours.logprob.sum(1), theirs.logprob.sum(1), atol=NEAR, rtol=0)
    np.testing.assert_allclose(ours.logprob, theirs.logprob, atol=NEAR, rtol=0)
    assert ours.tokens.tolist() == theirs.tokens.tolist()


def test_the_same_explanation_as_here(served: str, local: Any) -> None:
    ours = ropelime.explain(**EXPLAIN, surrogate=f"{served}#smollm2")
    theirs = ropelime.explain(**EXPLAIN, surrogate=local)
    np.testing.assert_allclose(ours.weights, theirs.weights, atol=NEAR, rtol=0)
    assert [share.index for share in ours.top()] == [share.index for share in theirs.top()]
    assert ours.top(1)[0].text.startswith("The lighthouse of Varn was built by Oda Kelm.")
    assert ours.config["surrogate"]["name"] == f"{served}#smollm2"
    assert ours.config["surrogate"]["served_by"].startswith("vllm-")


def test_the_page_about_it_prints_what_it_says(served: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "server.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (shown,) = re.findall(r"<!-- output -->\n```\n(.*?)```", page, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code.replace("http://localhost:8000/v1", served), {})
    assert printed.getvalue() == shown


def test_text_of_all_kinds_is_the_same_tokens_there(served: str, local: Any) -> None:
    prompt = prompts.from_context(
        ["Łódź ✓ 日本語\t\t🙂 <|im_end|>", "naïve   “quotes”, don't\n"], "Où?"
    )
    there = ServerSurrogate(served, model="other-name", tokenizer="smollm2")
    full = np.ones((1, 2), dtype=bool)
    ours = prepare(there, prompt, "document", "→ 日本 é.").score(full, kl=False)
    theirs = prepare(local, prompt, "document", "→ 日本 é.").score(full, kl=False)
    np.testing.assert_allclose(ours.logprob, theirs.logprob, atol=NEAR, rtol=0)


def test_what_it_refuses(served: str) -> None:
    unknown = ServerSurrogate(served, model="nobody", tokenizer="smollm2")
    with pytest.raises(ModelError, match=r"answered 404: .*`nobody` does not exist.*name \('nobody'\)"):
        prepare(unknown, RAG, "document", ANSWER)
    locked = ServerSurrogate(served, model="smollm2", api_key="sk-wrong-0123456789")
    with pytest.raises(ModelError, match=r"refused the key \(401\). Check ROPELIME_SERVER_KEY"):
        prepare(locked, RAG, "document", ANSWER)
    other = ServerSurrogate(served, model="smollm2", tokenizer=byte_level("chatml"))
    with pytest.raises(ModelError, match="is not that of smollm2 at"):
        prepare(other, RAG, "document", ANSWER)


def test_its_window(served: str) -> None:
    """A prompt that fills it is read, the next longer one is refused by us, and rightly."""
    there = ServerSurrogate(served, model="smollm2")

    def prompt(words: int) -> prompts.Prompt:
        return prompts.from_context(["Hello.", "a" + " a" * words], "Why?")

    short = prepare(there, prompt(10), "document", "Yes.")
    more = WINDOW - 1 - len(short.tokenized.ids) - len(short.tokenized.output_ids)
    full = prepare(there, prompt(10 + more), "document", "Yes.").score(np.ones((1, 2), bool), kl=False)
    assert full.tokens.tolist() == [WINDOW - 1]
    with pytest.raises(InputError, match=rf"smollm2 can read {WINDOW - 1} in all"):
        prepare(there, prompt(11 + more), "document", "Yes.")
    with Proxy(served).running() as blind:  # where nobody says how long it may be
        unsure = ServerSurrogate(blind.url, model="smollm2")
        with pytest.raises(ModelError, match=rf"answered 400: .*It was sent {WINDOW} tokens: shorten"):
            prepare(unsure, prompt(11 + more), "document", "Yes.")
        assert len(blind.seen) == 1


def test_faults_on_the_way_to_it(served: str, local: Any) -> None:
    how = {**EXPLAIN, "features": "document"}
    with Proxy(served).running() as proxy:
        proxy.faults = [busy(429), busy(503), cut]
        ours = ropelime.explain(**how, surrogate=ServerSurrogate(proxy.url, model="smollm2", retries=3))
        assert len(proxy.seen) == ours.cost.masks + 3
        assert set(proxy.keys) == {SECRET}
        with pytest.raises(ModelError, match="Use preset='faithful'"):
            ropelime.explain(**{**how, "preset": "evidence"}, surrogate=f"{proxy.url}#smollm2")
        assert len(proxy.seen) == ours.cost.masks + 3, "nothing was sent"
    theirs = ropelime.explain(**how, surrogate=local)
    np.testing.assert_allclose(ours.weights, theirs.weights, atol=NEAR, rtol=0)


def test_the_command(served: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "prompt.txt").write_text(" ".join(CHUNKS[:2]))
    command = ["explain", "--prompt", f"@{tmp_path / 'prompt.txt'}", "--output", ANSWER]
    command += ["--surrogate", f"{served}#smollm2", "--preset", "faithful", "--budget", "8"]
    assert main([*command, "--json", str(tmp_path / "why.json")]) == 0
    assert "Oda Kelm" in capsys.readouterr().out
    assert SECRET not in (tmp_path / "why.json").read_text()
