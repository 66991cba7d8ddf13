"""AT2: how much each attention head counts, learnt once for a model from its own ablations.

After Cohen-Wang et al., "Learning to Attribute with Attention" (2025) and the package ``at2`` 0.0.1,
written anew. As there: a head's feature is its attention from the positions that predict the answer,
averaged over them, to a part, summed over its tokens; a prediction for a mask is the weighted sum of
features, +1 for kept and -1 for removed parts; the loss is the negative Pearson correlation with the
log-odds of the answer over 32 masks that keep every part with probability one half; Adam takes 1,000
steps from equal weights, at a rate of 1e-3 that falls as a cosine, over 512 examples each, with
gradients clipped to 1; weights may be negative and are scaled to an L1 norm of 1.

Settled here: an answer is one target, where the package takes each of its sentences for one, because
the arena explains whole answers. Parts are deleted, as in the arena; the package masks them out where
they are, which is ``--ablation in-place``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.closed import attention
from benchmarks.closed.answering import LocalConversation
from benchmarks.closed.cases import Case
from benchmarks.store import Row, Store
from ropelime.errors import InputError
from ropelime.files import replacing
from ropelime.surrogate import Ablation
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.text.features import split
from ropelime.typing import Floats

SAMPLE = "sample"  # rows hold the features and log-probabilities of a case
STEPS, RATE, BATCH = 1_000, 1e-3, 512


@dataclass(frozen=True)
class Heads:
    """Weights of attention heads.

    Attributes:
        model: The short name of the model that they were learnt for.
        layers: Its layers.
        heads: Heads of a layer.
        weights: layers rows of so many weights.
        command: What learnt them.
        examples: How many examples they were learnt from.
        data: The name of the data.
    """

    model: str
    layers: int
    heads: int
    weights: list[list[float]]
    command: str
    examples: int
    data: str

    def save(self, path: Path) -> None:
        """Write a file."""
        with replacing(path) as file:
            file.write((json.dumps(asdict(self)) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> Heads:
        """Read a file that ``python -m benchmarks heads`` has written."""
        try:
            found = cls(**json.loads(path.read_text(encoding="utf-8")))
            shape = np.array(found.weights, dtype=float).shape
        except (OSError, ValueError, TypeError) as error:
            raise InputError(
                f"{path} does not hold weights of heads ({error}). Make it with `python -m benchmarks "
                "heads`."
            ) from None
        if shape != (found.layers, found.heads):
            raise InputError(
                f"{path} says {found.layers} layers of {found.heads} heads and holds weights of shape "
                f"{shape}. Make it again with `python -m benchmarks heads`."
            )
        return found


def sample(
    cases: Sequence[Case],
    model: LocalSurrogate,
    store: Store,
    *,
    masks: int,
    seed: int,
    first: int = 0,
    most: int,
    ablation: Ablation,
    answers: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Collect features and log-probabilities of every case that the store does not hold yet.

    Args:
        cases: The cases.
        model: The model whose heads are weighted.
        store: Where the rows go.
        masks: Masks of a case.
        seed: Case i draws its masks from (seed, first + i).
        first: The number of the first case.
        most: The most tokens of an answer that the model gives itself.
        ablation: How parts are removed.
        answers: The answer of each case by its name; others are left out. If None, a case has an
            answer or the model gives one.
        progress: Called with the cases done and in all.
    """
    for number, case in store.left(cases, progress):
        output = _answer(case, model, most) if answers is None else answers.get(case.id, "")
        row: Row = {"example": case.id, "method": SAMPLE}
        if output:
            rng = np.random.default_rng([seed, first + number])
            row |= _sample(case, model, output, masks, ablation, rng)
        elif answers is not None:  # it may be there when the run is resumed
            continue
        store.add(case.id, [row if output else {**row, "skipped": "no answer"}])


def samples(rows: Sequence[Row]) -> tuple[Floats, Floats]:
    """(examples, masks, heads) features and (examples, masks) log-odds out of the rows of a store."""
    used = [row for row in rows if "features" in row]
    if not used:
        raise InputError("No case has an answer, so there is nothing to learn from.")
    features = [
        np.frombuffer(base64.b64decode(row["features"]), dtype="<f4").reshape(len(row["logprob"]), -1)
        for row in used
    ]
    logprob = np.array([row["logprob"] for row in used])
    return np.stack(features), logprob - np.log(-np.expm1(np.minimum(logprob, -1e-12)))


def learn(features: Floats, targets: Floats, *, seed: int, steps: int = STEPS) -> Floats:
    """(heads,) weights that predict the targets best, scaled to an L1 norm of 1.

    Args:
        features: (examples, masks, heads).
        targets: (examples, masks).
        seed: Seed of the examples that each step takes.
        steps: How many steps of Adam.
    """
    x = torch.as_tensor(features, dtype=torch.float32)
    y = torch.as_tensor(targets, dtype=torch.float32)
    weights = torch.full((x.shape[-1],), 1 / x.shape[-1], requires_grad=True)
    optimizer = torch.optim.Adam([weights], lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        some = torch.as_tensor(rng.permutation(len(x))[:BATCH])
        optimizer.zero_grad()
        loss = -correlation(x[some] @ weights, y[some]).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_([weights], 1.0)
        optimizer.step()
        schedule.step()
    learnt = weights.detach().double().numpy()
    return np.asarray(learnt / np.abs(learnt).sum())


def correlation(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """(examples,) Pearson correlations of two (examples, masks)."""
    a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    spread = (a**2).mean(1).sqrt() * (b**2).mean(1).sqrt()
    return (a * b).mean(1) / (spread + 1e-8)


def _sample(
    case: Case,
    model: LocalSurrogate,
    output: str,
    count: int,
    ablation: Ablation,
    rng: np.random.Generator,
) -> Row:
    features = split(case.prompt, case.spans, token_spans=model.token_spans)
    scorer = model.prepare(case.prompt, features, output, ablation=ablation)
    assert isinstance(scorer, LocalScorer)
    n = len(case.spans)
    masks = rng.random((count, n)) < 0.5
    scores = scorer.score(np.concatenate([np.ones((1, n), dtype=bool), masks]), kl=False)
    mass = attention.of_parts(model, scorer.tokenized).reshape(-1, n)  # (layers x heads, n)
    mixed: Any = np.where(masks, 1.0, -1.0) @ mass.T
    return {
        "features": base64.b64encode(mixed.astype("<f4").tobytes()).decode(),
        "logprob": [float(value) for value in scores.output_logprob[1:]],
    }


def _answer(case: Case, model: LocalSurrogate, most: int) -> str:
    if case.output:
        return case.output
    full = np.ones((1, len(case.spans)), dtype=bool)
    return LocalConversation(model, case.prompt, case.spans, most=most).answers(full)[0]
