"""RoPE-LIME: which part of my prompt made the model say that?"""

from ropelime._version import __version__
from ropelime.ask import ask
from ropelime.audit import Audit, audit
from ropelime.errors import InputError, ModelError, RopeLimeError
from ropelime.explain import Explanation, explain, load
from ropelime.guard import guard
from ropelime.summary import Summary, summary
from ropelime.surrogate import load_surrogate
from ropelime.trace import Trace, trace

__all__ = [
    "Audit",
    "Explanation",
    "InputError",
    "ModelError",
    "RopeLimeError",
    "Summary",
    "Trace",
    "__version__",
    "ask",
    "audit",
    "explain",
    "guard",
    "load",
    "load_surrogate",
    "summary",
    "trace",
]
