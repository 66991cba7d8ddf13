"""What a check at loading finds out about models of many architectures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ropelime
from benchmarks.architectures.build import NotBuiltError, build, causal_types
from benchmarks.architectures.compare import Comparison
from benchmarks.architectures.page import examine
from conftest import byte_level, tiny_model
from ropelime import ModelError
from ropelime.surrogate import attention, selfcheck
from ropelime.surrogate.checkpoints import transformers_release
from ropelime.surrogate.engine import Engine, Ways
from ropelime.surrogate.local import LocalSurrogate

PROMPT = "The Louvre is in Paris. It has a picture. Leonardo was the painter. Berlin has museums."
ANSWER = "The painter was Leonardo."

RECURRENT = ["falcon_mamba", "mamba", "mamba2", "rwkv"]
HYBRID = [
    "bamba",
    "falcon_h1",
    "granitemoehybrid",
    "jamba",
    "lfm2",
    "nemotron_h",
    "qwen3_5_text",
    "qwen3_next",
    "recurrent_gemma",
    "zamba2",
]
SPARSE = ["deepseek_v32", "doge", "minimax", "minimax_m3_vl_text"]
# Attends twice; a window of another name; a window in the mask only; positions by the cache; ALiBi.
ODD = ["diffllama", "gpt_neo", "phimoe", "marian", "mbart", "pegasus", "bloom", "openai-gpt", "roberta"]


def tiny(model_type: str, **options: Any) -> Any:
    if model_type not in causal_types():
        pytest.skip(f"this transformers has no {model_type}")
    try:
        return build(model_type, **options)
    except NotBuiltError as error:
        pytest.skip(f"not built: {str(error)[:80]}")


def surrogate(model_type: str, **options: Any) -> LocalSurrogate:
    return LocalSurrogate(tiny(model_type, **options), byte_level(None), name=model_type)


def compared(model_type: str) -> Comparison:
    """The engine against one plain call for each mask."""
    if model_type not in causal_types():
        pytest.skip(f"this transformers has no {model_type}")
    found = examine(model_type)
    if not isinstance(found, Comparison):
        pytest.skip(str(found)[:80])
    assert found.agrees, found
    return found


@pytest.mark.parametrize("model_type", [*SPARSE, *ODD])
def test_scores_are_those_of_plain_calls(model_type: str) -> None:
    compared(model_type)


@pytest.mark.parametrize("model_type", [*RECURRENT, *HYBRID])
def test_recurrent_and_hybrid_models_are_scored_exactly(model_type: str) -> None:
    found = compared(model_type)
    assert not found.packed
    assert not found.cached


@pytest.mark.slow
@pytest.mark.parametrize(
    "model_type", [t for t in causal_types() if t not in (*RECURRENT, *HYBRID, *SPARSE, *ODD)]
)
def test_scores_of_every_other_architecture_are_those_of_plain_calls(model_type: str) -> None:
    compared(model_type)


@pytest.mark.parametrize("model_type", ["lfm2", "mamba", "openai-gpt"])
def test_they_are_explained_with_the_default(model_type: str) -> None:
    e = ropelime.explain(PROMPT, ANSWER, surrogate=surrogate(model_type))
    assert e.config["scoring"] == "exact"
    assert any("no cached scoring" in note for note in e.diagnostics.notes)
    shift = e.signals["shift"]
    assert (shift > 0).all()
    with pytest.raises(ModelError, match=rf"{model_type} \(\w+\) does not let .* scoring='exact'"):
        ropelime.explain(PROMPT, ANSWER, surrogate=surrogate(model_type), scoring="cached")


@pytest.mark.parametrize("model_type", ["lfm2", "falcon_h1"])
def test_the_paper_preset_uses_the_keys_of_a_layer_with_attention(model_type: str) -> None:
    if transformers_release() == "4":
        pytest.skip("the caches of hybrid models do not show their keys")
    e = ropelime.explain(PROMPT, ANSWER, surrogate=surrogate(model_type), preset="paper")
    assert np.abs(e.weights).max() > 0


def test_where_packed_passes_differ_the_explanation_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = ropelime.explain(PROMPT, ANSWER, surrogate=surrogate("llama")).diagnostics.notes
    assert not any("Packed" in note for note in notes)
    own = attention.causal_attention
    monkeypatch.setattr(attention, "causal_attention", lambda *given: 1.1 * own(*given))
    model = surrogate("llama")
    notes = ropelime.explain(PROMPT, ANSWER, surrogate=model).diagnostics.notes
    assert sum("Packed forward passes of the surrogate differ" in note for note in notes) == 1
    assert model.engine.ways.caches  # by the model's own attention


@pytest.mark.parametrize("model_type", ["bert", "electra", "xlm"])
def test_what_is_not_causal_is_refused(model_type: str) -> None:
    with pytest.raises(ModelError, match=rf"{model_type} \(\w+\) is not a causal language model"):
        surrogate(model_type, **({} if model_type == "xlm" else {"is_decoder": False}))


def test_a_model_that_cannot_be_run_is_refused() -> None:
    model = tiny("gpt2")
    model.transformer.h[1].forward = lambda *_, **__: 1 / 0
    with pytest.raises(ModelError, match=r"forward pass over 13 tokens fails \(ZeroDivisionError"):
        LocalSurrogate(model, byte_level(None), name="gpt2")


def test_a_prompt_that_breaks_a_model_is_refused_with_its_name() -> None:
    """Whisper's decoder does not say how many positions it has in the way that others do."""
    model = surrogate("whisper", max_target_positions=20)
    with pytest.raises(ModelError, match=r"whisper \(WhisperForCausalLM\) fails in a forward pass"):
        ropelime.explain(PROMPT, ANSWER, surrogate=model)


