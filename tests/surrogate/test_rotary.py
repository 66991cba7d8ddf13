"""How a model turns its keys is measured on the model, and the measurement is right."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from conftest import ROTARY, Tiny, byte_level, tiny_model
from ropelime.errors import ModelError
from ropelime.method import rope
from ropelime.method.rope import Pairing
from ropelime.surrogate import rotary
from ropelime.surrogate.local import LocalSurrogate

IDS = torch.arange(20, 60)[None]

# Frequencies as the papers of these scalings give them; the rotation stays one of half planes.
SCALED: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
}


def keys_at(model: Any, layer: int, shift: int = 0, ids: torch.Tensor = IDS) -> torch.Tensor:
    """(q, heads, d) keys of a layer with all positions shifted, from a plain cache."""
    cache = DynamicCache()
    with torch.no_grad():
        model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            position_ids=torch.arange(shift, shift + ids.shape[1])[None],
            past_key_values=cache,
            use_cache=True,
        )
    keys: torch.Tensor = cache.layers[layer].keys
    return keys[0].transpose(0, 1)


def surrogate(model: Any) -> LocalSurrogate:
    return LocalSurrogate(model, byte_level("chatml"), name="tiny")


def assert_rotation(found: rotary.Rotation | None, tiny: Tiny) -> None:
    assert found is not None
    assert (found.layer, found.pairing, found.offset) == (tiny.layer, tiny.pairing, 0)
    torch.testing.assert_close(found.frequencies, tiny.frequencies)


@pytest.mark.parametrize("name", ROTARY)
def test_pairing_offset_and_frequencies_are_found(name: str) -> None:
    tiny = tiny_model(name)
    before, after = (keys_at(tiny.model, tiny.layer, shift) for shift in (0, 1))
    assert_rotation(rotary.measure(before, after, tiny.model, tiny.layer), tiny)
    assert_rotation(surrogate(tiny.model).rotation(tiny.layer), tiny)


@pytest.mark.parametrize("name", ROTARY)
def test_they_are_found_in_bfloat16_too(name: str) -> None:
    tiny = tiny_model(name)
    found = surrogate(deepcopy(tiny.model).to(torch.bfloat16)).rotation(tiny.layer)
    assert (found.pairing, found.offset) == (tiny.pairing, 0)
    torch.testing.assert_close(found.frequencies, tiny.frequencies, rtol=0.01, atol=0)


def test_local_and_global_layers_have_their_own_frequencies() -> None:
    made = surrogate(tiny_model("gemma3").model)
    base = [float(made.rotation(layer).frequencies[1]) ** -4 for layer in range(3)]
    assert base == pytest.approx([1e4, 1e6, 1e4], rel=1e-4)


@pytest.mark.parametrize("kind", SCALED)
def test_scaled_frequencies(kind: str) -> None:
    model = tiny_model("llama").model
    config = deepcopy(model.config)
    # The name of this field depends on the release of transformers; a new config knows both.
    config = type(config)(**{**config.to_dict(), "rope_parameters": None, "rope_scaling": SCALED[kind]})
    scaled = type(model)(config).eval()
    scaled.load_state_dict(model.state_dict())
    found = surrogate(scaled).rotation(1)
    assert found.pairing == "half"
    assert float(found.frequencies[-1]) < float(tiny_model("llama").frequencies[-1])
    turned = rope.turn(*found.key_planes(keys_at(scaled, 1)), 7 * found.frequencies)
    for expected, got in zip(found.key_planes(keys_at(scaled, 1, 7)), turned, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)


def test_rotated_dimensions_at_the_end_of_a_head() -> None:
    """DeepSeek puts them there; a made-up pair of keys stands for it."""
    model = tiny_model("phi").model  # its frequencies: 4 of 8 dimensions
    before = torch.randn(1, 2, 16, 8, generator=torch.manual_seed(0))
    tail = rope.turn(*rope.planes(before[..., 4:], "half"), tiny_model("phi").frequencies)
    after = torch.cat([before[..., :4], *tail], -1)
    found = rotary.measure(before, after, model, 3)
    assert found is not None
    assert (found.layer, found.pairing, found.offset) == (3, "half", 4)


@pytest.mark.parametrize("name", ROTARY)
def test_a_wrong_pairing_is_far_off(name: str) -> None:
    tiny = tiny_model(name)
    before, after = (keys_at(tiny.model, tiny.layer, shift) for shift in (0, 1))

    def error(pairing: Pairing) -> float:
        rotation = rotary.Rotation(tiny.layer, pairing, 0, tiny.frequencies)
        start, end = (torch.stack(rotation.key_planes(keys)) for keys in (before, after))
        expected = torch.stack(rope.turn(start[0], start[1], tiny.frequencies))
        return float((expected - end).norm() / (start - end).norm())

    other: Pairing = "interleaved" if tiny.pairing == "half" else "half"
    assert error(tiny.pairing) < 1e-3
    assert error(other) > 0.5


# Models and layers that do not rotate.


def test_a_model_without_rotations() -> None:
    model = tiny_model("gpt2").model
    assert rotary.candidates(model) == []
    with pytest.raises(ModelError, match=r"tiny has no rotary.*hamming.*cosine.*uniform"):
        surrogate(model).rotation(0.5)


def test_a_layer_without_rotations() -> None:
    """SmolLM3 leaves some layers unrotated; here only layer 1 of 0, 1, 2 turns its keys."""
    model = tiny_model("smollm3").model
    made = surrogate(model)
    assert rotary.measure(keys_at(model, 0), keys_at(model, 0, 1), model, 0) is None
    for layer in (0, 2, -1):
        with pytest.raises(ModelError, match=f"Layer {layer % 3} of tiny does not rotate.*hamming"):
            made.rotation(layer)
    assert [made.rotation(part).layer for part in (0.0, 0.5, 0.9)] == [1, 1, 1]


def test_keys_that_change_in_another_way_are_not_taken_for_a_rotation() -> None:
    model = tiny_model("llama").model
    before, after = torch.randn(2, 1, 2, 16, 8, generator=torch.manual_seed(0))
    assert rotary.measure(before, after, model, 0) is None
    assert rotary.measure(before, before, model, 0) is None


# What the rotation is for: relative phases do not depend on where the prompt stands.

SPANS = [range(2, 9), range(9, 12), range(12, 30), range(33, 40)]


def distances(
    rotation: rotary.Rotation, model: Any, shifts: tuple[int, int], phase: Callable[..., Any]
) -> np.ndarray[Any, Any]:
    """Polar distances between the spans of a sequence and of itself, each shifted by so much."""
    spans: list[Any] = []
    for shift in shifts:
        a, b = rotation.key_planes(keys_at(model, rotation.layer, shift))
        means = []
        for span in SPANS:
            turned = rope.turn(a[span], b[span], -phase(span[0] + shift) * rotation.frequencies)
            together = np.zeros(len(span), dtype=int)
            means.append(rope.span_means(turned[0].flatten(1), turned[1].flatten(1), together, 1))
        spans += [torch.cat(part) for part in zip(*means, strict=True)]
    r_x, theta_x, r_y, theta_y = spans
    return np.asarray(rope.polar_distances(r_x, theta_x, r_y, theta_y))


def relative(position: int) -> int:
    return position


def raw(position: int) -> int:
    return 0


@pytest.mark.parametrize("name", ROTARY)
def test_relative_phases_do_not_change_under_a_global_shift(name: str) -> None:
    tiny = tiny_model(name)
    rotation = surrogate(tiny.model).rotation(tiny.layer)
    here = distances(rotation, tiny.model, (0, 0), relative)
    assert np.diag(here).max() < 1e-3  # identical prompts
    for shift in (1, 17, 200):
        np.testing.assert_allclose(
            distances(rotation, tiny.model, (0, shift), relative), here, atol=5e-3
        )


@pytest.mark.parametrize("name", ROTARY)
def test_raw_phases_and_a_wrong_pairing_do_change(name: str) -> None:
    tiny = tiny_model(name)
    right = surrogate(tiny.model).rotation(tiny.layer)
    other: Pairing = "interleaved" if tiny.pairing == "half" else "half"
    wrong = rotary.Rotation(right.layer, other, right.offset, right.frequencies)
    for rotation, phase in ((right, raw), (wrong, relative)):
        assert np.diag(distances(rotation, tiny.model, (0, 17), phase)).min() > 0.1
