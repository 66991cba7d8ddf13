"""RoPE-LIME: which part of my prompt made the model say that?"""

from ropelime._version import __version__
from ropelime.ask import ask
from ropelime.errors import InputError, ModelError, RopeLimeError
from ropelime.explain import Explanation, explain, load
from ropelime.surrogate import load_surrogate

__all__ = [
    "Explanation",
    "InputError",
    "ModelError",
    "RopeLimeError",
    "__version__",
    "ask",
    "explain",
    "load",
    "load_surrogate",
]