@pytest.mark.parametrize(("model_type", "says"), [("bloom", True), ("mamba", True), ("llama", False)])
def test_in_place_without_positions_is_noted(model_type: str, says: bool) -> None:
    model = surrogate(model_type)
    delete, in_place = (
        ropelime.explain(PROMPT, ANSWER, surrogate=model, scoring="exact", ablation=how)
        for how in ("delete", "in-place")
    )
    noted = any("ablation='in-place' does the same" in note for note in in_place.diagnostics.notes)
    assert noted == says
    assert np.allclose(delete.weights, in_place.weights) == says
    assert not any("in-place" in note for note in delete.diagnostics.notes)


def test_the_result_of_a_check_is_kept(tmp_path: Path) -> None:
    """For other processes, by what it depends on; a file that is damaged is not believed."""
    model = tiny("gpt2")
    ways = selfcheck.checked(Engine(model, "gpt2"), folder=tmp_path)
    (kept,) = (tmp_path / "checks").iterdir()
    assert Ways(**json.loads(kept.read_text())) == ways == Ways()
    other = Ways(packs=False, note="kept")
    kept.write_text(json.dumps(vars(other)))
    assert selfcheck.checked(Engine(model, "gpt2"), folder=tmp_path) == ways  # known in this process
    again = tiny("gpt2")
    assert selfcheck.checked(Engine(again, "gpt2"), folder=tmp_path) == other
    assert selfcheck.checked(Engine(tiny("gpt2", n_head=2), "gpt2"), folder=tmp_path) == ways
    kept.write_text("{")
    assert selfcheck.checked(Engine(tiny("gpt2"), "gpt2"), folder=tmp_path) == ways


def test_where_nothing_can_be_kept_the_check_is_run(tmp_path: Path) -> None:
    (tmp_path / "checks").write_text("a file, and not a folder")
    assert selfcheck.checked(Engine(tiny("gpt2"), "gpt2"), folder=tmp_path) == Ways()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt2"])
def test_rounding_is_no_difference(name: str, dtype: torch.dtype) -> None:
    options = {"sliding_window": 512} if name == "gemma3" else {}
    model = tiny_model(name, **options, hidden_dropout=0.0).model.to(dtype)  # a model of its own
    assert selfcheck.check(Engine(model, name)) == Ways()


def test_the_check_computes_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large model: a few layers, a part of the vocabulary, in one thread; it is left as it was."""
    model = tiny("llama", num_hidden_layers=6, vocab_size=5000)
    head, threads = model.get_output_embeddings(), torch.get_num_threads()
    weight, seen = head.weight, set()

    def look(_: Any, given: tuple[torch.Tensor, ...], logits: torch.Tensor) -> None:
        seen.add((len(model.model.layers), logits.shape[-1], torch.get_num_threads()))

    handle = head.register_forward_hook(look)
    assert selfcheck.check(Engine(model, "llama")) == Ways()
    assert seen == {(2, 1000, 1)}
    assert head.weight is weight
    assert torch.get_num_threads() == threads
    own = attention.causal_attention
    monkeypatch.setattr(attention, "causal_attention", lambda *given: 1.1 * own(*given))
    assert not selfcheck.check(Engine(model, "llama")).packs
    assert (6, 5000, 1) in seen  # what the first layers have shown is looked at with all
    handle.remove()
