"""A name, a path, an address, a function or an object becomes a surrogate, loaded once."""

from __future__ import annotations

import gc
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from ropelime.errors import InputError, first_line
from ropelime.surrogate.base import FunctionSurrogate, Surrogate
from ropelime.surrogate.catalog import locate
from ropelime.surrogate.checkpoints import (
    LOADING,
    Say,
    fetch_from_hub,
    load_files,
    without_warnings,
)
from ropelime.surrogate.embedded import cache_folder
from ropelime.surrogate.remote import ServerSurrogate, is_served

_DTYPES = ("float32", "bfloat16", "float16")
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container


def resolve_surrogate(spec: object, *, say: Say | None = None) -> Surrogate:
    """A surrogate by name, path or address, as a function of masks, or as an object."""
    if isinstance(spec, (str, os.PathLike)):
        return load_surrogate(os.fspath(spec), say=say)
    if isinstance(spec, Surrogate):
        return spec
    if callable(spec):
        return FunctionSurrogate(spec)
    raise InputError(
        "surrogate must be a name, a path, an address, a function of masks or an instance of a "
        f"subclass of ropelime.surrogate.Surrogate, not {type(spec).__name__}. See `ropelime models` "
        "for names."
    )


def resolve_surrogates(spec: object, *, say: Say | None = None) -> list[Surrogate]:
    """One surrogate, or each of a list of them."""
    named = spec if isinstance(spec, (list, tuple)) else [spec]
    if not named:
        raise InputError("surrogate=[] names no model; pass at least one.")
    return [resolve_surrogate(one, say=say) for one in named]


def load_surrogate(
    name: str,
    *,
    device: str | None = None,
    dtype: str | None = None,
    allow_pickle: bool = False,
    say: Say | None = None,
) -> Surrogate:
    """Load a model once; the next call with the same arguments gives back the same one.

    Args:
        name: ``"smollm2"`` (embedded), another short name, a directory, a ``.gguf`` file or a hub id;
            or ``"http://HOST:8000/v1#MODEL"`` for a :class:`ServerSurrogate`, which is made anew.
        device: ``"cpu"``, ``"cuda"``, ``"mps"``; the best that is there if not given. ``"auto"``
            spreads a model that needs it over several GPUs, and over the CPU where they are full.
        dtype: ``"float32"``, ``"bfloat16"``, ``"float16"``; chosen for the device if not given.
            A quantised checkpoint keeps its own.
        allow_pickle: Whether weights may be read that are no safetensors or GGUF file. Reading them
            can run code of the model's author.
        say: Called with a line for each step that takes a while.
    """
    if dtype is not None and dtype not in _DTYPES:
        raise InputError(f"Unknown dtype {dtype!r}. Known: {', '.join(_DTYPES)}.")
    if is_served(name):
        if device is not None or dtype is not None:
            raise InputError(
                "A surrogate behind a server runs where and how the server runs it: leave out device "
                "and dtype (--device, --dtype)."
            )
        return ServerSurrogate.of(name, say=say)
    folder, gguf = locate(name, say=say)
    if not Path(folder).is_dir():
        fetch_from_hub(folder, allow_pickle=allow_pickle)
    with LOADING:
        return _loaded(name, folder, gguf, device, dtype, allow_pickle)


@lru_cache(maxsize=2)
def _loaded(
    name: str,
    folder: str,
    gguf: str | None,
    device: str | None,
    dtype: str | None,
    allow_pickle: bool,
) -> Surrogate:
    yield_cores()
    with _without_garbage_collection():
        import torch

        with without_warnings():
            from ropelime.surrogate.local import LocalSurrogate

        torch.set_num_threads(limit_threads(torch.get_num_threads()))
        device = device or best_device()
        if device != "auto":
            check_device(device)
        dtype = dtype or best_dtype(best_device() if device == "auto" else device)
        model, tokenizer = load_files(
            folder, gguf, dtype=dtype, device=device, allow_pickle=allow_pickle
        )
        return LocalSurrogate(model, tokenizer, name=name, checks=cache_folder())


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause garbage collection, which takes a fifth of the time of imports and frees nothing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def yield_cores() -> None:
    """Let idle threads of libgomp yield their core; called before torch is first imported.

    By default they spin while they wait. Where another process needs the cores, they keep the working
    thread from its own, and scoring can take many times as long.
    """
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def limit_threads(threads: int, *, quota: Path = _CPU_QUOTA) -> int:
    """No more threads than the CPU quota of the container grants, unless the user has set a number."""
    if "OMP_NUM_THREADS" in os.environ:
        return threads
    try:
        granted, period = quota.read_text(encoding="ascii").split()
        return max(1, min(threads, math.ceil(int(granted) / int(period))))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return threads


def best_device() -> str:
    """The fastest device that is there."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def check_device(device: str) -> None:
    """Refuse a device that is not there."""
    import torch

    try:
        torch.empty(0, device=device)
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        raise InputError(
            f"Device {device!r} cannot be used on this machine: {first_line(error)}. Known: cpu, cuda, "
            "mps, auto; leave it out for the best that is there."
        ) from None


def best_dtype(device: str) -> str:
    """bfloat16 where the chip multiplies it faster than float32, else float32."""
    import torch

    if device.startswith("cuda"):
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
    probes = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")  # not in every release
    fast = device == "cpu" and any(getattr(torch.cpu, probe, bool)() for probe in probes)
    return "bfloat16" if fast else "float32"
