"""The result: ranking, spans of the output, and JSON that comes back exactly or not at all."""

from __future__ import annotations

import base64
import copy
import itertools
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelime import Explanation, InputError, load
from ropelime.files import write_text
from ropelime.method.attribution import Recipe, fit
from ropelime.method.kernels import RopeRWMD
from ropelime.method.scores import QuestionScores
from ropelime.results.explanation import Cost, explained
from ropelime.results.serialization import from_dict
from ropelime.text.features import split
from ropelime.text.prompt import Origin, from_text
from toy import COEF, OUTPUT, additive, scoring, toy

TOY = toy(sampler="exhaustive")


def full(tokens: int = 2, target: str = "kl") -> Explanation:
    """An explanation with divergences, distances and a question, as a real surrogate gives them."""
    rng = np.random.default_rng(0)
    masks = np.vstack([np.ones(3), np.zeros(3), ~np.eye(3, dtype=bool)])
    distance = np.array([0.0, np.nan, 1.5, 0.25, 2.0])
    scores = scoring(
        masks,
        -rng.exponential(size=(5, tokens)),
        rng.exponential(size=(5, tokens)) * (np.arange(5) > 0)[:, None],
        distances={RopeRWMD().space: distance},
    )
    nan = np.nan  # the last mask cut into the question
    question = QuestionScores(
        np.array([[-1.0], [-3], [-2], [-1], [nan]]), np.array([[0.0], [2], [1], [0], [nan]])
    )
    scores = replace(scores, question=question)
    prompt, recipe = from_text("one two three"), Recipe.of(target, "rope-rwmd", "wls")
    data = explained(
        fit(scores.fitted(), recipe), scores, requested=3, notes=(), prompt=prompt, output="ab",
        features=split(prompt, "word"), output_spans=((0, 1), (1, 2)), span=(0, 2), recipe=recipe,
        cost=Cost(5, 40, 0.1), config={**recipe.describe(), "surrogate": {"name": "toy"}},
    )  # fmt: skip
    return Explanation.of(data)


BOTH = [TOY, full(), full(target="evidence")]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("json") / "any.json"


def test_top_is_by_score() -> None:
    assert np.allclose(TOY.normalized_weights, np.abs(COEF.sum(1)) / np.abs(COEF.sum(1)).sum())
    ranking = TOY.top()
    assert [share.text for share in ranking] == ["red ", "black ", "white", "green ", "blue "]
    assert [share.index for share in ranking] == [0, 3, 4, 1, 2]
    assert [share.normalized_weight for share in ranking] == sorted(
        TOY.normalized_weights, reverse=True
    )
    assert TOY.top(2) == ranking[:2]
    assert TOY.top(99) == ranking
    assert TOY.top(0) == []
    with pytest.raises(InputError, match="not negative"):
        TOY.top(-1)


def test_ties_keep_the_order_of_the_text() -> None:
    assert [share.index for share in toy(surrogate=additive(np.zeros(5))).top()] == [0, 1, 2, 3, 4]


def test_arrays_cannot_be_changed() -> None:
    for array in (TOY.normalized_weights, TOY.weights, TOY.token_weights):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_repr_names_the_first_feature() -> None:
    assert repr(TOY) == "<Explanation of 'yes it is' over 5 features; first is 'red' with 43%>"


@pytest.mark.parametrize(
    ("start", "end", "columns"),
    [(0, 9, [0, 1, 2]), (0, 3, [0]), (3, 6, [1]), (4, 5, [1]), (2, 4, [0, 1]), (6, 9, [2])],
)
def test_a_span_of_the_output_is_the_sum_of_its_tokens(
    start: int, end: int, columns: list[int]
) -> None:
    part = TOY.for_output(start, end)
    assert np.allclose(part.weights, COEF[:, columns].sum(1), atol=1e-9)
    assert np.allclose(part.token_weights, TOY.token_weights[:, columns], atol=1e-9)
    assert part.normalized_weights.sum() == pytest.approx(1)
    assert part.span == (start, end)
    assert part.output == OUTPUT


def test_a_span_can_be_narrowed_and_not_widened() -> None:
    part = TOY.for_output(0, 6)
    assert np.allclose(part.for_output(3, 6).weights, COEF[:, 1], atol=1e-9)
    with pytest.raises(InputError, match="0 <= start < end <= 6"):
        part.for_output(3, 9)


def test_a_span_of_white_space_has_no_source() -> None:
    with pytest.raises(InputError, match=r"^The span \(3, 4\) contains only white space; choose"):
        TOY.for_output(3, 4)


@pytest.mark.parametrize("span", [(-1, 3), (3, 3), (5, 2), (0, 10)])
def test_a_span_outside_the_output(span: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="0 <= start < end <= 9 is needed"):
        TOY.for_output(*span)


