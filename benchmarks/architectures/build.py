"""A tiny random model of any causal class that transformers has."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from ropelime.surrogate.checkpoints import quietly

WINDOW = 16  # tokens that local layers attend to
VOCABULARY = 640
_MOST_PARAMETERS = 3_000_000

_WIDTHS = (
    "hidden_size d_model n_embd dim emb_dim word_embed_proj_dim embedding_size decoder_hidden_size"
)
_INNER = (
    "intermediate_size n_inner ffn_dim decoder_ffn_dim encoder_ffn_dim dff dim_ff feed_forward_size"
)
_INNER += " shared_intermediate_size intermediate_size_mlp ffn_hidden_size mamba_d_ssm"
_DEPTHS = "num_hidden_layers n_layer num_layers n_layers decoder_layers encoder_layers"
_DEPTHS += " num_decoder_layers num_encoder_layers"
_HEADS = "num_attention_heads n_head n_heads num_heads decoder_attention_heads"
_HEADS += " encoder_attention_heads num_decoder_attention_heads num_encoder_attention_heads"
_HEAD_WIDTHS = "head_dim attention_head_dim qk_rope_head_dim qk_nope_head_dim v_head_dim index_head_dim"
_HEAD_WIDTHS += " linear_key_head_dim linear_value_head_dim linear_head_dim"
_LIMITS = "sliding_window window_size attention_window_size index_topk attention_chunk_size"
_LIMITS += " sliding_window_size keep_window_size"


def _each(names: str, value: int) -> dict[str, Any]:
    return dict.fromkeys(names.split(), value)


# What the fields of configs are called, and how small they are made. Fields that a config does not
# have are left out.
_SIZES: dict[str, Any] = {
    **_each("vocab_size vocab_size_per_layer_input", VOCABULARY),
    **_each(f"{_WIDTHS} attention_hidden_size lru_width", 32),
    **_each(_INNER, 64),
    **_each("moe_intermediate_size shared_expert_intermediate_size", 32),
    "expert_ffn_hidden_size": 32,
    **_each(_DEPTHS, 4),
    "first_k_dense_replace": 1,
    **_each("n_group topk_group moe_layer_start_index n_shared_experts n_groups", 1),
    **_each(_HEADS, 4),
    **_each("num_key_value_heads linear_num_key_heads index_n_heads", 2),
    **_each(_HEAD_WIDTHS, 8),
    "hidden_size_per_layer_input": 8,
    **_each("max_position_embeddings n_positions max_seq_len", 512),
    **_each("num_experts num_local_experts n_routed_experts moe_num_experts", 4),
    **_each("num_experts_per_tok moe_k moe_topk", 2),
    **_each("kv_lora_rank q_lora_rank", 16),
    **_each("linear_num_value_heads linear_num_heads n_mamba_heads", 4),
    **_each("mamba_n_heads mamba_num_heads mamba_dt_rank", 4),
    **_each("mamba_d_head mamba_head_dim mamba_d_state ssm_state_size state_size", 16),
    **_each("mamba_chunk_size chunk_size index_block_size", 8),
    **_each(_LIMITS, WINDOW),
    "use_sliding_window": True,
    "max_window_layers": 2,
    "rotary_dim": 4,
    "index_topk_blocks": 2,
    "use_mamba_kernels": False,
    "is_decoder": True,  # of encoders, which can be trained as causal models
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

# What a model needs besides, mostly so that it has layers of every kind.
_HYBRID: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1, 3]},
    "falcon": {"new_decoder_architecture": False},
    "gemma3_text": {"layer_types": ["sliding_attention", "full_attention"] * 2},
    "gemma3n_text": {
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 0,
        "activation_sparsity_pattern": [0.0] * 4,
        "intermediate_size": [64] * 4,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2, "num_dense_layers": 1},
    "mamba2": {"num_heads": 8},
    "nemotron_h": {"layers_block_type": ["mamba", "attention", "mlp", "attention"]},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "zamba2": {
        "layers_block_type": ["mamba", "hybrid"] * 2,
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
        "num_key_value_heads": 4,
    },
    "zaya": {"num_experts_per_tok": 1},
}


class NotBuiltError(Exception):
    """A tiny model of this architecture cannot be built by shrinking its config."""


def causal_types() -> list[str]:
    """Every model type that the installed transformers has a causal class for."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def class_name(model_type: str) -> str:
    """The causal class of a model type."""
    return str(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type])


def build(model_type: str, **options: Any) -> Any:
    """A tiny random model; options go into its config.

    Raises:
        NotBuiltError: If the config cannot be made small without knowing more about it.
    """
    try:
        with quietly():
            config = _config(model_type, options)
            with torch.device("meta"):
                made = transformers.AutoModelForCausalLM.from_config(config)
            size = sum(weight.numel() for weight in made.parameters())
            if size > _MOST_PARAMETERS:
                raise NotBuiltError(f"{size:,} parameters")
            torch.manual_seed(0)
            model = transformers.AutoModelForCausalLM.from_config(_config(model_type, options))
    except NotBuiltError:
        raise
    except Exception as error:  # whatever a config or a constructor has against such sizes
        raise NotBuiltError(f"{type(error).__name__}: {error}") from error
    with torch.no_grad():  # larger than the usual start, so that every token matters for the next
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0.0, 1.5 * weight.shape[-1] ** -0.5)
    return model.eval()


def _config(model_type: str, options: dict[str, Any]) -> Any:
    """The config of a type, with small sizes."""
    kind = CONFIG_MAPPING[model_type]
    known = kind().to_dict()
    sizes = {name: size for name, size in _SIZES.items() if name in known}
    if "kv_lora_rank" in known:  # latent attention has as many key heads as heads
        sizes["num_key_value_heads"] = 4
    return kind(**{**sizes, **_HYBRID.get(model_type, {}), **options})
