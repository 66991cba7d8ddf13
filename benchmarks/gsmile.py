"""gSMILE as its paper describes it: generate an answer for every perturbed prompt, and regress.

Each perturbation keeps a random half of the words, and the model answers every perturbed prompt. The
target is the Wasserstein distance between the embeddings of the new answer and of the original one; the
sample weight is a Gaussian of the same distance between the prompts. It costs one generation for each
perturbation.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from benchmarks.data import Example
from benchmarks.evaluation import agreement
from ropelime.errors import InputError, ModelError
from ropelime.method.regression import WLS
from ropelime.method.samplers import Bernoulli
from ropelime.typing import Floats, Masks

PERTURBATIONS = 60


class Generator(Protocol):
    """Something that answers prompts."""

    def answer(self, prompts: Sequence[str]) -> list[str]:
        """One answer for each prompt."""
        ...


class Embedder(Protocol):
    """Something that turns a text into a point cloud."""

    def embed(self, text: str) -> Floats:
        """(tokens, d) vectors; at least one."""
        ...


@dataclass
class ChatGenerator:
    """Answers from any OpenAI-compatible chat endpoint.

    Attributes:
        model: The model's name there.
        base_url: Its address; the SDK's default if not given.
        tokens: The longest answer.
    """

    model: str
    base_url: str | None = None
    tokens: int = 32

    def answer(self, prompts: Sequence[str]) -> list[str]:
        """One call for each prompt, one after the other."""
        try:
            from openai import OpenAI, OpenAIError
        except ImportError:
            raise InputError(
                "Chat endpoints need the SDK: pip install 'ropelime[benchmarks]'"
            ) from None
        try:
            client = OpenAI(base_url=self.base_url)
            return [self._reply(client, prompt) for prompt in prompts]
        except OpenAIError as error:
            first = str(error).split("\n")[0][:200]
            raise ModelError(
                f"The chat endpoint gave no answer ({first}). Check OPENAI_API_KEY, --generator and "
                "--base-url; the same command resumes the run."
            ) from None

    def _reply(self, client: Any, prompt: str) -> str:
        reply: Any = client.chat.completions.create(
            model=self.model,
            messages=[{"role": "user", "content": prompt}],
            max_tokens=self.tokens,
            temperature=0,
        )
        return reply.choices[0].message.content or ""


@dataclass
class GSmile:
    """The baseline, with its generations and seconds counted.

    Attributes:
        generator: Answers the prompts.
        embedder: Embeds texts for the distances.
        perturbations: Number of perturbed prompts; the original one is answered as well.
    """

    generator: Generator
    embedder: Embedder
    perturbations: int = PERTURBATIONS

    def attribute(self, example: Example, rng: np.random.Generator) -> tuple[Floats, Masks, int]:
        """Scores of the features, the masks, and the generations they took."""
        masks = Bernoulli().sample(len(example.spans), budget=self.perturbations, rng=rng).masks
        prompts = [example.prompt, *(_kept(example, mask) for mask in masks)]
        answers = self.generator.answer(prompts)
        moved = self._distances(answers)
        near = self._distances(prompts)
        sigma = float(np.median(near[1:])) or 1.0
        weights = np.exp(-((near / sigma) ** 2))
        everything = np.concatenate([np.ones((1, masks.shape[1]), dtype=bool), masks])
        size = np.abs(WLS().fit(everything, moved, weights).coef)
        return size / size.sum() if size.sum() > 0 else size, masks, len(prompts)

    def row(self, example: Example, rng: np.random.Generator) -> dict[str, Any]:
        """The metrics of one example, for a results file."""
        start = time.perf_counter()
        scores, masks, generations = self.attribute(example, rng)
        seconds = time.perf_counter() - start
        found = agreement(scores, example.gold)
        return {
            "iou": round(found.iou, 6),
            "f1": round(found.f1, 6),
            "auroc": None if found.auroc is None else round(found.auroc, 6),
            "masks": len(masks) + 1,
            "generations": generations,
            "seconds": round(seconds, 4),
        }

    def _distances(self, texts: Sequence[str]) -> Floats:
        """(N,) Wasserstein distance of each text from the first one."""
        first = self.embedder.embed(texts[0])
        known: dict[str, float] = {texts[0]: 0.0}
        for text in texts:
            if text not in known:
                known[text] = wasserstein(first, self.embedder.embed(text))
        return np.array([known[text] for text in texts])


def wasserstein(x: Floats, y: Floats) -> float:
    """Earth mover's distance between two uniform point clouds, with Euclidean ground distance."""
    from scipy.optimize import linprog
    from scipy.sparse import identity, kron, vstack
    from scipy.spatial.distance import cdist

    n, m = len(x), len(y)
    rows = kron(identity(n), np.ones((1, m)))
    columns = kron(np.ones((1, n)), identity(m))
    masses = np.concatenate([np.full(n, 1 / n), np.full(m, 1 / m)])
    solved = linprog(
        cdist(x, y).ravel(), A_eq=vstack([rows, columns]), b_eq=masses, bounds=(0, None), method="highs"
    )
    return float(solved.fun)


def _kept(example: Example, mask: Masks) -> str:
    words = (example.prompt[a:b] for (a, b), keep in zip(example.spans, mask, strict=True) if keep)
    return " ".join(words) or " "