@pytest.mark.parametrize("e", BOTH, ids=["toy", "full", "evidence"])
def test_exact_round_trip(e: Explanation, tmp_path: Path) -> None:
    path = tmp_path / "why.json"
    e.save(path)
    again = load(path)
    assert again == e
    assert again.to_json() == e.to_json() == path.read_text(encoding="utf-8")
    for name in (
        "normalized_weights",
        "weights",
        "token_weights",
        "intervals",
        "ranks",
        "normalized_intervals",
    ):
        assert np.array_equal(getattr(again, name), getattr(e, name))
    assert np.array_equal(again.surrogate_scores.logprob, e.surrogate_scores.logprob)
    assert (again.surrogate_scores.question is None) == (e.surrogate_scores.question is None)
    if again.surrogate_scores.question is not None and e.surrogate_scores.question is not None:
        assert np.array_equal(
            again.surrogate_scores.question.logprob, e.surrogate_scores.question.logprob, equal_nan=True
        )
        assert np.array_equal(
            again.surrogate_scores.question.kl, e.surrogate_scores.question.kl, equal_nan=True
        )
    assert again.trust == e.trust
    assert again.top() == e.top()
    assert again.diagnostics == e.diagnostics
    assert again.prompt == e.prompt
    assert again.features == e.features


@pytest.mark.parametrize("e", BOTH, ids=["toy", "full", "evidence"])
def test_a_loaded_explanation_explains_spans_as_the_first_one_does(
    e: Explanation, tmp_path: Path
) -> None:
    e.save(tmp_path / "why.json")
    assert load(tmp_path / "why.json").for_output(0, 1) == e.for_output(0, 1)


def test_a_file_of_the_release_before_is_read(tmp_path: Path) -> None:
    data = json.loads(TOY.to_json())
    for key in ("intervals", "trust"):
        del data[key]
    for key in ("question", "exact"):
        del data["surrogate_scores"][key]
    (tmp_path / "old.json").write_text(json.dumps(data))
    old = load(tmp_path / "old.json")
    assert old.intervals is None
    assert old.normalized_intervals is None
    assert old.trust is None
    assert old.surrogate_scores.question is None
    assert old.surrogate_scores.exact.all()
    assert old.ranks.tolist() == [1, 4, 5, 2, 3]
    assert old.top(1)[0].interval is None
    assert np.array_equal(old.weights, TOY.weights)
    assert old.for_output(0, 3).trust is not None, "a new fit has one"
    old.save(tmp_path / "new.json")
    assert load(tmp_path / "new.json") == old
    assert "<html" in old.to_html()


@pytest.mark.parametrize(
    "trust", [{}, {"value": 2, "text": ""}, {"value": None, "text": ""}, {"value": 0.5, "text": 5}, []]
)
def test_damaged_trust(trust: Any) -> None:
    with pytest.raises(InputError, match="is damaged"):
        from_dict(json.loads(TOY.to_json()) | {"trust": trust})


def test_damaged_intervals_and_questions() -> None:
    data = json.loads(full(target="evidence").to_json())
    with pytest.raises(InputError, match="intervals has the shape"):
        from_dict(data | {"intervals": [[0.0, 1.0]]})
    short = {**data["surrogate_scores"]["question"], "kl": data["surrogate_scores"]["logprob"]}
    with pytest.raises(InputError, match="question kl has the shape"):
        from_dict(data | {"surrogate_scores": data["surrogate_scores"] | {"question": short}})


def judged(weights: list[float], half: list[float]) -> Explanation:
    """An explanation with the given weights and half widths."""
    values = np.array(weights)
    size = np.abs(values)
    count = len(values)
    prompt = from_text(" ".join("abcdefghij"[:count]))
    normalized_weights = size / size.sum() if size.any() else np.full(count, 1 / count)
    ends = values[:, None] + np.array(half)[:, None] * np.array([-1, 1])
    return replace(
        TOY,
        prompt=prompt,
        features=split(prompt, "word"),
        weights=values,
        normalized_weights=normalized_weights,
        intervals=ends,
    )


@pytest.mark.parametrize(
    ("weights", "half", "ranks"),
    [
        ([3, 2, 1], [0, 0, 0], [1, 2, 3]),
        ([3, 3, 1], [0, 0, 0], [1, 1, 3]),
        ([-3, 3, 1], [0, 0, 0], [1, 1, 3]),
        ([3, 2, 1], [1.2, 1.2, 1.2], [1, 1, 3]),  # 3 lies in the interval of 2 and not in that of 1
        ([3, 2, 1, 0], [1.2, 1.2, 1.2, 1.2], [1, 1, 3, 3]),
        ([1, 2, 3], [0, 5, 0], [3, 1, 1]),
        ([3, 2, 1], [9, 0, 0], [1, 2, 3]),  # the others are sure not to be so large
        ([0, 0, 0], [0, 0, 0], [1, 1, 1]),
    ],
)
def test_features_that_cannot_be_told_apart_share_a_place(
    weights: list[float], half: list[float], ranks: list[int]
) -> None:
    e = judged(weights, half)
    assert e.ranks.tolist() == ranks
    assert [share.rank for share in e.top()] == sorted(ranks)
    assert [share.interval for share in e.top()] == [
        pytest.approx((weights[s.index] - half[s.index], weights[s.index] + half[s.index]))
        for s in e.top()
    ]


