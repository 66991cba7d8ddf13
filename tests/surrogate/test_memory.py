"""Memory: bounded by the prompt and not by the number of masks, and what happens when it runs out."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ropelime import ModelError
from ropelime.method.rope import RopeSpace
from ropelime.method.scores import Scores
from ropelime.surrogate import Ablation
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.surrogate.memory import BatchLimits
from ropelime.surrogate.tokens import TokenizedPrompt, TokenSequence
from ropelime.text import prompt as prompts
from ropelime.typing import Masks
from scoring import prepare

Make = Callable[..., LocalSurrogate]
SENTENCES = 24
PROMPT = prompts.from_text(" ".join(f"Sentence {i} says what {i} is." for i in range(SENTENCES)))


class Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors that are alive, each storage once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._made: list[weakref.ref[torch.Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self._made += [weakref.ref(t) for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        alive = [(ref, t) for ref in self._made if (t := ref()) is not None]
        self._made = [ref for ref, _ in alive]
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for _, t in alive}
        self.peak = max(self.peak, sum(storages.values()))
        return out


def draw(count: int) -> Masks:
    masks = np.random.default_rng(0).random((count, SENTENCES)) < 0.5
    masks[0] = True
    return masks


def scorer(surrogate: LocalSurrogate) -> LocalScorer:
    return prepare(surrogate, PROMPT, "sentence", "what it is", ablation=Ablation())


@pytest.mark.parametrize("cached", [False, True])
def test_memory_does_not_grow_with_the_number_of_masks(tiny: Make, cached: bool) -> None:
    made = scorer(tiny("llama"))
    made.score(draw(2), kl=True, spaces=[RopeSpace()], cached=cached)  # what is measured once and kept
    peaks = []
    for count in (48, 96, 384):  # fewer would not fill a chunk
        gc.collect()
        with Live() as live:
            made.score(draw(count), kl=True, spaces=[RopeSpace()], cached=cached, batch_tokens=256)
        peaks.append(live.peak)
    assert peaks[0] > 100_000, "it sees the tensors"
    assert max(peaks) < 1.2 * min(peaks)


def test_a_longer_prompt_takes_more(tiny: Make) -> None:
    """The measure itself is not blind."""
    surrogate, peaks = tiny("llama"), []
    for words in (4, 80):
        prompt = prompts.from_text("One is. " + "and so on " * words + ". Two is.")
        made = prepare(surrogate, prompt, "sentence", "what", ablation=Ablation())
        with Live() as live:
            made.score(np.ones((1, made.tokenized.n_features), dtype=bool), kl=True)
        peaks.append(live.peak)
    assert peaks[1] > 2 * peaks[0]


def test_sequences_are_built_when_they_are_needed(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    most, whole = 0, TokenizedPrompt.sequence

    class Seen(TokenSequence):  # a frozen dataclass compares by value; a set needs identity
        __hash__ = object.__hash__
        __eq__ = object.__eq__

    def sequence(self: TokenizedPrompt, index: int, mask: Masks) -> TokenSequence:
        nonlocal most
        made = Seen(**vars(whole(self, index, mask)))
        alive.add(made)
        most = max(most, len(alive))
        return made

    monkeypatch.setattr(TokenizedPrompt, "sequence", sequence)
    scorer(tiny("llama")).score(draw(200), kl=False, batch_tokens=256)
    assert 0 < most < 20


@contextmanager
def small_memory(surrogate: LocalSurrogate, tokens: int) -> Iterator[list[int]]:
    """A model that has no memory for more than so many tokens at once."""
    seen: list[int] = []

    def refuse(_: Any, __: Any, keywords: dict[str, Any]) -> None:
        seen.append(keywords["input_ids"].shape[1])
        if seen[-1] > tokens:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    handle = surrogate.model.register_forward_pre_hook(refuse, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()


def read(surrogate: LocalSurrogate, *, cached: bool = False) -> Scores:
    return scorer(surrogate).score(draw(12), kl=True, spaces=[RopeSpace(space="hidden")], cached=cached)


@pytest.mark.parametrize("cached", [False, True])
def test_running_out_of_memory_makes_chunks_smaller(tiny: Make, cached: bool) -> None:
    surrogate = tiny("llama")
    plain = read(surrogate, cached=cached)
    with small_memory(surrogate, 200) as seen:
        small = read(surrogate, cached=cached)
    assert max(seen) > 200
    assert small.note == "Memory ran out, so no more than 128 tokens were run at once."
    assert plain.note == ""
    np.testing.assert_allclose(small.logprob, plain.logprob, atol=1e-5)
    assert small.kl is not None
    assert plain.kl is not None
    np.testing.assert_allclose(small.kl, plain.kl, atol=1e-5)
    space = RopeSpace(space="hidden")
    np.testing.assert_allclose(small.distances[space], plain.distances[space], atol=1e-4)
    assert small.tokens_run == plain.tokens_run


def test_what_a_failed_run_took_is_free_before_the_next(
    tiny: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    surrogate, made = tiny("llama"), weakref.WeakSet[Any]()
    alive: list[int] = []
    shrink = BatchLimits.shrink

    def compute(_: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        states = arguments[0] if arguments else keywords["hidden_states"]
        held = states * 2  # a local variable, as the layers of a model have many
        made.add(held)
        if held.shape[1] > 300:
            raise RuntimeError("CUDA out of memory.")

    def count(self: BatchLimits, name: str, error: BaseException) -> str:
        alive.append(len(made))
        return shrink(self, name, error)

    monkeypatch.setattr(BatchLimits, "shrink", count)
    layer = surrogate.model.model.layers[1]
    handle = layer.register_forward_pre_hook(compute, with_kwargs=True)
    try:
        assert scorer(surrogate).score(draw(12), kl=False).note
    finally:
        handle.remove()
    assert set(alive) == {0}


def test_memory_that_is_never_enough(tiny: Make) -> None:
    surrogate = tiny("llama")
    surrogate.rotation(0.5)  # measured on a few tokens, before memory is short
    with (
        small_memory(surrogate, 10),
        pytest.raises(
            ModelError, match="llama does not fit into the memory of cpu with even 64 tokens"
        ),
    ):
        read(surrogate)
    assert read(surrogate).note == "", "and the next one runs as before"


def test_memory_that_is_not_enough_for_one_prompt_at_a_time(tiny: Make) -> None:
    surrogate = tiny("bloom")
    with (
        small_memory(surrogate, 100),
        pytest.raises(ModelError, match="bloom runs one masked prompt at a time, and the longest does"),
    ):
        scorer(surrogate).score(draw(3), kl=False)


def test_other_errors_are_not_taken_for_it(tiny: Make) -> None:
    surrogate = tiny("llama")

    def fail(*_: Any) -> None:
        raise RuntimeError("The size of tensor a must match the size of tensor b")

    handle = surrogate.model.register_forward_pre_hook(fail)
    try:
        with pytest.raises(RuntimeError, match="The size of tensor a"):
            scorer(surrogate).score(draw(3), kl=False)
    finally:
        handle.remove()


class Gpus:
    """Stands in for a machine with several GPUs: what is free on each, and what a run takes of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: list[int]) -> None:
        self.free, self.peaks, self.allocated = free, [0] * len(free), [0] * len(free)
        calls: dict[str, Callable[[torch.device], Any]] = {
            "mem_get_info": lambda gpu: (self.free[gpu.index], 1 << 40),
            "memory_reserved": lambda gpu: self.allocated[gpu.index],
            "memory_allocated": lambda gpu: self.allocated[gpu.index],
            "max_memory_allocated": lambda gpu: self.peaks[gpu.index],
            "reset_peak_memory_stats": lambda gpu: None,
        }
        for name, call in calls.items():
            monkeypatch.setattr(torch.cuda, name, call)

    def model(self, *, first: torch.device | None = None, hook: Any = None) -> Any:
        weights = [SimpleNamespace(device=torch.device("cuda", i)) for i in range(len(self.free))]
        weights.append(SimpleNamespace(device=torch.device("cpu")))  # of a layer that is offloaded
        text = SimpleNamespace(
            hidden_size=100, intermediate_size=300, num_attention_heads=4, num_key_value_heads=2
        )
        embedding = SimpleNamespace(
            weight=SimpleNamespace(device=first) if first else weights[0], _hf_hook=hook
        )
        return SimpleNamespace(
            config=SimpleNamespace(get_text_config=lambda: text),
            dtype=torch.bfloat16,
            parameters=lambda: iter(weights),
            get_input_embeddings=lambda: embedding,
        )


