"""Every ranking that is compared: a name, and a weight for each part."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import torch

from benchmarks import lexical, methods
from benchmarks.closed import peers
from benchmarks.closed.attempts import MOST, tried
from benchmarks.closed.cases import Case
from benchmarks.closed.heads import Heads
from benchmarks.memo import Memo
from benchmarks.method import Method, method, options_of, preset
from benchmarks.names import EVIDENCE, FAITHFUL, INSTANT
from ropelime.explain import Explanation, explain_many
from ropelime.steps import Task
from ropelime.surrogate import Ablation, Surrogate
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.surrogate.sequences import JoinedSequences, MaskedSequences
from ropelime.text.features import split
from ropelime.typing import Floats, Masks

RANDOM, ARC_JSD = "random", "ARC-JSD"


def lexicals(case: Case, output: str) -> dict[str, Floats]:
    """The rankings by words alone."""
    return {name: rank(case.question, output, case.parts) for name, rank in lexical.RANKINGS.items()}


def count(surrogates: Collection[Surrogate], *, exact: bool, attempts: bool = False) -> int:
    """How many rankings there are at most for each case that is asked again."""
    found = MOST * attempts * len(surrogates)
    found += 1 + len(lexical.RANKINGS) + 1  # random and the oracle
    for surrogate in surrogates:
        found += sum(exact or m.scoring == "cached" for m in compared())
        found += exact and isinstance(surrogate, LocalSurrogate)  # ARC-JSD
    return found


def compared() -> list[Method]:
    """The methods that need a surrogate's scores."""
    loo = ("uniform", "wls")
    return [
        preset(EVIDENCE),
        *(
            method(
                f"evidence without {off}",
                "leave-one-out",
                {"name": "evidence", off: 0},
                *loo,
                scoring="cached",
            )
            for off in ("shift", "words", "question")
        ),
        preset(INSTANT),
        preset(FAITHFUL),
        method("answer-only shift", "leave-one-out", "shift", *loo, scoring="cached"),
        method("leave-one-out, cached nll", "leave-one-out", "nll", *loo, scoring="cached"),
        method("leave-one-out, nll", "leave-one-out", "nll", *loo),
        method("leave-one-out, kl", "leave-one-out", "kl", *loo),
        methods.contextcite(),
    ]


def by_surrogate(
    case: Case,
    output: str,
    surrogate: Surrogate,
    seed: tuple[int, ...],
    *,
    exact: bool = True,
    only: Collection[str] = (),
    attempts: bool = False,
    heads: Mapping[str, Heads] | None = None,
) -> tuple[dict[str, Floats], Mapping[str, int]]:
    """The weights of every method by one surrogate, and the tokens that each takes.

    Args:
        case: The prompt.
        output: The answer that is explained.
        surrogate: The model that scores it.
        seed: Seed of the masks.
        exact: Whether to run the methods that score exactly, too.
        only: The names of the methods that are run; all of them and the peers if empty.
        attempts: Whether to add other ways to mix the signals; needs ``evidence`` and ``instant``.
        heads: Weights of heads that were learnt for this surrogate, by name.
    """
    chosen = [
        m for m in compared() if m.name in only or (not only and (exact or m.scoring == "cached"))
    ]
    memo = Memo(surrogate, [m.recipe for m in chosen])
    features = split(case.prompt, case.spans, token_spans=memo.token_spans)
    scorer = memo.prepare(case.prompt, features, output, ablation=Ablation())
    options = options_of(chosen, scorer, features=case.spans, ablation=Ablation(), entropy=seed)
    made = explain_many([Task(case.prompt, output, each) for each in options], [memo])
    weights: dict[str, Floats] = {}
    tokens: dict[str, int] = {}
    signals: dict[str, Mapping[str, Floats]] = {}
    for m, e in zip(chosen, made, strict=True):
        assert isinstance(e, Explanation)
        signals[m.name] = e.signals
        weights[m.name] = np.asarray(e.weights)
        tokens[m.name] = int(m.scores(e).tokens.sum())
    if attempts:
        weights |= tried(case, output, memo, signals[EVIDENCE], signals[INSTANT])
    if isinstance(surrogate, LocalSurrogate) and not only:
        assert isinstance(scorer.scorer, LocalScorer)
        if exact:
            weights[ARC_JSD] = arc_jsd(surrogate, scorer.scorer, len(case.spans))
            tokens[ARC_JSD] = tokens["leave-one-out, kl"]
        found, took = peers.by_peers(surrogate, scorer, seed, heads=heads or {}, exact=exact)
        weights |= found
        tokens |= took
    return weights, tokens


def leave_one_out(n: int) -> Masks:
    """(n, n) masks, each without one part."""
    return ~np.eye(n, dtype=bool)


def arc_jsd(surrogate: LocalSurrogate, scorer: LocalScorer, n: int) -> Floats:
    """Jensen-Shannon divergence of the answer's predictions without each part, summed over tokens."""
    masks = np.concatenate([np.ones((1, n), dtype=bool), leave_one_out(n)])
    sequences = JoinedSequences([MaskedSequences(scorer.tokenized, masks, cached=False)], [False])
    tokens = len(scorer.output_spans)
    unmasked: dict[int, torch.Tensor] = {}
    found = np.zeros(n + 1)

    def take(result: object) -> None:
        scored, logits = result.scored, result.logits  # type: ignore[attr-defined]
        for start in range(0, len(scored), 64):
            some = scored[start : start + 64]
            p = logits[start : start + 64].float().log_softmax(-1)
            for row in np.flatnonzero(some[:, 0] == 0):
                unmasked[int(some[row, 1])] = p[row]
            q = torch.stack([unmasked[int(token)] for token in some[:, 1]])
            middle = torch.logaddexp(p, q) - float(np.log(2))
            each = ((p.exp() * (p - middle)).sum(-1) + (q.exp() * (q - middle)).sum(-1)) / 2
            np.add.at(found, some[:, 0], each.double().cpu().numpy())

    with surrogate.lock, torch.inference_mode():
        surrogate.engine.run(sequences, take)
    assert len(unmasked) == tokens
    return found[1:]
