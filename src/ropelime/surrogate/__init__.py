"""Surrogates: open models that score a fixed answer under masked prompts.

Importing this package does not import torch; loading a model does.
"""

from ropelime.surrogate.base import (
    Ablation,
    FunctionSurrogate,
    Scorer,
    ScoreRequest,
    Surrogate,
    check_only_output,
)
from ropelime.surrogate.loading import load_surrogate, resolve_surrogate, resolve_surrogates
from ropelime.surrogate.remote import ServerSurrogate, is_served

__all__ = [
    "Ablation",
    "FunctionSurrogate",
    "ScoreRequest",
    "Scorer",
    "ServerSurrogate",
    "Surrogate",
    "check_only_output",
    "is_served",
    "load_surrogate",
    "resolve_surrogate",
    "resolve_surrogates",
]
