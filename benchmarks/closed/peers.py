"""Rankings of peers that read a surrogate's attention or search with its log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from benchmarks.closed import attention, flow
from benchmarks.closed.heads import Heads
from benchmarks.memo import MemoScorer
from ropelime.errors import InputError
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.surrogate.tokens import TokenizedPrompt
from ropelime.typing import Floats, Ints, Masks

ATTNTRACE, FLASHTRACE, TRACLLM = "AttnTrace", "FlashTrace", "TracLLM"
_SUBSETS, _SHARE, _LARGEST = 30, 0.4, 5  # AttnTrace
_FOUND, _PERMUTATIONS, _TOP, _LOO = 5, 5, 0.2, 2.0  # TracLLM: K, sh_N, beta and w of its package

LogProb = Callable[[Masks], Floats]
Groups = Sequence[Ints]


def by_peers(
    surrogate: LocalSurrogate,
    memo: MemoScorer,
    seed: tuple[int, ...],
    *,
    heads: Mapping[str, Heads],
    exact: bool,
) -> tuple[dict[str, Floats], dict[str, int]]:
    """The weights of every peer, and the tokens that each takes.

    A row is left out where the architecture of the model does not allow it.

    Args:
        surrogate: The model that is read.
        memo: The prompt with its answer, prepared by that model.
        seed: Seed of random subsets and permutations.
        heads: Weights of heads that were learnt for this model, by name.
        exact: Whether to run those that take many passes, too.
    """
    assert isinstance(memo.scorer, LocalScorer)
    tokenized = memo.scorer.tokenized
    n = tokenized.n_features
    full = np.ones((1, n), dtype=bool)
    whole = int(memo.cost(full)[0])
    weights: dict[str, Floats] = {}
    tokens: dict[str, int] = {}
    if attention.readable(surrogate, whole):
        if heads:
            mass = attention.of_parts(surrogate, tokenized)
            for name, learnt in heads.items():
                weights[f"AT2 ({name})"], tokens[f"AT2 ({name})"] = at2(mass, learnt), whole
        if flow.traceable(surrogate):
            weights[FLASHTRACE], tokens[FLASHTRACE] = flow.flashtrace(surrogate, tokenized), whole
        if exact:
            subsets = random_subsets(n, np.random.default_rng([*seed, 4]))
            weights[ATTNTRACE] = attntrace(surrogate, tokenized, subsets)
            tokens[ATTNTRACE] = int(memo.cost(subsets).sum())
    if exact:
        asked: dict[bytes, Masks] = {}

        def logprob(masks: Masks) -> Floats:
            asked.update((mask.tobytes(), mask) for mask in masks)
            return memo.logprob(masks)

        weights[TRACLLM] = tracllm(logprob, n, np.random.default_rng([*seed, 5]))
        tokens[TRACLLM] = int(memo.cost(np.array(list(asked.values()))).sum())
    return weights, tokens


def at2(mass: Floats, heads: Heads) -> Floats:
    """(n,) AT2's scores: each head's (layers, heads, n) attention to the parts, weighted."""
    learnt = np.array(heads.weights)
    if learnt.shape != mass.shape[:2]:
        raise InputError(
            f"Heads of {heads.model} have weights of shape {learnt.shape}, and this model has heads of "
            f"shape {mass.shape[:2]}. Learn them again with `python -m benchmarks heads`."
        )
    return np.asarray(np.einsum("lh,lhn->n", learnt, mass))


def random_subsets(n: int, rng: np.random.Generator) -> Masks:
    """(30, n) masks with 40 % of the parts each, rounded down, and at least one."""
    size = max(1, int(n * _SHARE))
    masks = np.zeros((_SUBSETS, n), dtype=bool)
    for mask in masks:
        mask[rng.permutation(n)[:size]] = True
    return masks


def attntrace(surrogate: LocalSurrogate, tokenized: TokenizedPrompt, subsets: Masks) -> Floats:
    """(n,) AttnTrace's scores (Wang et al., "AttnTrace", 2025).

    Attention from the positions that predict the answer, averaged over them, layers and heads; a part's
    score in a subset is the mean of its five largest tokens, and its score is the mean over the subsets
    that hold it, 0 if none does. Each subset is a prompt of its own, without the other parts.

    Args:
        surrogate: The model that is read.
        tokenized: The prompt and the answer.
        subsets: (N, n) which parts each subset holds.
    """
    total = np.zeros(subsets.shape[1])
    for mask in subsets:
        sequence = tokenized.sequence(0, mask)
        paid = attention.of_tokens(surrogate, sequence)
        for part in np.flatnonzero(mask):
            total[part] += np.sort(paid[sequence.owner == part])[-_LARGEST:].mean()
    return np.asarray(total / np.maximum(subsets.sum(0), 1))


def tracllm(logprob: LogProb, n: int, rng: np.random.Generator) -> Floats:
    """(n,) TracLLM's scores (Wang et al., "TracLLM", 2025), with the settings of ``tracllmkit`` 0.1.2.

    Three searches, by the contribution of a single text, by leave-one-out and by denoised Shapley
    values. Each halves its groups of parts, scores them against one another without the parts that were
    dropped before, and keeps the best five, until they are single parts. A part's score is the largest
    of the three, leave-one-out counting twice. The value of a set is the log-probability of the answer;
    no set is scored twice, although the package does so.

    Settled here: parts that no search ends with come just below the lowest that one does, or at 0 if
    that is lower; five parts and fewer, for which the package has no scores, are scored as they are.

    Args:
        logprob: (N,) log-probabilities of the answer for (N, n) masks.
        n: How many parts there are.
        rng: Draws permutations.
    """
    found: dict[int, float] = {}
    scores: list[tuple[Callable[[LogProb, int, Groups], Floats], float]]
    scores = [(_single, 1.0), (_leave_one_out, _LOO), (partial(_denoised_shapley, rng), 1.0)]
    for score, weight in scores:
        for part, value in _search(partial(score, logprob, n), n).items():
            found[part] = max(found.get(part, -np.inf), weight * value)
    weights = np.full(n, min(0.0, np.nextafter(min(found.values()), -np.inf)))
    weights[list(found)] = list(found.values())
    return weights


def _search(score: Callable[[Groups], Floats], n: int) -> dict[int, float]:
    """The parts that are left after a binary search, and their scores."""
    groups: list[Ints] = [np.arange(n)]
    scores: Floats | None = None
    while any(len(group) > 1 for group in groups):
        groups = [half for group in groups for half in np.split(group, [len(group) // 2]) if len(half)]
        if len(groups) > _FOUND:
            scores = score(groups)
            kept = np.sort(np.argsort(-scores, kind="stable")[:_FOUND])
            groups, scores = [groups[i] for i in kept], scores[kept]
    if scores is None:
        scores = score(groups)
    return {int(group[0]): float(value) for group, value in zip(groups, scores, strict=True)}


def _single(logprob: LogProb, n: int, groups: Groups) -> Floats:
    """What each group adds to a prompt with no part."""
    values = logprob(np.array([_mask([], n), *(_mask([group], n) for group in groups)]))
    return np.asarray(values[1:] - values[0])


def _leave_one_out(logprob: LogProb, n: int, groups: Groups) -> Floats:
    """What is lost without each group."""
    others = [[*groups[:i], *groups[i + 1 :]] for i in range(len(groups))]
    values = logprob(np.array([_mask(groups, n), *(_mask(each, n) for each in others)]))
    return np.asarray(values[0] - values[1:])


def _denoised_shapley(rng: np.random.Generator, logprob: LogProb, n: int, groups: Groups) -> Floats:
    """The mean of the largest fifth of each group's marginal contributions over five permutations."""
    count = len(groups)
    orders = [rng.permutation(count) for _ in range(_PERMUTATIONS)]
    masks = [_mask([groups[i] for i in order[:k]], n) for order in orders for k in range(count + 1)]
    gains = np.diff(logprob(np.array(masks)).reshape(_PERMUTATIONS, count + 1), axis=1)
    marginal = np.array([gain[np.argsort(order)] for gain, order in zip(gains, orders, strict=True)])
    largest = max(1, int(_PERMUTATIONS * _TOP))
    return np.asarray(np.sort(marginal, axis=0)[-largest:].mean(0))


def _mask(groups: Groups, n: int) -> Masks:
    """(n,) a mask that keeps the parts of some groups."""
    mask = np.zeros(n, dtype=bool)
    for group in groups:
        mask[group] = True
    return mask
