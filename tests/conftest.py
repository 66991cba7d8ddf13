"""Tiny tokenizers and tiny random models, so that tests of the surrogate are quick and offline."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import hypothesis
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from ropelime.method.rope import Pairing
from ropelime.surrogate import loading
from ropelime.surrogate.local import LocalSurrogate

# The same examples in every run, so that a failure can be reproduced.
hypothesis.settings.register_profile("repeatable", derandomize=True)
hypothesis.settings.load_profile("repeatable")

# Tiny models gain nothing from more threads, and busy machines lose a lot. The same holds for the
# servers and commands that tests start.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")

VOCABULARY = 640  # no tiny tokenizer has more tokens
CONTROL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]

CORPUS = [
    "Paris is the capital of France. It lies on the Seine.",
    "Berlin is the capital of Germany. The city has many museums and a long history.",
    "Context:\nThe Louvre is a museum in Paris.\n\nQuestion: Who painted the picture?",
    "<|im_start|>user\nHello there.<|im_end|>\n<|im_start|>assistant\n",
    "The answer is that the painter was Leonardo, and the picture hangs there.",
]

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# As Gemma's: it begins with BOS, trims every message and refuses the role "system".
GEMMA = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>model\n{% endif %}"
)
TEMPLATES = {"chatml": CHATML, "gemma": GEMMA, None: None}


@dataclass(frozen=True)
class Tiny:
    """A tiny random model and what is known about its rotations.

    Attributes:
        model: The model, in float32 on the CPU.
        layer: A layer to read, not the first.
        width: How many dimensions of a head are rotated there; 0 if none.
        pairing: Which of them form a plane.
        theta: Base of the frequencies.
    """

    model: Any
    layer: int
    width: int
    pairing: Pairing
    theta: float

    @property
    def frequencies(self) -> torch.Tensor:
        return self.theta ** (-torch.arange(0, self.width, 2) / self.width)


_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
_GPT = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 512}
_GEMMA = {"head_dim": 8, "query_pre_attn_scalar": 8}
_LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]

# name -> config class, its options, rotated dimensions of a head, pairing, theta
_KINDS: dict[str, tuple[str, dict[str, Any], int, Pairing, float]] = {
    "llama": ("LlamaConfig", _SIZES, 8, "half", 1e4),
    "qwen2": ("Qwen2Config", _SIZES, 8, "half", 1e4),
    "qwen3": ("Qwen3Config", {**_SIZES, "head_dim": 8}, 8, "half", 1e4),
    "gemma": ("GemmaConfig", {**_SIZES, "head_dim": 8}, 8, "half", 1e4),
    "gemma2": ("Gemma2Config", {**_SIZES, **_GEMMA, "sliding_window": 8}, 8, "half", 1e4),
    "gemma3": (
        "Gemma3TextConfig",
        {**_SIZES, **_GEMMA, "sliding_window": 8, "layer_types": _LAYERS},
        8,
        "half",
        1e6,
    ),
    "mistral": ("MistralConfig", {**_SIZES, "sliding_window": None}, 8, "half", 1e4),
    "mistral-window": ("MistralConfig", {**_SIZES, "sliding_window": 16}, 8, "half", 1e4),
    "phi": ("PhiConfig", {**_SIZES, "partial_rotary_factor": 0.5}, 4, "half", 1e4),
    "gpt-neox": ("GPTNeoXConfig", {**_SIZES, "rotary_pct": 0.5}, 4, "half", 1e4),
    "gpt-j": ("GPTJConfig", {**_GPT, "rotary_dim": 4}, 4, "interleaved", 1e4),
    "cohere": (
        "CohereConfig",
        {**_SIZES, "rope_theta": 1e4, "logit_scale": 1.0},
        8,
        "interleaved",
        1e4,
    ),
    "glm": (
        "GlmConfig",
        {**_SIZES, "head_dim": 8, "partial_rotary_factor": 0.5},
        4,
        "interleaved",
        1e4,
    ),
    "smollm3": (
        "SmolLM3Config",
        {**_SIZES, "no_rope_layers": [0, 1, 0], "rope_theta": 1e4},
        8,
        "half",
        1e4,
    ),
    "gpt2": ("GPT2Config", _GPT, 0, "half", 1e4),
}
ROTARY = [name for name, kind in _KINDS.items() if kind[2]]
ALL = list(_KINDS)
_KINDS["llama4"] = (
    "Llama4TextConfig",
    {
        **_SIZES,
        "head_dim": 8,
        "attention_chunk_size": 16,
        "num_local_experts": 2,
        "intermediate_size_mlp": 64,
        "layer_types": ["chunked_attention", "full_attention", "chunked_attention"],
    },
    0,
    "interleaved",
    1e4,
)
_KINDS["phi3-long"] = (
    "Phi3Config",
    {
        **_SIZES,
        "original_max_position_embeddings": 60,
        "rope_scaling": {
            "type": "longrope",
            "short_factor": [1.0, 1.0, 1.0, 1.0],
            "long_factor": [1.5, 2.0, 4.0, 8.0],
        },
    },
    0,
    "half",
    1e4,
)
_KINDS["bloom"] = ("BloomConfig", {"hidden_size": 32, "n_layer": 3, "n_head": 4}, 0, "half", 1e4)


@cache
def tiny_model(name: str, **options: Any) -> Tiny:
    """A random model of one architecture; options go into its config."""
    config_class, sizes, width, pairing, theta = _KINDS[name]
    config = getattr(transformers, config_class)(
        **{**sizes, "vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, **options}
    )
    # Some releases of transformers drop Gemma 2's soft cap in fused attention; the engine does not.
    how = {"attn_implementation": "eager"} if name == "gemma2" else {}
    model = transformers.AutoModelForCausalLM.from_config(config, **how).eval()
    torch.manual_seed(0)
    with torch.no_grad():  # larger than the usual start, so that every token matters for the next
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0.0, 1.5 * weight.shape[-1] ** -0.5)
    return Tiny(model, 1, width, pairing, theta)


def _fast(tokenizer: Tokenizer, template: str | None) -> Any:
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=CONTROL[3:],
    )
    fast.chat_template = TEMPLATES[template]
    return fast


def _with_bos(*others: Any) -> Any:
    template = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return processors.Sequence([*others, template])


@cache
def byte_level(template: str | None = None, *, bos: bool = False, trim: bool = False) -> Any:
    """Byte-level BPE as in GPT-2, Llama 3 and Qwen; ``trim`` leaves spaces out of the offsets."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=CONTROL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    offsets = processors.ByteLevel(trim_offsets=trim)
    tokenizer.post_processor = _with_bos(offsets) if bos else offsets
    return _fast(tokenizer, template)