@settings(max_examples=100, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.floats(-9, 9), st.floats(0, 9)), min_size=2, max_size=10),
)
def test_places_and_intervals_of_shares(pairs: list[tuple[float, float]]) -> None:
    weights, half = map(list, zip(*pairs, strict=True))
    e = judged(weights, half)
    places = [share.rank for share in e.top()]
    assert places[0] == 1
    for number, (above, place) in enumerate(itertools.pairwise(places), 2):
        assert place in (above, number)
    ends = e.normalized_intervals
    assert ends is not None
    assert np.all((ends >= 0) & (ends <= 1))
    assert np.all(ends[:, 0] <= e.normalized_weights + 1e-12)
    assert np.all(e.normalized_weights <= ends[:, 1] + 1e-12)
    assert e.ranks.tolist() == judged([-w for w in weights], half).ranks.tolist()


def test_the_interval_of_a_share_reaches_to_zero_where_the_sign_is_not_known() -> None:
    ends = judged([3.0, -1.0], [1.0, 2.0]).normalized_intervals
    assert ends is not None
    assert ends.tolist() == [[0.5, 1.0], [0.0, 0.75]]
    none = judged([0.0, 0.0], [0.0, 0.0]).normalized_intervals
    assert none is not None
    assert none.tolist() == [[0, 1], [0, 1]], "nothing is known"


def test_undefined_figures_survive(tmp_path: Path) -> None:
    e = toy(surrogate=additive(np.zeros((5, 3))))
    assert np.isnan(e.diagnostics.r2)
    e.save(tmp_path / "why.json")
    assert np.isnan(load(tmp_path / "why.json").diagnostics.r2)


def test_equality_is_of_content() -> None:
    assert toy(sampler="exhaustive") == TOY
    assert toy(seed=1) != TOY
    assert TOY != 5


@settings(max_examples=30, deadline=None)
@given(part=st.floats(0, 0.99))
def test_truncated_json(file: Path, part: float) -> None:
    text = TOY.to_json().rstrip()
    file.write_text(text[: int(part * len(text))], encoding="utf-8")
    with pytest.raises(InputError, match="not complete JSON"):
        load(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "not a ropelime explanation"),
        ("null", "not a ropelime explanation"),
        ('{"format": "other"}', "not a ropelime explanation"),
        ('{"format": "ropelime.explanation"}', "version None of the format and this release reads 2"),
        ('{"format": "ropelime.explanation", "version": 3}', "version 3.*pip install -U ropelime"),
        ('{"format": "ropelime.explanation", "version": 2}', "is damaged: KeyError"),
        ("[" * 200_000, "not complete JSON"),
        ("", "not complete JSON"),
    ],
)
def test_foreign_json(file: Path, text: str, message: str) -> None:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load(file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no file"):
        load(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "latin.json")


def paths(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = (
        data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    )
    return [at, *(path for key, value in inside for path in paths(value, (*at, key)))]


DATA = json.loads(full(target="evidence").to_json())
RESULT = [path for path in paths(DATA) if path and path[0] not in ("format", "version")]


@settings(max_examples=200, deadline=None)
@given(
    path=st.sampled_from(RESULT),
    junk=st.sampled_from([None, 5, -1.5, float("inf"), "x", [], [1, 2], {}, {"a": 1}, True]),
)
def test_a_damaged_entry_is_an_input_error_or_harmless(path: tuple[Any, ...], junk: Any) -> None:
    data = copy.deepcopy(DATA)
    entry = data
    for key in path[:-1]:
        entry = entry[key]
    entry[path[-1]] = junk
    try:
        e = Explanation.of(from_dict(data))
    except InputError:
        return
    assert repr(e)
    for view in (e.to_html, e.to_json, e.cite):
        view()


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"normalized_weights": [2.0, 0, 0, 0, 0]}, "a normalised weight is not between 0 and 1"),
        ({"weights": [1e200, 0, 0, 0, 0]}, "a weight is not a finite number"),
        ({"intervals": [[1, 0]] * 5}, "an interval ends before it begins"),
        ({"cost": {"masks": 1, "tokens": 10**400}}, "tokens is too large a number"),
        ({"output": "half a character: \ud800"}, "surrogates not allowed"),
        ({"config": {**DATA["config"], "deep": nested(900)}}, "nested more than 64 levels deep"),
        ({"config": {**DATA["config"], "surrogates": [5]}}, r"surrogates is \[5\]"),
        ({"config": {**DATA["config"], "agreement": "much"}}, "agreement is 'much'"),
        ({"config": {**DATA["config"], "masks": {"exact": 0.5}}}, "masks is {'exact': 0.5}"),
        (
            {"prompt": {**TOY.to_dict()["prompt"], "kind": "chat"}},
            "'chat' is not one of prompt, context",
        ),
        ({"prompt": {**TOY.to_dict()["prompt"], "messages": []}}, "the prompt has no messages"),
        ({"members": [TOY.to_dict()]}, "1 members: some are too few"),
        ({"features": TOY.to_dict()["features"][::-1]}, "features overlap or are not in their order"),
    ],
)
def test_what_views_could_not_display_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_dict({**TOY.to_dict(), **change})


