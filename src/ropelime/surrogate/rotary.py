"""The rotary position embedding (RoPE) of a model, and distances between prompts in its space.

How a model rotates its keys is measured, not looked up by its name: a wrong pairing of dimensions
would run as well and mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch

from ropelime.errors import ModelError
from ropelime.method import rope
from ropelime.method.rope import Pairing, RopeSpace
from ropelime.surrogate.tokens import TokenizedPrompt, TokenSequence
from ropelime.typing import Floats, Ints, Masks

Planes = tuple[torch.Tensor, torch.Tensor]  # both coordinates in each plane: (tokens, heads, P)

_DISTANCES_AT_ONCE = 1 << 24  # between spans


@dataclass(frozen=True)
class Rotation:
    """The planes of one layer."""

    layer: int
    pairing: Pairing  # which dimensions form a plane
    offset: int  # the first rotated dimension of a head; the rest of a head is not rotated
    frequencies: torch.Tensor  # (P,) radians a position, for each plane of a head

    def key_planes(self, keys: torch.Tensor) -> Planes:
        """The planes of (tokens, heads, d) keys, in float32."""
        end = self.offset + 2 * len(self.frequencies)
        return rope.planes(keys[..., self.offset : end].float(), self.pairing)

    def hidden_planes(self, hidden: torch.Tensor, positions: Ints) -> Planes:
        """The planes of (tokens, H) hidden states, cut into heads and rotated as keys are."""
        width = 2 * len(self.frequencies)
        heads = hidden.shape[-1] // width
        cut = hidden[..., : heads * width].float().reshape(*hidden.shape[:-1], heads, width)
        places = torch.as_tensor(positions, dtype=torch.float32, device=hidden.device)
        # What goes into a layer may still be on the device of the one before it.
        angle = places[:, None, None] * self.frequencies.to(hidden.device)
        return rope.turn(*rope.planes(cut, self.pairing), angle)


def candidates(model: Any) -> list[torch.Tensor]:
    """Every set of frequencies that the model holds, on the CPU; none means that it does not rotate."""
    found: list[torch.Tensor] = []
    for name, buffer in model.named_buffers():
        if name.endswith("inv_freq") and buffer.ndim == 1:
            frequencies = buffer.detach().float().cpu()  # its layers may lie on several devices
            if not any(f.shape == frequencies.shape and torch.equal(f, frequencies) for f in found):
                found.append(frequencies)
    width = getattr(model.config, "rotary_dim", None)
    if not found and isinstance(width, int) and width > 1:  # GPT-J and CodeGen keep tables instead
        found.append(10000.0 ** (-torch.arange(0, width, 2).float() / width))
    return found


def measure(before: torch.Tensor, after: torch.Tensor, model: Any, layer: int) -> Rotation | None:
    """The rotation that takes (q, heads, d) keys of a layer to the same keys one position later.

    None if no candidate explains what happened to the keys.
    """
    best, error = None, 0.5  # seen: at most 0.16 in bfloat16, and at least 1.2 with a wrong pairing
    pairings: tuple[Pairing, ...] = ("half", "interleaved")
    for frequencies in candidates(model):
        offsets = sorted({0, max(0, before.shape[-1] - 2 * len(frequencies))})
        for offset, pairing in product(offsets, pairings):
            rotation = Rotation(layer, pairing, offset, frequencies.to(before.device))
            start, end = (torch.stack(rotation.key_planes(keys)) for keys in (before, after))
            expected = torch.stack(rope.turn(start[0], start[1], rotation.frequencies))
            wrong, moved = (float((planes - end).norm()) for planes in (expected, start))
            if moved > 0 and wrong / moved < error:
                best, error = rotation, wrong / moved
    return best


def refuse(name: str, layer: int | None = None) -> ModelError:
    """The error for a model, or a layer, whose keys do not rotate."""
    what, instead = f"{name} has no rotary position embedding", "a surrogate with RoPE"
    if layer is not None:
        what, instead = f"Layer {layer} of {name} does not rotate its keys", "another layer"
    return ModelError(
        f"{what}, so kernel='rope-rwmd' cannot compute distances in it. Use kernel='hamming', 'cosine' "
        f"or 'uniform' with it, or {instead}."
    )


class RotaryDistances:
    """Distances of masked prompts from the unmasked one, in one rotary space."""

    def __init__(
        self, settings: RopeSpace, rotation: Rotation, tokenized: TokenizedPrompt, masks: Masks
    ) -> None:
        self.settings, self.rotation = settings, rotation
        count, self._features = masks.shape
        self.distance: Floats = np.full(count, np.nan)  # it stays so where nothing is kept
        self._mass = np.ones(self._features)
        if settings.mass == "tokens":
            owned = tokenized.owner[tokenized.owner >= 0]
            self._mass = np.bincount(owned, minlength=self._features).astype(float)
        self._base: tuple[torch.Tensor, torch.Tensor] | None = None  # r, theta: (n, D)
        self._within: Floats | None = None  # (n, n) between the features of the full prompt

    def add(self, sequences: list[TokenSequence], a: torch.Tensor, b: torch.Tensor) -> None:
        """Add sequences that hold the whole masked prompt, and the planes of all their tokens.

        The unmasked prompt must be the first of the first call.
        """
        at = 0
        for group in self._groups(sequences):
            end = at + sum(sequence.length for sequence in group)
            self._add(group, a[at:end], b[at:end])
            at = end

    def _groups(self, sequences: list[TokenSequence]) -> Iterator[list[TokenSequence]]:
        """Groups of sequences that bound the size of the matrix of distances."""
        group: list[TokenSequence] = []
        spans = 0
        for sequence in sequences:
            # At least the features that it keeps: one whose tokens lie apart counts again.
            more = 1 + int(np.count_nonzero(np.diff(sequence.owner)))
            if group and (spans + more) * self._features > _DISTANCES_AT_ONCE:
                yield group
                group, spans = [], 0
            group.append(sequence)
            spans += more
        yield group

    def _add(self, sequences: list[TokenSequence], a: torch.Tensor, b: torch.Tensor) -> None:
        which, owner, r, theta = self._spans(sequences, a, b)
        if self._base is None:
            whole = torch.as_tensor(which == 0, device=r.device)
            self._base = (r[whole], theta[whole])
        between = self._distances(r, theta)
        edges = np.searchsorted(which, np.arange(len(sequences) + 1))
        for sequence, (start, stop) in zip(sequences, pairwise(edges), strict=True):
            mine = slice(start, stop)
            self.distance[sequence.index] = rope.rwmd(
                between[:, mine], self._mass, self._mass[owner[mine]], tight=self.settings.tight
            )

    def add_cached(self, sequence: TokenSequence, mask: Masks) -> None:
        """Add a sequence that attends to the cached prompt.

        Kept features are where they are in the full prompt, so their distance is zero in either
        direction; a removed feature goes to the nearest kept one.
        """
        if self._within is None:
            assert self._base is not None
            self._within = self._distances(*self._base)
        if not mask.any():
            return
        removed = np.flatnonzero(~mask)
        nearest = self._within[np.ix_(removed, np.flatnonzero(mask))].min(1)
        self.distance[sequence.index] = float(nearest @ self._mass[removed]) / float(self._mass.sum())

    def _distances(self, r: torch.Tensor, theta: torch.Tensor) -> Floats:
        assert self._base is not None
        between = rope.polar_distances(*self._base, r, theta, self.settings.beta)
        return np.asarray(between.double().cpu().numpy())

    def _spans(
        self, sequences: list[TokenSequence], a: torch.Tensor, b: torch.Tensor
    ) -> tuple[Ints, Ints, torch.Tensor, torch.Tensor]:
        """(s,) sequence, (s,) feature, (s, D) mean magnitude and (s, D) phase of all that is kept."""
        owner = np.concatenate([sequence.owner for sequence in sequences])
        which = np.repeat(np.arange(len(sequences)), [sequence.length for sequence in sequences])
        token = np.flatnonzero(owner >= 0)
        found, first, span = np.unique(
            which[token] * self._features + owner[token], return_index=True, return_inverse=True
        )
        span = span.reshape(-1)
        at = torch.as_tensor(token, device=a.device)
        a, b = a[at], b[at]
        if self.settings.phase == "relative":
            position = np.concatenate([sequence.positions for sequence in sequences])[token]
            back = torch.as_tensor(position[first[span]], dtype=torch.float32, device=a.device)
            a, b = rope.turn(a, b, -(back[:, None, None] * self.rotation.frequencies.to(a.device)))
        r, theta = rope.span_means(a.flatten(1), b.flatten(1), span, len(found))
        return found // self._features, found % self._features, r, theta