@cache
def metaspace(template: str | None = None) -> Any:
    """BPE as in Llama 2: spaces are "▁", one is put in front, unknown characters become bytes."""
    trained = Tokenizer(models.BPE())
    spaces = pre_tokenizers.Metaspace(prepend_scheme="first")
    trained.pre_tokenizer = spaces
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=CONTROL, show_progress=False)
    trained.train_from_iterator(CORPUS, trainer)
    learnt = json.loads(trained.to_str())["model"]
    pieces = dict.fromkeys([*learnt["vocab"], *(f"<0x{byte:02X}>" for byte in range(256))])
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: number for number, piece in enumerate(pieces)},
            merges=[tuple(merge) for merge in learnt["merges"]],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    tokenizer.pre_tokenizer = spaces
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.post_processor = _with_bos()
    return _fast(tokenizer, template)


@pytest.hookimpl(tryfirst=True)  # before "-m" chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whatever opens the browser, so that ``make check`` leaves it out."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(autouse=True, scope="session")
def _no_kept_checks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Check models anew in every run of the tests."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "cache_folder", lambda: folder)
        yield


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """The byte-level tokenizer with a chat template."""
    return byte_level("chatml")


@pytest.fixture(scope="session")
def tiny() -> Callable[..., LocalSurrogate]:
    """Makes a surrogate of a tiny model: ``tiny("llama")``, ``tiny("gemma", template="gemma")``."""

    def make(name: str = "llama", *, template: str | None = "chatml", **options: Any) -> LocalSurrogate:
        return LocalSurrogate(tiny_model(name, **options).model, byte_level(template), name=name)

    return make


@pytest.fixture(scope="module")  # and not longer: while it runs, no test can start an event loop
def browser() -> Iterator[Any]:
    """A headless Chromium; the test is skipped where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium was found: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="pip install 'ropelime[dev]'")
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=arguments)
        yield chromium
        chromium.close()
