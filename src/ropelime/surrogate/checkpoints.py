"""Model files become a model and its tokenizer, by transformers; quantised checkpoints too."""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ropelime.errors import ModelError, first_line

Say = Callable[[str], None]  # takes a line for each step that takes a while

LOADING = threading.RLock()  # redirections and what transformers sets while it loads are the process's
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]
_PICKLES = ["*.bin", "*.pt", "*.pth"]  # weights that run code when they are read, if their author wants
_NO_CODE = {"trust_remote_code": False}  # nor does transformers ask whether to run it

# The packages that transformers needs to read a quantised checkpoint, by its method: package, module.
_READERS = {
    "awq": {"gptqmodel": "gptqmodel"},
    "bitsandbytes": {"bitsandbytes": "bitsandbytes"},
    "gptq": {"gptqmodel": "gptqmodel", "optimum": "optimum"},
    "torchao": {"torchao": "torchao"},
}


def fetch_from_hub(hub: str, *, allow_pickle: bool = False) -> Path:
    """Download a model into the hub's own cache, with its progress bars; quick if it is there."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(hub, allow_patterns=_HUB_FILES))
        if allow_pickle and not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(hub, allow_patterns=[*_HUB_FILES, "*.bin"]))
    except Exception as error:
        raise _load_error(hub, error) from error
    if not allow_pickle and not any(folder.glob("*.safetensors")):
        raise _pickled(hub)
    return folder


def _check_local(folder: Path) -> None:
    """Refuse a directory whose weights can run code when they are read."""
    pickles = sorted(file.name for pattern in _PICKLES for file in folder.glob(pattern))
    if pickles and not any(folder.glob("*.safetensors")):
        raise _pickled(str(folder), f": its weights are in {pickles[0]}")


def _pickled(shown: str, found: str = "") -> ModelError:
    return ModelError(
        f"{shown} has no .safetensors file{found}. Other formats can run code of a model's author when "
        "they are read. Use a model with safetensors, or a .gguf file; or, if you trust the author, "
        "pass allow_pickle=True to load_surrogate (--allow-pickle)."
    )


def load_files(
    folder: str, gguf: str | None, *, dtype: str, device: str, allow_pickle: bool = False
) -> tuple[Any, Any]:
    """Load a model and its tokenizer out of a directory, a GGUF file in it, or a hub id.

    A quantised checkpoint keeps its own dtype. The device ``"auto"`` is all that is there. Code that
    comes with a model is never run, and weights must be safetensors unless ``allow_pickle``.
    """
    import torch
    import transformers

    options: dict[str, Any] = {"dtype": getattr(torch, dtype)}
    weights = {} if gguf or allow_pickle else {"use_safetensors": True}
    if weights and Path(folder).is_dir():
        _check_local(Path(folder))
    extra = {"gguf_file": gguf} if gguf else {}
    if gguf and hasattr(transformers, "GgufConfig"):  # newer releases keep the blocks packed, and slow
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    shown = f"{folder}/{gguf}" if gguf else folder
    tokenizer = load_tokenizer(folder, gguf)
    quantised: Any = None
    try:
        with quietly():
            if not gguf:
                config = transformers.AutoConfig.from_pretrained(folder, **_NO_CODE)
                _check_kernels(config, shown)
                quantised = getattr(config, "quantization_config", None)
                if quantised is not None:
                    options = {"dtype": "auto", "device_map": device}
                if getattr(config, "use_mamba_kernels", False) and find_spec("mamba_ssm") is None:
                    options["use_mamba_kernels"] = False  # older releases refuse to do without
            if device == "auto":
                options["device_map"] = device
            model, report = transformers.AutoModelForCausalLM.from_pretrained(
                folder, **extra, **options, **weights, **_NO_CODE, output_loading_info=True
            )
    except ModelError:
        raise
    except Exception as error:
        raise _load_error(shown, error, quantised) from error
    if missing := sorted(report["missing_keys"]):  # transformers would fill them with random numbers
        raise ModelError(
            f"{shown} lacks {len(missing)} of the model's weights, the first {missing[0]!r}. Fetch it "
            "again; the model must be a causal language model of transformers."
        )
    # What accelerate has placed must stay there, and some quantised weights cannot be moved at all.
    return model if "device_map" in options else model.to(device), tokenizer


def load_tokenizer(folder: str, gguf: str | None) -> Any:
    """Load a tokenizer by itself; of a model on the hub nothing else is fetched."""
    import transformers

    extra = {"gguf_file": gguf} if gguf else {}
    try:
        with quietly():
            return transformers.AutoTokenizer.from_pretrained(folder, **extra, **_NO_CODE)
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise _load_error(f"{folder}/{gguf}" if gguf else folder, error) from error


def is_panic(error: BaseException) -> bool:
    """Whether a library in Rust has panicked: its error is not an Exception and cannot be imported."""
    return type(error).__name__ == "PanicException"


def _check_kernels(config: Any, shown: str) -> None:
    """Refuse a config that names code on the hub for its attention or its experts."""
    for part in (config, config.get_text_config()):
        for name in ("_attn_implementation", "_experts_implementation"):
            if "/" in str(getattr(part, name, None)):
                raise _needs_code(shown, f"its config asks for {getattr(part, name)}")


def _needs_code(shown: str, why: str) -> ModelError:
    return ModelError(
        f"{shown} needs code that does not come with transformers ({why}), and code from elsewhere is "
        "never run. Use a model of an architecture that your transformers has; a newer release may "
        "have this one: pip install -U transformers"
    )


def transformers_release() -> str:
    """The major release of transformers that is installed."""
    return version("transformers").split(".")[0]


def method_of(quantised: Any) -> str:
    """How a checkpoint was quantised, by what its config says of it."""
    known = quantised if isinstance(quantised, dict) else quantised.to_dict()
    method = known.get("quant_method", "unknown")
    return str(getattr(method, "value", method))  # an enumeration once it is loaded


def _load_error(shown: str, error: BaseException, quantised: Any = None) -> ModelError:
    """What is missing, or damaged, or cannot be reached."""
    first = first_line(error, 300)
    if "trust_remote_code" in str(error):
        return _needs_code(shown, "it brings its own")
    method = "" if quantised is None else method_of(quantised)
    readers = _READERS.get(method, {})
    if method == "awq" and transformers_release() == "4":
        readers = {"autoawq": "awq"}
    missing = [package for package, module in readers.items() if find_spec(module) is None]
    cure = ""
    if missing:
        cure = f"which transformers reads with {' and '.join(readers)}: pip install {' '.join(missing)}"
    elif readers and isinstance(error, ImportError):
        cure = (
            f"and what is installed to read it does not fit together ({first}): "
            f"pip install -U transformers {' '.join(readers)}"
        )
    if cure:
        instead = "Or use the same model unquantised, or as a .gguf file."
        return ModelError(f"{shown} is quantised by {method}, {cure}. {instead}")
    if "connect" in str(error).lower() or "offline" in str(error).lower():
        return ModelError(
            f"{shown} is not on this machine and the hub could not be reached ({first}). Connect once "
            f"to fetch it, pass a local directory or .gguf file, or use the surrogate 'smollm2'."
        )
    return ModelError(
        f"{shown} could not be loaded: {first or type(error).__name__}. If a file is damaged or "
        "incomplete, fetch it again; the model must be a causal language model of transformers."
    )


@contextmanager
def quietly() -> Iterator[None]:
    """Keep progress bars, advice and banners off the terminal while transformers loads."""
    from transformers.utils import logging as theirs

    with LOADING, without_warnings():
        verbosity, bars = theirs.get_verbosity(), theirs.is_progress_bar_enabled()
        theirs.set_verbosity_error()
        theirs.disable_progress_bar()
        try:
            # The GGUF reader's bar heeds no setting, and gptqmodel writes its banner where results go.
            with redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
                yield
        finally:
            theirs.set_verbosity(verbosity)
            if bars:
                theirs.enable_progress_bar()


@contextmanager
def without_warnings() -> Iterator[None]:
    """Keep back what libraries log when transformers imports them, such as torchao, used or not."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        yield
    finally:
        logging.disable(before)
