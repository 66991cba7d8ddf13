"""The paper's own figures, as printed in its appendix. Settings are spelled as our samplers are."""

from __future__ import annotations

from typing import NamedTuple

HOTPOTQA_MODEL = "Qwen-8B"


class Score(NamedTuple):
    """A mean over examples and its standard deviation."""

    mean: float
    std: float


class Scores(NamedTuple):
    """One row of a HotpotQA table; the setting is empty for leave-one-out."""

    setting: str
    iou: Score
    f1: Score
    auroc: Score


class Summary(NamedTuple):
    """One row of the MMLU table; the paper prints the width of the interquartile range."""

    mean: float
    std: float
    median: float
    iqr: float
    min: float
    max: float


def _row(setting: str, *figures: float) -> Scores:
    return Scores(setting, *(Score(*figures[i : i + 2]) for i in (0, 2, 4)))


# Table "sparsek-configs": the best Sparse-K setting of each bucket.
SPARSE_K = {
    "2-3": _row("sparse-k:4sqrt:M/2", 0.903, 0.237, 0.927, 0.177, 0.891, 0.266),
    "4-5": _row("sparse-k:2sqrt:M", 0.561, 0.351, 0.652, 0.307, 0.653, 0.297),
    "6-8": _row("sparse-k:4sqrt:8k", 0.445, 0.330, 0.546, 0.318, 0.641, 0.253),
    "9-11": _row("sparse-k:2sqrt:16k", 0.355, 0.310, 0.455, 0.312, 0.622, 0.213),
    "12+": _row("sparse-k:4sqrt:4k", 0.632, 0.393, 0.694, 0.353, 0.815, 0.212),
}

# Table "hotpot-loo".
LEAVE_ONE_OUT = {
    "2-3": _row("", 0.797, 0.307, 0.848, 0.230, 0.772, 0.345),
    "4-5": _row("", 0.386, 0.339, 0.476, 0.343, 0.466, 0.324),
    "6-8": _row("", 0.212, 0.219, 0.302, 0.272, 0.447, 0.221),
    "9-11": _row("", 0.193, 0.223, 0.272, 0.282, 0.498, 0.180),
    "12+": _row("", 0.246, 0.339, 0.298, 0.362, 0.566, 0.222),
}

# Tables "sparsek-m3" to "sparsek-m13": the first three of the sweep, in the paper's order.
SWEEP = {
    "2-3": (
        _row("sparse-k:4sqrt:M/2", 0.903, 0.237, 0.927, 0.177, 0.891, 0.266),
        _row("sparse-k:2sqrt:M/2", 0.896, 0.243, 0.922, 0.182, 0.883, 0.274),
        _row("sparse-k:sqrt:M/2", 0.896, 0.243, 0.922, 0.182, 0.883, 0.274),
    ),
    "4-5": (
        _row("sparse-k:2sqrt:M", 0.561, 0.351, 0.652, 0.307, 0.653, 0.297),
        _row("sparse-k:2sqrt:16k", 0.554, 0.341, 0.650, 0.295, 0.651, 0.285),
        _row("sparse-k:2sqrt:4k", 0.544, 0.329, 0.648, 0.274, 0.651, 0.269),
    ),
    "6-8": (
        _row("sparse-k:4sqrt:8k", 0.445, 0.330, 0.546, 0.318, 0.641, 0.253),
        _row("sparse-k:sqrt:4k", 0.424, 0.305, 0.535, 0.295, 0.634, 0.235),
        _row("sparse-k:4sqrt:M", 0.431, 0.336, 0.529, 0.326, 0.625, 0.262),
    ),
    "9-11": (
        _row("sparse-k:4sqrt:M", 0.353, 0.306, 0.455, 0.306, 0.623, 0.207),
        _row("sparse-k:2sqrt:16k", 0.355, 0.310, 0.455, 0.312, 0.622, 0.213),
        _row("sparse-k:4sqrt:16k", 0.342, 0.292, 0.448, 0.298, 0.619, 0.200),
    ),
    "12+": (
        _row("sparse-k:4sqrt:4k", 0.632, 0.393, 0.694, 0.353, 0.815, 0.212),
        _row("sparse-k:2sqrt:4k", 0.421, 0.418, 0.476, 0.421, 0.683, 0.251),
        _row("sparse-k:2sqrt:M/4", 0.323, 0.351, 0.399, 0.359, 0.634, 0.216),
    ),
}

# Table "full-results": closed-source is gSMILE with gpt-4o-mini, open-source RoPE-LIME with Qwen-8B.
MMLU_CLOSED = {
    "iou": Summary(0.248, 0.171, 0.250, 0.222, 0.000, 0.667),
    "f1": Summary(0.368, 0.216, 0.400, 0.300, 0.000, 0.800),
    "auroc": Summary(0.431, 0.182, 0.400, 0.258, 0.000, 0.792),
}
MMLU_OPEN = {
    "iou": Summary(0.364, 0.184, 0.333, 0.229, 0.000, 1.000),
    "f1": Summary(0.508, 0.191, 0.500, 0.267, 0.000, 1.000),
    "auroc": Summary(0.563, 0.159, 0.583, 0.161, 0.125, 1.000),
}


def names(setting: str) -> tuple[str, str]:
    """As the paper writes k and c: 2√M and min(M, 16k) of ``sparse-k:2sqrt:16k``."""
    _, k, c = setting.split(":")
    count = {"M": "M", "M/2": "0.5M", "M/4": "0.25M"}.get(c) or f"min(M, {c})"
    return k.removesuffix("sqrt") + "√M", count


def label(setting: str) -> str:
    """Both together: (2√M, min(M, 16k))."""
    return f"({', '.join(names(setting))})"
