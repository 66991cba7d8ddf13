"""The matrix rate of a machine, and the seconds, memory and tokens of a run."""

from __future__ import annotations

import gc
import os
import platform
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.surrogate.logprobs import distinct
from ropelime.surrogate.packing import Packer
from ropelime.surrogate.sequences import MaskedSequences
from ropelime.typing import Masks

_MATRIX = {"cuda": 8192}  # rows of the square matrices whose product is timed
_CPU_MATRIX = 2048
_AT_LEAST = 0.3  # seconds of products, so that the clock has settled
_EVERY = 0.005  # seconds between two samples of the memory


@dataclass(frozen=True)
class Size:
    """The sizes that determine the operations of a forward pass.

    Attributes:
        linear: Weights of all linear layers, without the embedding and without the head.
        head: Weights of the head.
        layers: Layers with attention.
        width: Query heads times their dimensions.
    """

    linear: int
    head: int
    layers: int
    width: int

    @classmethod
    def of(cls, model: Any) -> Size:
        """Count the weights of a model."""
        config = model.config.get_text_config()
        heads = int(config.num_attention_heads)
        head = model.get_output_embeddings()
        linear = sum(
            _weights(module)
            for module in model.modules()
            if module is not head and not isinstance(module, torch.nn.Embedding)
        )
        size = getattr(config, "head_dim", None) or config.hidden_size // heads
        return cls(linear, head.weight.numel(), int(config.num_hidden_layers), heads * int(size))

    def operations(self, lengths: Sequence[int], outputs: int) -> float:
        """Operations of scoring without prefix sharing and without padding.

        Args:
            lengths: Tokens of each masked prompt with the answer.
            outputs: Tokens of the answer. The last of them predicts nothing and is not run.
        """
        run = [length - 1 for length in lengths]
        return self.work(sum(run), sum(n**2 for n in run) / 2, outputs * len(run))

    def work(self, tokens: int, pairs: float, scoring: int) -> float:
        """Operations of the tokens that are run.

        Args:
            tokens: Tokens that go through the layers.
            pairs: Pairs of such a token and a key that it attends to.
            scoring: Tokens that logits are computed for.
        """
        attention = self.layers * 4 * self.width * pairs
        return 2.0 * self.linear * tokens + attention + 2.0 * self.head * scoring


def _weights(module: Any) -> int:
    """Weights of a linear layer, however they are packed; 0 for anything else."""
    if hasattr(module, "in_features") and hasattr(module, "out_features"):
        return int(module.in_features * module.out_features)
    weight: Any = getattr(module, "weight", None)  # GPT-2 has its own kind
    return int(weight.numel()) if getattr(weight, "ndim", 0) == 2 else 0


@dataclass(frozen=True)
class Measured:
    """One run.

    Attributes:
        seconds: How long it took.
        processor: CPU seconds of all threads of the process; far less than seconds times threads
            means that other processes were using the machine.
        memory: Peak memory above the level before the run, in bytes.
        calls: Sequences and tokens of a sequence, for each forward pass.
    """

    seconds: float
    processor: float
    memory: int
    calls: tuple[tuple[int, int], ...]

    @property
    def tokens(self) -> int:
        """Tokens that went through the model, with padding."""
        return sum(rows * length for rows, length in self.calls)


class Hardware:
    """The device of a surrogate."""

    def __init__(self, surrogate: LocalSurrogate) -> None:
        """Measure the device of this model, in its dtype."""
        self._model, self._device = surrogate.model, surrogate.device
        self._dtype = surrogate.model.dtype

    @property
    def kind(self) -> str:
        """``"cpu"``, ``"cuda"`` or ``"mps"``."""
        return self._device.type

    def describe(self) -> dict[str, Any]:
        """CPU, cores, threads and GPU."""
        facts: dict[str, Any] = {
            "cpu": cpu(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "tiles": _has_amx(),
        }
        if self.kind == "cuda":
            facts["gpu"] = torch.cuda.get_device_name(self._device)
        return facts

    def rate(self) -> float:
        """Operations per second in the product of two square matrices in the model's dtype."""
        size = _MATRIX.get(self.kind, _CPU_MATRIX)
        a, b = (torch.randn(size, size, device=self._device).to(self._dtype) for _ in range(2))
        a @ b
        times: list[float] = []
        while sum(times) < _AT_LEAST:
            self._wait()
            start = time.perf_counter()
            a @ b
            self._wait()
            times.append(time.perf_counter() - start)
        return 2 * size**3 / statistics.median(times)

    def measure(self, run: Callable[[], object]) -> Measured:
        """Run something once, and measure it."""
        with self._memory() as peak, _calls(self._model) as calls:
            self._wait()
            start, busy = time.perf_counter(), time.process_time()
            run()
            self._wait()
            seconds, processor = time.perf_counter() - start, time.process_time() - busy
        return Measured(seconds, processor, peak(), tuple(calls))

    def _wait(self) -> None:
        if self.kind == "cuda":
            torch.cuda.synchronize(self._device)

    @contextmanager
    def _memory(self) -> Iterator[Callable[[], int]]:
        """Peak memory above the level at the beginning, in bytes."""
        gc.collect()
        if self.kind == "cuda":
            before = torch.cuda.memory_allocated(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
            yield lambda: torch.cuda.max_memory_allocated(self._device) - before
            return
        before = highest = resident()
        done = threading.Event()

        def look() -> None:
            nonlocal highest
            while not done.wait(_EVERY):
                highest = max(highest, resident())

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield lambda: max(highest, resident()) - before
        finally:
            done.set()
            watcher.join()


@contextmanager
def _calls(model: Any) -> Iterator[list[tuple[int, int]]]:
    """Record the shape of every forward pass at the embedding: some peers bypass the model's hooks."""
    seen: list[tuple[int, int]] = []

    def look(_: Any, arguments: tuple[torch.Tensor, ...]) -> None:
        rows, length = arguments[0].shape
        seen.append((rows, length))

    handle = model.get_input_embeddings().register_forward_pre_hook(look)
    try:
        yield seen
    finally:
        handle.remove()


def cpu() -> str:
    """The name of this machine's CPU."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _has_amx() -> bool:
    """Whether the CPU multiplies tiles of bfloat16, as far as torch knows."""
    probe = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return bool(probe and probe())


def resident() -> int:
    """Memory of this process, in bytes."""
    import psutil  # comes with accelerate

    return int(psutil.Process().memory_info().rss)


def packed(scorer: LocalScorer, masks: Masks, *, cached: bool) -> Packer:
    """How scoring these masks is packed: says how many tokens, and pairs of query and key, are run."""
    return Packer(MaskedSequences(scorer.tokenized, distinct(masks)[0], cached=cached))
