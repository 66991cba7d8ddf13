"""Logits become scores: log-probabilities, divergences and distances of each request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from ropelime.errors import ModelError
from ropelime.method.scores import QuestionScores, Scores
from ropelime.surrogate.attention import WatchedAttention
from ropelime.surrogate.base import ScoreRequest
from ropelime.surrogate.engine import ForwardResult
from ropelime.surrogate.rotary import RotaryDistances
from ropelime.surrogate.sequences import MaskedSequences
from ropelime.surrogate.tokens import TokenizedPrompt, TokenSequence
from ropelime.typing import Floats, Ints, Masks

_LOGITS_IN_FLOAT = 1 << 25  # bounds output positions x vocabulary in float32
_LOGITS_ON_CPU = 1 << 19  # as many as its caches hold

Head = tuple[int, int, float]  # layer, number and weight


class ScoreCollector:
    """Collects the scores of one request from the results of forward passes."""

    def __init__(
        self,
        request: ScoreRequest,
        tokenized: TokenizedPrompt,
        masks: tuple[Masks, Ints],
        sequences: MaskedSequences,
        distances: Sequence[RotaryDistances],
        heads: Sequence[Head] = (),
    ) -> None:
        self._request = request
        self.attention: WatchedAttention | None = None
        if request.attention:
            self._weights = np.array([weight for _, _, weight in heads])
            places = [(layer, number) for layer, number, _ in heads]
            count = len(tokenized.output_ids)
            self.attention = WatchedAttention(places, tokenized.owner.tolist(), count)
        self._masks, self._inverse = masks  # what distinct() gives for those of the request
        self.sequences, self.distances = sequences, distances
        self._n_question = tokenized.n_question if request.question else 0
        question = tokenized.ids[len(tokenized.ids) - self._n_question :]
        scored = np.concatenate([question, tokenized.output_ids])
        self._scored_ids = torch.as_tensor(scored)  # (Q + T,) the tokens that are scored
        self._wants_kl = request.kl or request.question
        shape = len(self._masks), len(scored)
        self._logprob: Floats = np.full(shape, np.nan)
        self._kl: Floats = np.full(shape, np.nan if self._wants_kl else 0.0)
        self._kl[0] = 0.0
        self._unmasked: torch.Tensor | None = None  # (Q + T, V) log-probabilities, nothing removed

    def layers(self, space: str) -> set[int]:
        """The layers that distances in ``"key"`` or ``"hidden"`` space are computed from."""
        return {d.rotation.layer for d in self.distances if d.settings.space == space}

    def add(self, result: ForwardResult) -> None:
        """Take the scores out of the result of a forward pass."""
        self._add_logits(result.scored, result.logits)
        positions = [sequence.positions for sequence in result.whole]
        for distances in self.distances:
            rotation = distances.rotation
            if result.whole and distances.settings.space == "key":
                distances.add(result.whole, *rotation.key_planes(result.keys[rotation.layer]))
            elif result.whole:
                hidden = result.hidden[rotation.layer]
                distances.add(result.whole, *rotation.hidden_planes(hidden, np.concatenate(positions)))
            for sequence in result.cached:
                distances.add_cached(sequence, self._masks[sequence.index])

    def release(self) -> None:
        """Free what only further results would be compared with."""
        self._unmasked = None

    def scores(
        self, name: str, dtype: torch.dtype, tokens_run: int, seconds: float, note: str
    ) -> Scores:
        """The scores of all masks of the request, once all results are added."""
        bad = ~self._complete
        if bad.any():
            raise ModelError(
                f"{name} gave NaN or infinite probabilities under {int(bad.sum())} of {len(bad)} masks "
                f"in {str(dtype).removeprefix('torch.')}. Try dtype='float32'; if that fails too, the "
                "model file is damaged."
            )
        return self._scores(name, tokens_run, seconds, note)

    @property
    def _complete(self) -> Masks:
        """(N,) which masks have finite scores of the whole output; one may cut into the question."""
        output = slice(self._n_question, None)
        finite = np.isfinite(self._logprob[:, output]) & np.isfinite(self._kl[:, output])
        return np.asarray(finite.all(1))

    def so_far(self, name: str, seconds: float) -> Scores | None:
        """The scores of the masks that are complete; None if the first ones are not among them."""
        rows = self._complete[self._inverse]
        if not rows[: 1 if self._request.masks[1:2].any() else 2].all():
            return None
        found = self._scores(name, 0, seconds, "").select(rows)
        return replace(found, tokens_run=int(found.tokens.sum()))

    def _scores(self, name: str, tokens_run: int, seconds: float, note: str) -> Scores:
        logprob, kl, inverse = self._logprob, self._kl, self._inverse
        before, output = slice(self._n_question), slice(self._n_question, None)
        tokens, exact = self.sequences.costs()
        question = QuestionScores(logprob[inverse, before], kl[inverse, before])
        return Scores(
            self._request.masks,
            logprob[inverse, output],
            kl[inverse, output] if self._request.kl else None,
            {d.settings: d.distance[inverse] for d in self.distances},
            tokens[inverse],
            tokens_run,
            seconds,
            note,
            exact[inverse],
            question if self._n_question else None,
            attention=None if self.attention is None else self._attention(name, self.attention),
        )

    def _attention(self, name: str, watched: WatchedAttention) -> Floats:
        """(T, n) the heads' attention to the features, each sharpened, and weighted."""
        if not watched.complete:
            raise ModelError(
                f"{name} does not show the attention of its layers, which preset='instant' needs. Use "
                "preset='evidence' or 'faithful' with it."
            )
        masses = watched.masses.double().numpy()  # (heads, T, n)
        whole = masses.sum(1)
        share = whole**2 / np.maximum((whole**2).sum(1, keepdims=True), 1e-300)
        by_token = masses / np.maximum(whole, 1e-300)[:, None]
        mixed = np.einsum("h,hn,htn->tn", self._weights / self._weights.sum(), share, by_token)
        return np.asarray(mixed / (mixed.sum() or 1.0))

    def _add_logits(self, scored: Ints, logits: torch.Tensor) -> None:
        """Log-probabilities of the scored tokens, and divergences from the unmasked predictions."""
        # The unmasked prompt by itself and first, and never much of the vocabulary in float32 at once.
        unmasked = int((scored[:, 0] == 0).sum())
        most = _LOGITS_ON_CPU if logits.device.type == "cpu" else _LOGITS_IN_FLOAT
        step = max(1, most // logits.shape[-1])
        starts = [*range(0, unmasked, step), *range(unmasked, len(scored), step)]
        for start, stop in pairwise([*starts, len(scored)]):
            mask, token = scored[start:stop].T
            values = logits[start:stop].float()
            values -= values.logsumexp(-1, keepdim=True)
            at = torch.as_tensor(token, device=values.device)
            logprob = values.gather(-1, self._scored_ids.to(values.device)[at, None])[:, 0]
            self._logprob[mask, token] = logprob.double().cpu().numpy()
            if not self._wants_kl:
                continue
            if self._unmasked is None:
                self._unmasked = values.new_empty(len(self._scored_ids), values.shape[-1])
            if start < unmasked:
                self._unmasked[at] = values
                continue
            base = self._unmasked[at]
            # Not a matrix product, which adds up a large vocabulary too coarsely in float32.
            kl = (base.exp() * values.neg_().add_(base)).sum(-1)
            self._kl[mask, token] = kl.double().cpu().numpy()


def route(collectors: Sequence[ScoreCollector], first_masks: Ints, result: ForwardResult) -> None:
    """Hand the result of a forward pass to the requests that it belongs to."""
    if len(collectors) == 1:
        collectors[0].add(result)
        return
    indices = [np.array([s.index for s in part], dtype=int) for part in (result.whole, result.cached)]
    owner, whole, cached = (
        np.searchsorted(first_masks, masks, "right") - 1 for masks in (result.scored[:, 0], *indices)
    )
    tokens = np.repeat(whole, [sequence.length for sequence in result.whole])
    requests = sorted({*owner.tolist(), *whole.tolist(), *cached.tolist()})
    for done in collectors[: requests[0] if requests else 0]:
        done.release()  # no result will come for it any more
    for request in requests:
        first = int(first_masks[request])
        mine = np.flatnonzero(owner == request)
        kept = torch.as_tensor(np.flatnonzero(tokens == request))
        collectors[request].add(
            ForwardResult(
                result.scored[mine] - np.array([first, 0]),
                result.logits[torch.as_tensor(mine, device=result.logits.device)],
                _renumbered(result.whole, whole == request, first),
                _renumbered(result.cached, cached == request, first),
                {n: pool[kept.to(pool.device)] for n, pool in result.keys.items()},
                {n: pool[kept.to(pool.device)] for n, pool in result.hidden.items()},
            )
        )


def _renumbered(sequences: list[TokenSequence], which: Masks, first: int) -> list[TokenSequence]:
    """Some of the sequences, their masks numbered from those of their request."""
    return [replace(s, index=s.index - first) for s, own in zip(sequences, which, strict=True) if own]


def distinct(masks: Masks) -> tuple[Masks, Ints]:
    """The distinct masks in order of first appearance, and where each mask is among them."""
    numbers: dict[bytes, int] = {}
    inverse = np.array([numbers.setdefault(mask.tobytes(), len(numbers)) for mask in masks])
    return masks[np.unique(inverse, return_index=True)[1]], inverse
