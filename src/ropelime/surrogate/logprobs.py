"""What the rows of a run show, written down for the prompts that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from ropelime.errors import InputError, ModelError
from ropelime.method.scores import Floats, Ints, Masks, QuestionScores, Scores
from ropelime.surrogate.base import ScoreRequest
from ropelime.surrogate.engine import Piece
from ropelime.surrogate.sequences import Row
from ropelime.surrogate.spaces import Space, hidden_planes

if TYPE_CHECKING:
    from ropelime.surrogate.local import LocalScorer, LocalSurrogate

_LOGITS_IN_FLOAT = 1 << 25  # bounds output positions x vocabulary in float32
_LOGITS_ON_CPU = 1 << 19  # as many as its caches hold


class Taker:
    """Hands the pieces of a run to the readings that they belong to."""

    def __init__(self, scoring: Sequence[Readings], numbers: Ints) -> None:
        """Take the readings of each job, and the number of its first mask."""
        self._readings, self._numbers = scoring, numbers
        self._over = 0  # jobs that nothing more will come of

    def take(self, piece: Piece) -> None:
        """Cut a piece into those of the jobs."""
        if len(self._readings) == 1:
            self._readings[0].take(piece)
            return
        owner = np.searchsorted(self._numbers, piece.scoring[:, 0], "right") - 1
        rows = [int(np.searchsorted(self._numbers, row.index, "right")) - 1 for row in piece.whole]
        tokens = np.repeat(rows, [row.length for row in piece.whole]) if rows else np.zeros(0, int)
        looked = [int(np.searchsorted(self._numbers, row.index, "right")) - 1 for row in piece.looking]
        jobs = sorted({*owner.tolist(), *rows, *looked})
        for job in range(self._over, jobs[0] if jobs else 0):
            self._readings[job].forget()
            self._over = job + 1
        for job in jobs:
            base = int(self._numbers[job])
            mine = np.flatnonzero(owner == job)
            kept = torch.as_tensor(np.flatnonzero(tokens == job))
            self._readings[job].take(
                Piece(
                    piece.scoring[mine] - np.array([base, 0]),
                    piece.logits[torch.as_tensor(mine, device=piece.logits.device)],
                    _own(piece.whole, rows, job, base),
                    _own(piece.looking, looked, job, base),
                    {n: pool[kept.to(pool.device)] for n, pool in piece.keys.items()},
                    {n: pool[kept.to(pool.device)] for n, pool in piece.hidden.items()},
                )
            )


def _own(rows: list[Row], jobs: list[int], job: int, base: int) -> list[Row]:
    """The rows of one job, with its own numbers."""
    return [replace(r, index=r.index - base) for r, of in zip(rows, jobs, strict=True) if of == job]


class Readings:
    """What the rows of one job showed, filled up piece by piece."""

    def __init__(self, surrogate: LocalSurrogate, job: ScoreRequest) -> None:
        """Make the rows; nothing is read yet."""
        if not job.masks[0].all():
            raise InputError("The first mask must be the unmasked prompt.")
        scorer = cast("LocalScorer", job.scorer)
        sequences = scorer.sequences
        self._job = job
        self._masks, self._inverse = distinct(job.masks)
        self.rows = scorer.rows(self._masks, cached=job.cached, question=job.question)
        self._questions = questions = sequences.question if job.question else 0
        self._want_kl = kl = job.kl or job.question
        read = np.concatenate([sequences.ids[len(sequences.ids) - questions :], sequences.output_ids])
        self.logprob: Floats = np.full((len(self._masks), len(read)), np.nan)
        self.kl: Floats = np.full((len(self._masks), len(read)), np.nan if kl else 0.0)
        self.kl[0] = 0.0
        self.spaces = [
            Space(settings, surrogate.rotation(settings.layer), sequences, self._masks.shape)
            for settings in job.spaces
        ]
        self._surrogate = surrogate
        self._read = torch.as_tensor(read)  # the tokens of the question and of the output
        self._logp0: torch.Tensor | None = None  # (Q + T, V) log-probabilities, the prompt unmasked

    def scores(self, scored: int, seconds: float, note: str) -> Scores:
        """All that was read."""
        self._check()
        tokens, exact = self.rows.costs()
        job, inverse = self._job, self._inverse
        before, said = slice(self._questions), slice(self._questions, None)
        return Scores(
            job.masks,
            self.logprob[inverse, said],
            self.kl[inverse, said] if job.kl else None,
            {space.settings: space.distance[inverse] for space in self.spaces},
            tokens[inverse],
            scored,
            seconds,
            note,
            exact[inverse],
            QuestionScores(self.logprob[inverse, before], self.kl[inverse, before])
            if self._questions
            else None,
        )

    def layers(self, space: str) -> set[int]:
        """The layers that distances in such a space are read from."""
        return {s.rotation.layer for s in self.spaces if s.settings.space == space}

    def take(self, piece: Piece) -> None:
        """Write down what a piece shows."""
        self._probabilities(piece.scoring, piece.logits)
        for space in self.spaces:
            if piece.whole:
                space.measure(piece.whole, *self._planes(piece, space))
            for row in piece.looking:
                space.look_back(row, self._masks[row.index])

    def forget(self) -> None:
        """Let go of what only further rows would be compared with."""
        self._logp0 = None

    def _planes(self, piece: Piece, space: Space) -> tuple[torch.Tensor, torch.Tensor]:
        layer = space.rotation.layer
        if space.settings.space == "key":
            return space.rotation.key_planes(piece.keys[layer])
        positions = np.concatenate([row.positions for row in piece.whole])
        return hidden_planes(piece.hidden[layer], space.rotation, positions)

    def _probabilities(self, scoring: Ints, logits: torch.Tensor) -> None:
        """Log-probabilities of the output, and divergences from the unmasked prompt."""
        # The unmasked prompt by itself and first, and never much of the vocabulary in float32 at once.
        full = int((scoring[:, 0] == 0).sum())
        most = _LOGITS_ON_CPU if logits.device.type == "cpu" else _LOGITS_IN_FLOAT
        step = max(1, most // logits.shape[-1])
        starts = [*range(0, full, step), *range(full, len(scoring), step)]
        for start, stop in pairwise([*starts, len(scoring)]):
            which, token = scoring[start:stop].T
            values = logits[start:stop].float()
            values -= values.logsumexp(-1, keepdim=True)
            at = torch.as_tensor(token, device=values.device)
            said = values.gather(-1, self._read.to(values.device)[at, None])[:, 0]
            self.logprob[which, token] = said.double().cpu().numpy()
            if not self._want_kl:
                continue
            if self._logp0 is None:
                self._logp0 = values.new_empty(len(self._read), values.shape[-1])
            if start < full:
                self._logp0[at] = values
                continue
            base = self._logp0[at]
            # Not a matrix product, which adds up a large vocabulary too coarsely in float32.
            apart = (base.exp() * values.neg_().add_(base)).sum(-1)
            self.kl[which, token] = apart.double().cpu().numpy()

    def _check(self) -> None:
        """Refuse readings that are not numbers."""
        said = slice(self._questions, None)  # a mask may cut into the question
        fine = np.isfinite(self.logprob[:, said]) & np.isfinite(self.kl[:, said])
        bad = ~np.asarray(fine.all(1))
        if bad.any():
            dtype = str(self._surrogate.model.dtype).removeprefix("torch.")
            raise ModelError(
                f"{self._surrogate.name} gave NaN or infinite probabilities under {int(bad.sum())} of "
                f"{len(bad)} masks in {dtype}. Try dtype='float32'; if that fails too, the model "
                "file is damaged."
            )


def distinct(masks: Masks) -> tuple[Masks, np.ndarray[Any, np.dtype[np.int64]]]:
    """The distinct masks in order of first appearance, and where each mask is among them."""
    numbers: dict[bytes, int] = {}
    inverse = np.array([numbers.setdefault(mask.tobytes(), len(numbers)) for mask in masks])
    return masks[np.unique(inverse, return_index=True)[1]], inverse
