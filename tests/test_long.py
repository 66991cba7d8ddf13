"""Prompts that are longer than the surrogate's window: what is found, and on which scale."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import byte_level, tiny_model
from ropelime import Explanation, InputError, explain, load
from ropelime.errors import Interrupted
from ropelime.method.coarse import FirstLook, choose, window_shares, word_shares
from ropelime.results.close import CloseReading
from ropelime.surrogate.base import Ablation, Lengths, OutputScorer, Progress, Surrogate
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.features import Feature, split
from ropelime.text.passages import passages, reduced, windows
from ropelime.text.prompt import Prompt, from_context, from_messages, read_prompt
from ropelime.typing import Floats, Ints, Masks

WINDOW = 128  # words
PLANTED = "The lighthouse keeper hid the brass key under a loose stone."
OUTPUT = "Below some masonry."  # shares no word with what it comes from
QUESTION = "Where did he put it?"


class WordScorer(OutputScorer):
    """Log-probabilities by the words that are left of a prompt."""

    def __init__(self, texts: list[str], pinned: int) -> None:
        self.output_spans = ((0, 6), (6, 19))
        self._texts, self._pinned = texts, pinned

    def cost(self, masks: Masks, *, cached: bool = False) -> Ints:
        words = np.array([len(text.split()) for text in self._texts])
        return np.asarray(masks @ words + self._pinned + len(self.output_spans))

    def logprob(self, masks: Masks, progress: Progress | None = None) -> tuple[Floats, int]:
        planted = np.array([("stone" in text) * 4.0 + ("keys" in text) * 1.0 for text in self._texts])
        return np.stack([masks @ planted, 0.1 * masks.mean(1)], 1) - 6.0, int(self.cost(masks).sum())


@dataclass(frozen=True)
class Reader(Surrogate):
    """A surrogate that reads so many words at once, and knows where things are."""

    window: int = WINDOW
    name: str = "reader"
    only_output = True

    def fits(self, prompt: Prompt, output: str) -> bool:
        return len(prompt.text.split()) + 2 <= self.window

    def lengths(self, prompt: Prompt, features: tuple[Feature, ...], output: str) -> Lengths:
        words = np.array([len(feature.text.split()) for feature in features])
        return Lengths(words, len(prompt.text.split()) - int(words.sum()), 2, self.window)

    def prepare(
        self, prompt: Prompt, features: tuple[Feature, ...], output: str, *, ablation: Ablation
    ) -> WordScorer:
        assert self.fits(prompt, output), "no window is longer than the surrogate's"
        texts = [feature.text for feature in features]
        return WordScorer(texts, len(prompt.text.split()) - len(" ".join(texts).split()))

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}


def chunks(count: int, planted: int | None, seed: int = 0) -> list[str]:
    """Paragraphs of made-up prose, one of which may hold the planted sentence."""
    rng = np.random.default_rng(seed)
    known = ["river", "town", "market", "hill", "garden", "window", "letter", "winter", "horse"]
    made = []
    for number in range(count):
        lines = [" ".join(rng.choice(known, 7)).capitalize() + "." for _ in range(3)]
        if number == planted:
            lines.insert(1, PLANTED.replace("keeper", "keeper Tom"))
        made.append(" ".join(lines))
    return made


def long_one(planted: int = 40, **options: Any) -> Explanation:
    chosen: dict[str, Any] = {"surrogate": Reader(), "preset": "faithful", "progress": False}
    given: dict[str, Any] = {"context": chunks(64, planted), "question": QUESTION, "output": OUTPUT}
    e: Explanation = explain(**given, **{**chosen, **options})
    return e


@pytest.mark.parametrize("planted", [0, 17, 40, 63])
def test_ten_windows_find_the_planted_part(planted: int) -> None:
    e = long_one(planted)
    assert e.config["read"]["of_tokens"] > 10 * WINDOW
    assert "stone" in e.top(1)[0].text
    assert e.features[e.top(1)[0].index].part == planted
    assert e.normalized_weights.sum() == pytest.approx(1)
    assert e.top(1)[0].normalized_weight > 0.5
    read = e.config["read"]
    assert 0 <= read["overlooked"] < 0.5
    assert read["tokens"] <= WINDOW
    assert any("read closely" in note or "closely" in note for note in e.diagnostics.notes)


def test_a_prompt_that_fits_is_explained_as_before() -> None:
    short: dict[str, Any] = {"context": chunks(4, 2), "question": QUESTION, "output": OUTPUT}
    short |= {"preset": "faithful", "progress": False}
    e = explain(**short, surrogate=Reader())
    wide = explain(**short, surrogate=Reader(window=10_000))
    assert "read" not in e.config
    assert e.to_dict() == wide.to_dict()


def test_everything_else_works_on_a_long_one(tmp_path: Any) -> None:
    e = long_one()
    e.save(tmp_path / "e.json")
    assert load(tmp_path / "e.json") == e
    part = e.for_output(0, 5)
    assert "stone" in part.top(1)[0].text
    assert part.normalized_weights.sum() == pytest.approx(1)
    assert part.config["read"] == e.config["read"]
    assert part.normalized_intervals is not None
    more = e.extend(5, surrogate=Reader())
    assert more.cost.masks == e.cost.masks + 5
    assert more.config["read"] == e.config["read"]
    assert "stone" in more.top(1)[0].text
    assert more.normalized_weights.sum() == pytest.approx(1)
    assert len(e.grounding) == len(e.cite().sentences)
    assert "closely" in " ".join(more.diagnostics.notes)
    e.save(tmp_path / "e.html")


def test_a_budget_limits_the_first_look() -> None:
    e = long_one(budget="900 tokens")
    assert e.config["budget"] == "900 tokens"
    assert e.cost.tokens <= 900
    assert "a part of it was read once" in " ".join(e.diagnostics.notes)
    with pytest.raises(InputError, match="too small"):
        long_one(budget="100 tokens")


def test_refusals_name_cause_and_cure() -> None:
    with pytest.raises(InputError, match=r"Cut the prompt finer"):
        explain(
            "word " * 500 + ". End of it.",
            OUTPUT,
            surrogate=Reader(),
            preset="faithful",
            progress=False,
        )
    with pytest.raises(InputError, match="leaves too little"):
        explain(
            context=chunks(9, 3), question="Why " * 120, output=OUTPUT,
            surrogate=Reader(), preset="faithful", progress=False,
        )  # fmt: skip


def test_an_ensemble_reads_in_windows_of_its_own() -> None:
    e = long_one(surrogate=[Reader(), Reader(window=300, name="wide reader")])
    assert "stone" in e.top(1)[0].text
    assert e.normalized_weights.sum() == pytest.approx(1)
    first, second = (member.config["read"] for member in e.members)
    assert first["window"] < second["window"]
    assert first["of_features"] == second["of_features"]
    assert "stone" in e.for_output(0, 5).top(1)[0].text


def test_interactions_have_the_numbers_of_all_features() -> None:
    e = long_one(interactions=True)
    assert all(0 <= i < len(e.features) for p in e.interactions for i in (p.first, p.second))


@pytest.mark.parametrize("preset", ["evidence", "instant"])
def test_shares_of_a_model_with_a_small_window(preset: Any) -> None:
    given = chunks(30, 11)
    question = "Where did the lighthouse keeper Tom hide the brass key?"
    e = explain(
        context=given, question=question, output="Under a loose stone.",
        surrogate=tiny(), preset=preset, progress=False,
    )  # fmt: skip
    assert e.weights.sum() == pytest.approx(1)
    read = e.config["read"]
    assert read["of_tokens"] > 3 * read["window"]
    found = [i for i, f in enumerate(e.features) if "stone" in f.text]
    assert set(found) <= set(read["features"])
    unread = np.setdiff1d(np.arange(len(e.features)), read["features"])
    assert e.weights[unread].sum() == pytest.approx(read["overlooked"], abs=1e-5)
    assert e.for_output(0, 5).weights.sum() == pytest.approx(1)


def test_the_ends_of_a_chat_are_in_every_window() -> None:
    messages = [
        {"role": "system", "content": "Answer in a word."},
        *({"role": "user", "content": text} for text in chunks(50, 20)),
        {"role": "user", "content": QUESTION},
    ]
    e = explain(messages=messages, output=OUTPUT, surrogate=Reader(), preset="faithful", progress=False)
    assert {0, len(e.features) - 1} <= set(e.config["read"]["features"])
    assert "stone" in e.top(1)[0].text


def tiny() -> LocalSurrogate:
    return LocalSurrogate(tiny_model("llama").model, byte_level("chatml"), name="tiny")


def stopping(after: int) -> Any:
    """Progress that ends in Ctrl-C once so many tokens are done, and once only."""
    pressed: list[int] = []

    def report(done: int, total: int) -> None:
        if done >= after and not pressed:
            pressed.append(done)
            raise KeyboardInterrupt

    return report


def test_progress_counts_all_that_is_planned() -> None:
    seen: list[tuple[int, int]] = []
    e = explain(
        context=chunks(30, 11), question=QUESTION, output="Under a loose stone.",
        surrogate=tiny(), progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    dones = [done for done, _ in seen]
    assert dones == sorted(dones)
    assert 0.8 < seen[0][1] / e.cost.tokens < 1.25, "an honest estimate from the first call"
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize(
    "options",
    [
        {"features": "word"},
        {"features": "word", "interactions": True, "instead_of": "Under some masonry."},
        {"sampler": "leave-one-out", "scoring": "exact"},
        {"preset": "paper"},
        {"budget": 200},
        {"budget": "20000 tokens"},
        {"budget": "5000 tokens"},
    ],
)
def test_the_close_reading_is_foreseen(options: dict[str, Any]) -> None:
    """Whatever it takes: from a few masks to many times the first look."""
    seen: list[tuple[int, int]] = []
    e = explain(
        context=chunks(30, 11), question=QUESTION, output="Under a loose stone.",
        surrogate=tiny(), progress=lambda *now: seen.append(now), **options,
    )  # fmt: skip
    dones = [done for done, _ in seen]
    assert dones == sorted(dones)
    assert seen[-1][0] == seen[-1][1]
    assert all(done <= total for done, total in seen)
    assert 0.8 < seen[0][1] / seen[-1][1] < 1.25
    assert 0.9 < seen[-1][1] / e.cost.tokens < 1.1


@dataclass(frozen=True)
class Served(Reader):
    """A reader that notes each prompt it prepares, which a server is sent at once."""

    sent: list[str] = field(default_factory=list)

    def prepare(
        self, prompt: Prompt, features: tuple[Feature, ...], output: str, *, ablation: Ablation
    ) -> WordScorer:
        self.sent.append(prompt.text)
        return super().prepare(prompt, features, output, ablation=ablation)


def test_progress_sends_nothing_to_a_server() -> None:
    silent, watched = Served(), Served()
    seen: list[tuple[int, int]] = []
    plain = long_one(surrogate=silent)
    e = long_one(surrogate=watched, progress=lambda *now: seen.append(now))
    assert watched.sent == silent.sent
    assert e.weights.tolist() == plain.weights.tolist()


def test_ctrl_c_in_the_first_look_explains_what_was_read(tmp_path: Any) -> None:
    given: dict[str, Any] = {"context": chunks(30, 2), "question": QUESTION, "output": "Under it."}
    whole = explain(**given, surrogate=tiny(), progress=False)
    with pytest.raises(Interrupted) as stopped:
        explain(**given, surrogate=tiny(), progress=stopping(1500))
    e = stopped.value.kept
    assert isinstance(e, Explanation)
    assert e.config["interrupted"]
    assert 0 < e.config["read"]["windows"] < whole.config["read"]["windows"]
    assert "it was interrupted" in " ".join(e.diagnostics.notes)
    assert e.weights.sum() == pytest.approx(1)
    e.save(tmp_path / "e.json")
    assert load(tmp_path / "e.json") == e


def test_ctrl_c_leaves_the_masks_that_were_scored() -> None:
    given: dict[str, Any] = {"context": chunks(9, 2), "question": QUESTION, "output": "So it is. " * 20}
    surrogate = LocalSurrogate(
        tiny_model("llama", max_position_embeddings=4096).model, byte_level("chatml"), name="tiny"
    )
    whole = explain(**given, surrogate=surrogate, progress=False)
    with pytest.raises(Interrupted) as stopped:
        explain(**given, surrogate=surrogate, progress=stopping(2048))
    e = stopped.value.kept
    assert 0 < e.diagnostics.masks_scored < whole.diagnostics.masks_scored
    assert "interrupted" in " ".join(e.diagnostics.notes)
    with pytest.raises(KeyboardInterrupt, match="before enough was scored") as nothing:
        explain(**given, surrogate=surrogate, progress=stopping(0))
    assert not isinstance(nothing.value, Interrupted)


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=60),
    room=st.integers(50, 200),
)
def test_windows_tile_the_passages(sizes: list[int], room: int) -> None:
    runs = windows(sizes, room)
    assert [i for run in runs for i in run] == list(range(len(sizes)))
    assert all(sum(sizes[i] for i in run) <= room for run in runs)


@settings(max_examples=40, deadline=None)
@given(count=st.integers(2, 12), seed=st.integers(0, 99), most=st.integers(5, 60))
def test_passages_tile_the_features(count: int, seed: int, most: int) -> None:
    prompt = from_context(chunks(count, 1, seed), QUESTION)
    features = split(prompt, "sentence")
    tokens = np.array([len(f.text.split()) for f in features])
    runs = passages(features, tokens, prompt.text, most)
    assert [i for run in runs for i in run] == list(range(len(features)))
    assert all(len({features[i].part for i in run}) == 1 for run in runs)
    assert all(len(run) == 1 or tokens[run.start : run.stop].sum() <= most for run in runs)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), kind=st.sampled_from(["context", "messages", "prompt"]))
def test_a_reduced_prompt_holds_what_was_kept(data: Any, kind: str) -> None:
    texts = chunks(6, 2, data.draw(st.integers(0, 9)))
    prompt = {
        "context": lambda: from_context(texts, QUESTION),
        "messages": lambda: from_messages([{"role": "user", "content": t} for t in texts]),
        "prompt": lambda: read_prompt(" ".join(texts), None, None, None),
    }[kind]()
    features = split(prompt, "sentence")
    keep = sorted(data.draw(st.sets(st.integers(0, len(features) - 1), min_size=2)))
    short, kept = reduced(prompt, features, keep)
    assert [f.text for f in kept] == [features[i].text for i in keep]
    assert all(short.text[f.start : f.end] == f.text for f in kept)
    assert ("Where did he" in short.text) == (kind == "context")
    assert [f.text for f in split(short, [(f.start, f.end) for f in kept])] == [f.text for f in kept]
    whole, same = reduced(prompt, features, range(len(features)))
    assert (whole, same) == (prompt, features)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(2, 40), k=st.integers(1, 20), seed=st.integers(0, 99))
def test_one_scale(n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(n))
    close = CloseReading.of(np.sort(rng.permutation(n)[: min(k, n)]), shares, np.full(n, 0.1))
    inner = rng.dirichlet(np.ones(len(close.features)))
    for whole in (close.weights(inner, shares=True), close.weights(inner, shares=False)):
        assert (whole / whole.sum()).sum() == pytest.approx(1)
        ratio = whole[close.features] / whole[close.features].sum()
        np.testing.assert_allclose(ratio, inner, atol=1e-12)
        np.testing.assert_allclose(whole / whole.sum(), close.weights(inner, shares=True), atol=1e-9)
    assert close.weights(inner, shares=True).sum() == pytest.approx(1)


def test_a_window_counts_by_what_it_adds_to_the_others() -> None:
    shares = window_shares(
        [np.array([-1.0, -3.0]), np.array([-1.0, -0.5]), np.array([-1.1, -3.0])], np.array([-4.0, -4.0])
    )
    np.testing.assert_allclose(shares, [0, 1, 0])


def test_passages_are_taken_from_each_ranking_in_turn() -> None:
    words, model = word_shares(np.array([0.0, 1, 0, 0])), np.array([0.0, 0, 0, 1.0])
    look = FirstLook.of({"words": words, "model": model}, 4)
    runs = [range(i, i + 1) for i in range(4)]
    assert choose(look, runs, [5, 5, 5, 5], 10) == [1, 3]
    assert choose(look, runs, [5, 5, 5, 5], 5) == [1]
    nothing = FirstLook.of({"words": np.zeros(4), "model": np.zeros(4)}, 4)
    assert nothing.shares.sum() == pytest.approx(1)