def test_a_part_of_a_message_that_is_not_there() -> None:
    chat = [{"role": "user", "content": [{"text": "red"}, {"text": "green"}]}]
    e = toy(None, messages=chat, features="word", surrogate=additive([1.0, 0.0]))
    data = json.loads(e.to_json())
    assert from_dict(data).prompt.where(0) == "message 1, user"
    data["features"][1]["part"] = 1  # the second part, of the only message
    with pytest.raises(InputError, match="there is no part 1"):
        from_dict(data)


def test_what_a_file_lacks_to_be_extended() -> None:
    data = json.loads(toy(sampler="hadamard", budget=4).to_json())
    del data["config"]["seed"]
    with pytest.raises(InputError, match="cannot be extended"):
        Explanation.of(from_dict(data)).extend(2, surrogate=additive(), progress=False)
    with pytest.raises(InputError, match=r"5 features and 3 output tokens, and new ones of 5 and 1"):
        toy(sampler="hadamard", budget=4).extend(2, surrogate=lambda masks: -1.0 - masks[:, 0])


def test_saving_replaces_the_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "why.json"
    path.write_text("old")
    TOY.save(path)
    assert load(path) == TOY
    assert [p.name for p in tmp_path.iterdir()] == ["why.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "why.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "x" * 100_000 + "\ud800")  # fails half way
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["why.json"]


def test_a_full_disk_is_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "why.json"
    path.write_text("old")
    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(InputError, match="cannot be written: No space left"):
        TOY.save(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["why.json"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "why.json"
    path.write_text("old")
    tmp_path.chmod(0o555)
    with pytest.raises(InputError, match="cannot be written: Permission denied"):
        TOY.save(path)
    assert path.read_text() == "old"


def test_places_that_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no folder"):
        TOY.save(tmp_path / "none" / "why.json")
    with pytest.raises(InputError, match="is a folder"):
        TOY.save(tmp_path)


def test_a_link_is_followed_and_a_device_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "why.json")
    TOY.save(tmp_path / "link")
    assert load(tmp_path / "why.json") == TOY
    assert (tmp_path / "link").is_symlink()
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    write_text(fifo, "through the pipe")
    assert os.read(reader, 100) == b"through the pipe"
    os.close(reader)


def test_where_chunks_come_from_is_saved_and_old_files_load(tmp_path: Path) -> None:
    chunks = [{"text": "red", "source": "a.txt"}, {"text": "green", "page": 2}]
    e = toy(None, context=chunks, question="?", features="document", surrogate=additive([1.0, 0.0]))
    e.save(tmp_path / "why.json")
    assert load(tmp_path / "why.json") == e
    assert load(tmp_path / "why.json").prompt.origins == (Origin("a.txt"), Origin(page="2"))
    data = e.to_dict()
    del data["prompt"]["origins"]  # as releases before wrote it
    assert from_dict(data).prompt.origins == ()
    data["prompt"]["origins"] = [{"source": "a", "sheet": "b"}]
    with pytest.raises(InputError, match="damaged"):
        from_dict(data)


def test_figures_that_are_large_whole_numbers_can_be_shown() -> None:
    data = json.loads(TOY.to_json())
    data["diagnostics"]["r2"] = 10**40
    assert from_dict(data).diagnostics.has_residuals(2)


def test_weights_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    data = json.loads(TOY.to_json())
    data["normalized_weights"] = data["weights"] = [float("nan")] * len(TOY.features)
    (tmp_path / "nan.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match="Out of range float values"):
        load(tmp_path / "nan.json")
    data = json.loads(TOY.to_json())
    infinite = np.full((5, 3), np.inf).tobytes()
    data["token_weights"]["float64"] = base64.b64encode(infinite).decode()
    with pytest.raises(InputError, match="a weight is not a finite number"):
        from_dict(data)
    with pytest.raises(InputError, match="cannot be read"):
        load("a\0b.json")