@pytest.mark.parametrize("free", [[1 << 40, 20_000_000], [20_000_000, 1 << 40], [20_000_000]])
def test_the_fullest_gpu_decides(monkeypatch: pytest.MonkeyPatch, free: list[int]) -> None:
    gpus = Gpus(monkeypatch, free)
    limits = BatchLimits(gpus.model(), None)
    assert limits.tokens == int(0.7 * 20_000_000 / (16 * 400 * 2))
    gpus.peaks[free.index(20_000_000)] = 1_000 * 7_000  # a chunk of a thousand tokens took this
    with limits.watch(1_000):
        pass
    assert limits.tokens == 2_000
    with limits.watch(1_000):  # it has been seen once, which is enough
        gpus.free[0] = 0
    assert limits.tokens == 2_000


def test_gpus_decide_wherever_the_embedding_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = Gpus(monkeypatch, [1 << 40, 20_000_000])
    moved = SimpleNamespace(
        execution_device=torch.device("cuda", 0)
    )  # it is used where it does not lie
    for first, hook in ((torch.device("cpu"), None), (torch.device("meta"), moved)):
        limits = BatchLimits(gpus.model(first=first, hook=hook), None)
        assert limits.tokens == int(0.7 * 20_000_000 / (16 * 400 * 2))
        limits.tokens = 64
        with pytest.raises(ModelError, match="memory of cuda:0, cuda:1 with even 64 tokens"):
            limits.shrink("it", RuntimeError("CUDA out of memory."))


def test_no_more_tokens_than_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BatchLimits(Gpus(monkeypatch, [20_000_000]).model(), 77).tokens == 77
