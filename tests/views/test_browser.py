"""The page in a browser: pointing, keys, figures, hostile text, accessibility, paper, phones, speed."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_html import HOSTILE, TWO, hostile

from ropelime import Explanation, audit, explain, summary
from ropelime.results.explanation import with_verified
from ropelime.results.verdicts import Trust
from ropelime.results.verification import Verified, VerifyingCall
from ropelime.text.features import split
from ropelime.text.prompt import read_prompt
from ropelime.views.findings import QUESTIONS
from ropelime.views.html import payload, static
from toy import COEF, additive, invented, signalled, toy

Page = Any  # of Playwright, which may be missing
Open = Callable[..., Page]
TOY = toy(output=TWO, surrogate=additive(COEF[:, :2]))


@contextmanager
def opening(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Open the report of an explanation from a file, without a network; nothing may go wrong in it."""
    contexts, wrong = [], []

    def open_it(e: Explanation | str, *, width: int = 1280, height: int = 900, **options: Any) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height}, offline=True, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.on("request", lambda r: None if r.url.startswith("file:") else wrong.append(r.url))
        file = tmp_path / "page.html"
        file.write_text(e if isinstance(e, str) else e.to_html(), encoding="utf-8")
        page.goto(file.as_uri())
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Open]:
    with opening(browser, tmp_path) as open_it:
        yield open_it


def settle(page: Page) -> None:
    """Wait for what an event has caused to be drawn."""
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


def counting(
    open_page: Open, e: Explanation, folder: Path
) -> tuple[Page, Callable[[], tuple[int, int]]]:
    """Open a report and count what it does: blocks of its scripts that were run, and layouts.

    Unlike times, the numbers are the same on every machine. Each call gives those since the last one.
    """
    page = open_page("<!doctype html><html lang='en'><title>x</title>")  # scripts that follow count
    browser = page.context.new_cdp_session(page)
    for command in ("Performance.enable", "Profiler.enable"):
        browser.send(command)
    browser.send("Profiler.startPreciseCoverage", {"callCount": True, "detailed": True})
    layouts = 0

    def done() -> tuple[int, int]:
        nonlocal layouts
        scripts = browser.send("Profiler.takePreciseCoverage")["result"]
        functions = (function for script in scripts for function in script["functions"])
        blocks = sum(block["count"] for function in functions for block in function["ranges"])
        metrics = {m["name"]: m["value"] for m in browser.send("Performance.getMetrics")["metrics"]}
        before, layouts = layouts, int(metrics["LayoutCount"])
        return blocks, layouts - before

    done()
    (folder / "page.html").write_text(e.to_html(), encoding="utf-8")
    page.reload()
    return page, done


def ranking(page: Page) -> list[tuple[str, str]]:
    """Text and signed percentage of each row."""
    rows = page.locator(".rl-row").all()
    return [
        (
            row.locator(".rl-row-words").inner_text(),
            row.locator(".rl-row-sign").inner_text() + row.locator(".rl-row-percent").inner_text(),
        )
        for row in rows
    ]


def expected(e: Explanation) -> list[tuple[str, str]]:
    shown = []
    for feature in e.top():
        value = 100 * feature.normalized_weight
        text = f"{value:.0f}%" if value >= 9.95 or value == 0 else f"{value:.1f}%"
        sign = "" if abs(feature.weight) < 1e-9 else "+" if feature.weight > 0 else "−"
        shown.append((feature.text.strip(), sign + text.replace("0.0%", "<0.1%")))
    return shown


def shades(page: Page) -> list[float]:
    """The shade of every feature, negative where it opposes."""
    found: list[float] = page.evaluate(
        """() => [...document.querySelectorAll(".rl-feature")].map((f) =>
            (f.dataset.sign === "opposes" ? -1 : 1) * Number(f.style.getPropertyValue("--depth")))"""
    )
    return found


def with_intervals() -> Explanation:
    e = toy(output=TWO, surrogate=additive(COEF[:, :2]))
    ends = np.column_stack([e.weights - 0.25, e.weights + 0.25])
    return replace(e, intervals=ends, trust=Trust(0.75, "It held up."))


def test_it_shows_the_whole_answer_first(open_page: Open) -> None:
    page = open_page(TOY)
    assert [row[0] for row in ranking(page)] == [row[0] for row in expected(TOY)]
    assert ranking(page)[:3] == expected(TOY)[:3]
    assert shades(page) == pytest.approx(TOY.weights / abs(TOY.weights).max(), abs=0.02)
    assert "No warnings" in page.inner_text(".rl-head")
    assert page.title() == "Yes it is. Now it was. · RoPE-LIME"


@pytest.mark.parametrize("how", ["point", "tab", "click"])
def test_a_sentence_of_the_answer_recolours_the_prompt(open_page: Open, how: str) -> None:
    page = open_page(TOY)
    for number, span in enumerate(TOY.output_sentences):
        sentence = page.locator(".rl-sentence").nth(number)
        if how == "point":
            sentence.hover()
        elif how == "click":
            sentence.click()
        else:
            while not sentence.evaluate("(e) => e === document.activeElement"):
                page.keyboard.press("Tab")
        settle(page)
        part = TOY.for_output(*span)
        assert shades(page) == pytest.approx(part.weights / abs(part.weights).max(), abs=0.02)
        assert ranking(page)[:3] == expected(part)[:3]
        assert TWO[slice(*span)] in page.inner_text(".rl-shown")
    page.keyboard.press("Escape")
    page.mouse.move(0, 0)
    if how == "tab":
        page.evaluate("() => document.activeElement.blur()")
    settle(page)
    assert ranking(page)[:3] == expected(TOY)[:3]


def test_tokens_of_the_answer_too(open_page: Open) -> None:
    e = toy()
    page = open_page(e)  # one sentence, so tokens are what can be pointed at
    page.locator(".rl-token").nth(1).hover()
    settle(page)
    part = e.for_output(3, 6)
    assert ranking(page)[:3] == expected(part)[:3]
    page.get_by_text("Sentences", exact=True).click()
    page.locator(".rl-sentence").first.hover()
    settle(page)
    assert ranking(page)[:3] == expected(e)[:3]


def test_what_can_be_chosen_is_named(open_page: Open) -> None:
    page = open_page(TOY)
    assert page.inner_text(".rl-shown") == "Choose a sentence to see what carried it."
    page.get_by_text("Tokens", exact=True).click()
    settle(page)
    assert page.inner_text(".rl-shown") == "Choose a token to see what carried it."


def test_the_first_screen_has_no_jargon(open_page: Open) -> None:
    page = open_page(signalled())
    shown = page.inner_text(".ropelime")
    for word in ("nats", "R²", "Effective sample size", "per output token", "cached", "KV cache"):
        assert word not in shown
    page.get_by_text("Diagnostics, cost and configuration").click()
    assert "Effective sample size" in page.inner_text(".ropelime")


def test_documents_are_summed(open_page: Open) -> None:
    names = ("One", "Two")
    chunks = [{"text": f"{name} lamps. {name} cups.", "source": f"{name}.txt"} for name in names]
    e = explain(
        context=[*chunks, {"text": "Three lamps.", "source": "One.txt"}], question="Why?", output=TWO,
        surrogate=additive(np.array([[1.0, 1], [2, 0], [0, 4], [0, 0], [1, 0]])), target="nll",
        kernel="uniform", progress=False,
    )  # fmt: skip
    page = open_page(e)
    assert page.locator(".rl-row").count() == 5
    page.get_by_text("Documents", exact=True).click()
    settle(page)
    assert ranking(page) == [("One.txt", "56%"), ("Two.txt", "44%")]
    page.locator(".rl-sentence").nth(1).hover()
    settle(page)
    assert ranking(page) == [("Two.txt", "80%"), ("One.txt", "20%")]
    page.get_by_text("Parts", exact=True).click()
    settle(page)
    assert ranking(page)[0][0] == "Two lamps."
    assert not open_page(TOY).get_by_text("Parts", exact=True).is_visible(), "one text has none"


def test_code_and_tables_line_up(open_page: Open) -> None:
    text = "See the list.\n\n| town | size |\n|------|------|\n| Ulm  | 9    |\n\nWhich one?"
    e = explain(
        text, "So.", surrogate=additive([1.0, 2, 3, 4]), target="nll", kernel="uniform", progress=False
    )
    page = open_page(e)
    fonts = page.evaluate(
        """() => [...document.querySelectorAll(".rl-feature")].map((f) =>
            getComputedStyle(f).fontFamily.includes("monospace"))"""
    )
    assert fonts[0] is fonts[-1] is False
    assert set(fonts[1:-1]) == {True}


def test_a_weight_per_token_is_a_mean_over_the_part(open_page: Open) -> None:
    data = payload(toy(output=TWO, surrogate=additive(COEF[:, :2])))
    whole = {**data, "mean": True, "answer": {**data["answer"], "sentences": [[0, 2]]}}
    page = open_page("<!doctype html><html lang='en'><title>x</title><div id='a'></div>")
    page.add_script_tag(content=static("report.js"))
    page.evaluate("(data) => ropelime.mount(document.getElementById('a'), data)", whole)
    page.get_by_text("Sentences", exact=True).click()
    page.locator(".rl-sentence").first.click()
    settle(page)
    page.get_by_text("Figures", exact=True).click()
    assert f"weight +{COEF[0, :2].mean():.3g} nats" in page.inner_text(".rl-computed")


@pytest.mark.parametrize("how", ["point", "tab", "row"])
def test_a_feature_shows_its_figures(open_page: Open, how: str) -> None:
    e = with_intervals()
    page = open_page(e)
    assert "nats" not in page.inner_text(".rl-detail"), "figures unfold"
    page.get_by_text("Figures", exact=True).click()
    feature = page.locator(".rl-feature").nth(4)  # "white", which opposes
    if how == "point":
        feature.hover()
    elif how == "row":
        page.locator(".rl-row", has_text="white").hover()
    else:
        while not feature.evaluate("(e) => e === document.activeElement"):
            page.keyboard.press("Tab")
    settle(page)
    feature = next(s for s in e.top() if s.index == 4)
    shown = page.inner_text(".rl-detail")
    assert f"{feature.normalized_weight:.0%}" in shown
    assert "opposes the answer · shared rank 2 of 5" in shown, "black has the same weight"
    assert "weight −0.5 nats · 90% interval −0.75 to −0.25" in shown
    assert "white" in shown
    page.wait_for_function(
        "() => document.querySelector('[role=status]').textContent.includes('opposes')"
    )


def test_signals_may_have_the_names_that_javascript_uses(open_page: Open) -> None:
    e = signalled()
    named = dict(zip(("__proto__", "constructor"), e.signals.values(), strict=True))
    page = open_page(replace(e, signals=named))
    page.get_by_text("Figures", exact=True).click()
    assert page.inner_text(".rl-signals") == "__proto__ 50% · constructor 90%"


def test_a_feature_shows_its_signals(open_page: Open) -> None:
    page = open_page(signalled())
    page.get_by_text("Figures", exact=True).click()
    assert page.inner_text(".rl-signals") == "shift 50% · words 90%", "of the first in the ranking"
    page.locator(".rl-feature", has_text="blue").hover()
    settle(page)
    assert page.inner_text(".rl-signals") == "shift 10% · words 10%"
    assert page.inner_text(".rl-range") == "90% interval 0% to 20%"
    assert page.inner_text(".rl-computed p >> nth=0") == "weight 0.1 (nats)"
    page.wait_for_function(
        "() => document.querySelector('[role=status]').textContent.includes('words 10%')"
    )
    page.locator(".rl-token").first.hover()
    settle(page)
    assert not page.locator(".rl-signals").is_visible(), "they are of the whole answer"
    assert not open_page(TOY).locator(".rl-signals").is_visible()


def test_the_legend_has_no_sign_that_no_weight_can_have(open_page: Open) -> None:
    page = open_page(signalled())
    assert page.locator(".rl-sample").all_inner_texts() == ["supports the answer"]
    assert set(page.locator(".rl-row-sign").all_inner_texts()) == {""}
    page = open_page(TOY)
    assert page.locator(".rl-sample").all_inner_texts() == ["+ supports the answer", "− opposes it"]


def test_intervals_and_trust_are_drawn(open_page: Open) -> None:
    page = open_page(with_intervals())
    assert page.locator(".rl-whisker:visible").count() == 5
    assert "75%" in page.inner_text(".rl-trust")
    assert "It held up." in page.inner_text(".rl-trust")
    page.locator(".rl-sentence").first.hover()
    settle(page)
    assert page.locator(".rl-whisker:visible").count() == 0, "they are of the whole answer"


def test_each_verdict_has_its_chance_and_its_sentence(open_page: Open) -> None:
    e = invented()
    assert e.trust is not None
    size = f"{e.trust.value:.0%}"
    page = open_page(e)
    assert f"Trust {size} · No warnings" in page.inner_text(".rl-head")
    title = QUESTIONS[min(e.verdicts, key=lambda verdict: verdict.probability).name]
    assert page.inner_text(".rl-summary") == f"Trust {size}, from “{title}”."
    rows = page.locator(".rl-verdicts li")
    assert rows.count() == 3
    for number, verdict in enumerate(e.verdicts):
        said = rows.nth(number).inner_text()
        assert verdict.text in said
        assert (f"{verdict.probability:.0%}" if verdict.probability < 0.995 else ">99%") in said
        size = (
            rows.nth(number).locator(".rl-meter").evaluate("(m) => m.style.getPropertyValue('--size')")
        )
        assert float(size) == verdict.probability


def test_sentences_are_marked_by_whether_they_have_a_source(open_page: Open) -> None:
    e = invented()
    page = open_page(e)
    chances = [f"{each.probability:.0%}" for each in e.grounding]
    chances = [
        ">99%" if chance == "100%" else "<1%" if chance == "0%" else chance for chance in chances
    ]
    sentences = page.locator(".rl-sentence")
    assert sentences.all_inner_texts() == [
        "Green lamps glow all night.", "Paris hosted queens twice.", "Cats vote often in London."
    ]  # fmt: skip
    titles = [sentences.nth(i).get_attribute("title") for i in range(3)]
    assert titles[0] == f"Comes from the prompt: {chances[0]}"
    assert titles[1:] == [f"No source · Comes from the prompt: {chance}" for chance in chances[1:]]
    assert page.locator(".rl-source").all_inner_texts() == ["✓", "no source", "no source"]
    lines = sentences.evaluate_all("(all) => all.map((s) => getComputedStyle(s).borderBottomStyle)")
    assert lines == ["none", "dotted", "dotted"], "seen without colour"
    assert page.inner_text(".rl-origin") == "2 of 3 sentences have no source in the prompt."
    sentences.nth(2).click()
    settle(page)
    assert page.inner_text(".rl-origin") == titles[2]
    page.wait_for_function(
        "() => document.querySelector('[role=status]').textContent.includes('No source')"
    )
    assert "carries" in page.inner_text(".rl-lead")


def test_the_headline_names_no_part_where_nothing_has_a_source(open_page: Open) -> None:
    page = open_page(TOY)
    assert page.inner_text(".rl-lead") == "No source for this answer was found in the prompt."
    assert page.inner_text(".rl-origin") == "None of its 2 sentences has a source in the prompt."


def test_a_part_without_a_share_is_shown_as_such(open_page: Open) -> None:
    page = open_page(signalled())
    assert page.locator(".rl-row-percent").all_inner_texts() == ["70%", "20%", "10%", *["no share"] * 2]
    assert page.locator(".rl-fill:visible").count() == 3
    page.locator(".rl-feature", has_text="green").hover()
    settle(page)
    assert "–\nno share in the answer\n" in page.inner_text(".rl-detail")
    many = toy(" ".join(f"w{i}" for i in range(12)), surrogate=additive([1.0, 2.0, *[0.0] * 10]))
    many = replace(many, weights=np.eye(12)[0], normalized_weights=np.eye(12)[0])
    assert open_page(many).inner_text(".rl-more") == "Show all 12; 11 of them have no share"


def test_verifying_calls_are_there_and_decide_the_order(open_page: Open) -> None:
    calls = (
        VerifyingCall("without", (0,), TWO, TWO, 1.0, False),
        VerifyingCall("without", (3,), TWO, "<b>No.</b>", 0.0, True),
    )
    seen = Verified("m", "http://there/v1", {}, "answer_f1", 0.5, 2, calls)
    e = with_verified(TOY, seen)
    page = open_page(e)
    assert ranking(page)[0][0] == "black"
    assert [row[0] for row in ranking(page)] == [row[0] for row in expected(e)]
    assert "Without black m answers differently." in page.inner_text(".rl-head")
    trust = page.inner_text(".rl-trust")
    assert "Verified by 2 further calls of m" in trust
    assert "Without “black”\nchanged (0.00)\n<b>No.</b>" in trust
    page.locator(".rl-row").nth(1).click()
    settle(page)
    assert page.inner_text(".rl-detail .rl-excerpt") == "red"
    assert page.locator(".rl-row").nth(1).get_attribute("data-on") == ""


def test_shared_places_are_seen_and_heard(open_page: Open) -> None:
    page = open_page(with_intervals())
    assert page.locator(".rl-row-rank").all_inner_texts() == ["1", "2=", "2=", "2=", "5"]
    assert page.locator(".rl-row", has_text="white").locator(".rl-hidden").text_content() == (
        ", shared rank 2, opposes, "
    )
    assert page.locator(".rl-feature").nth(4).get_attribute("data-rank") == "2="
    page.locator(".rl-sentence").first.hover()
    settle(page)
    ranks = page.locator(".rl-row-rank").all_inner_texts()
    assert ranks == ["1", "2", "3", "4", "5"], "a part of the answer has no intervals"


def test_warnings_and_configuration_are_there_in_words(open_page: Open) -> None:
    page = open_page(toy(surrogate=additive([0.0] * 5)))
    assert "2 warnings" in page.inner_text(".rl-head")
    assert "hardly depends on these features" in page.inner_text(".rl-warnings")
    assert not page.get_by_text("leave-one-out").is_visible()
    page.get_by_text("Cost and configuration").click()
    assert page.get_by_text("leave-one-out").is_visible()


def test_arrow_keys_go_through_the_features_and_many_are_one_tab_stop(open_page: Open) -> None:
    n = 60
    e = toy(" ".join(f"w{i}" for i in range(n)), surrogate=additive(np.arange(n) / n))
    page = open_page(e)
    assert page.locator(".rl-feature[tabindex='0']").count() == 1
    page.locator(".rl-feature").first.focus()
    for key, text in (("ArrowRight", "w1"), ("End", "w59"), ("ArrowUp", "w58"), ("Home", "w0")):
        page.keyboard.press(key)
        assert page.evaluate("() => document.activeElement.textContent") == text
        assert page.locator(".rl-feature[tabindex='0']").count() == 1
    page.keyboard.press("Enter")
    settle(page)
    assert page.locator(".rl-feature[aria-pressed='true']").inner_text() == "w0"


def test_a_feature_in_two_pieces_is_shaded_in_both(open_page: Open) -> None:
    e = explain(
        context=["One. Two.", "Three."], question="Why now?", output="so",
        features=[(0, 7), (14, 25), (28, 31)], surrogate=additive([1.0, 2, 3]), target="nll",
        kernel="uniform", progress=False,
    )  # fmt: skip
    page = open_page(e)
    assert shades(page) == pytest.approx([1 / 3, 2 / 3, 2 / 3, 1], abs=0.02)
    page.locator(".rl-feature", has_text="Two").click()
    settle(page)
    assert page.locator(".rl-feature[aria-pressed='true']").all_inner_texts() == ["Two.", "Three"]
    page.keyboard.press("Escape")
    settle(page)
    assert page.locator(".rl-feature[aria-pressed='true']").count() == 0


@pytest.mark.parametrize("text", [*HOSTILE, "\u202eabc"])
def test_hostile_text_is_text(open_page: Open, text: str) -> None:
    page = open_page(hostile(text))
    assert page.evaluate("() => window.hacked") is None
    assert page.locator("script").count() == 3
    assert page.locator("img, iframe, object, style + style").count() == 0
    shown = text.strip().replace("\u202e", "[U+202E]").replace("\u2028\u2029", "[U+2028][U+2029]")
    for place in (".rl-feature", ".rl-label", ".rl-answer-text", ".rl-row-words"):
        assert shown in page.locator(place).first.text_content()
    page.locator(".rl-feature").first.hover()
    page.locator(".rl-token").first.hover()
    settle(page)
    assert page.evaluate("() => window.hacked") is None


def test_a_line_of_a_megabyte(open_page: Open) -> None:
    long = "x" * 1_000_000
    e = toy(
        long + " end", features=[(0, 1_000_000), (1_000_001, 1_000_004)], surrogate=additive([1.0, 2])
    )
    page = open_page(e)
    assert page.locator(".rl-feature").first.evaluate("(f) => f.textContent.length") == 1_000_000
    assert page.locator(".rl-row-words").last.evaluate("(f) => f.textContent.length") < 300
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")


def book(count: int, **coef: float) -> Explanation:
    """Sentences in chunks of twenty; those of some numbers, as ``s130=3.0``, have a weight.

    The weights are put into an explanation of five words: to fit thousands would take minutes.
    """
    sentences = [f"Sentence {i:04} of the book says nothing that anybody needs." for i in range(count)]
    chunks = [" ".join(sentences[i : i + 20]) for i in range(0, count, 20)]
    prompt = read_prompt(context=chunks, question="Why?")
    features = split(prompt, "sentence")
    weights = np.array([coef.get(f"s{i}", 0.0) for i in range(count)])
    assert len(features) == count
    e = toy()
    return replace(
        e,
        prompt=prompt,
        features=features,
        weights=weights,
        normalized_weights=weights / weights.sum(),
        token_weights=np.outer(weights, np.full(len(e.output_spans), 1 / 3)),
        intervals=None,
        config={**e.config, "features": "sentence"},
    )


def test_what_has_no_weight_is_folded(open_page: Open) -> None:
    page = open_page(book(400, s130=3.0, s290=2.0))
    assert page.locator(".rl-feature").count() < 30
    folds = [fold.inner_text() for fold in page.locator(".rl-folded > summary").all()]
    assert folds[0] == "⋯ 6 blocks, 120 sentences without weight"
    assert folds[1] == "⋯ 8 sentences without weight"
    text = page.locator(".rl-prompt")
    assert text.get_by_text("Sentence 0130").first.is_visible()
    assert not text.get_by_text("Sentence 0005").is_visible()
    summary = page.locator(".rl-folded > summary").first
    summary.focus()
    page.keyboard.press("Enter")
    settle(page)
    part = page.locator(".rl-feature[tabindex]", has_text="Sentence 0005")
    part.wait_for(state="attached")  # the arrow keys reach it soon after the fold is open
    assert part.is_visible(), "and is a part now"
    page.keyboard.press("ArrowDown")
    assert page.evaluate("() => document.activeElement.textContent").startswith("Sentence 0000")
    page.keyboard.press("Enter")
    settle(page)
    assert page.locator(".rl-feature[aria-pressed='true']").inner_text().startswith("Sentence 0000")


def test_the_ranking_leads_into_a_fold(open_page: Open) -> None:
    page = open_page(book(400, s130=3.0))
    page.locator(".rl-more").click()
    row = page.locator(".rl-row", has_text="Sentence 0377")
    row.click()
    settle(page)
    part = page.locator(".rl-feature", has_text="Sentence 0377")
    assert part.is_visible()
    assert 0 <= part.evaluate("(f) => f.getBoundingClientRect().top") < 900


def test_a_search_finds_folded_text(open_page: Open, tmp_path: Path) -> None:
    """A link to a text opens its fold, as the browser's own search does."""
    page = open_page(book(400, s130=3.0)).context.new_page()
    page.goto(f"{(tmp_path / 'page.html').as_uri()}#:~:text=Sentence%200377%20of")
    place = page.get_by_text("Sentence 0377")
    place.wait_for(state="visible")
    assert page.locator(".rl-folded[open]").count() == 1


def test_a_short_prompt_has_no_folds(open_page: Open) -> None:
    page = open_page(book(40, s3=1.0))
    assert page.locator(".rl-folded").count() == 0
    assert page.get_by_text("Unfold all").is_hidden()


def test_a_book_opens_at_once(open_page: Open, tmp_path: Path) -> None:
    """About 200,000 tokens: under a second on a machine that does nothing else.

    What takes the time is counted: few elements and layouts, and no more work for each sentence than
    in a book of half the length.
    """
    blocks = []
    for count in (8000, 16000):
        page, done = counting(open_page, book(count, s130=3.0, s7000=1.0), tmp_path)
        ran, layouts = done()
        blocks.append(ran)
        loaded = page.evaluate("() => performance.getEntriesByType('navigation')[0].loadEventEnd")
        nodes = page.evaluate("() => document.querySelectorAll('*').length")
        print(f"\n{count:,} sentences: {loaded:.0f} ms until loaded, {nodes} elements, {ran} blocks")
        assert nodes < 4000
        assert layouts <= 10
    assert 1.8 * blocks[0] < blocks[1] < 2.2 * blocks[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_serious(open_page: Open, scheme: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for e in (with_intervals(), signalled(), invented(), toy(surrogate=additive([0.0] * 5))):
        page = open_page(e, width=width, color_scheme=scheme)
        for act in (lambda: None, lambda: page.locator(".rl-feature").last.click()):  # noqa: B023
            act()
            page.evaluate("() => document.querySelector('.rl-fold').open = true")
            settle(page)
            found = axe.run(page).response["violations"]
            assert [(v["id"], v["impact"], [n["html"] for n in v["nodes"]]) for v in found] == []


def test_light_and_dark_differ_and_the_page_can_choose(open_page: Open) -> None:
    paper = "() => getComputedStyle(document.querySelector('.rl-card')).backgroundColor"
    light, dark = "rgb(255, 255, 255)", "rgb(26, 30, 35)"
    assert open_page(TOY, color_scheme="light").evaluate(paper) == light
    page = open_page(TOY, color_scheme="dark")
    assert page.evaluate(paper) == dark
    page.evaluate("() => document.documentElement.dataset.theme = 'light'")
    assert page.evaluate(paper) == light


def test_support_and_opposition_differ_by_more_than_colour(open_page: Open) -> None:
    page = open_page(TOY)
    lines = page.evaluate(
        """() => [...document.querySelectorAll(".rl-feature")].map((f) =>
            [f.dataset.sign, getComputedStyle(f).textDecorationStyle])"""
    )
    assert ["supports", "solid"] in lines
    assert ["opposes", "dashed"] in lines


def test_paper(open_page: Open) -> None:
    page = open_page(TOY, color_scheme="dark")
    assert len(page.pdf()) > 10_000
    page.emulate_media(media="print")
    page.evaluate("() => window.dispatchEvent(new Event('beforeprint'))")
    assert page.get_by_text("leave-one-out").is_visible()
    assert not page.locator(".rl-modes").is_visible()
    assert page.locator(".rl-row").count() == 5
    paper = "() => getComputedStyle(document.querySelector('.rl-card')).backgroundColor"
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    page.evaluate("() => window.dispatchEvent(new Event('afterprint'))")
    assert not page.evaluate("() => document.querySelector('.rl-fold').open")


def test_a_phone(open_page: Open) -> None:
    page = open_page(TOY, width=360, height=740, has_touch=True)
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    page.locator(".rl-feature").nth(3).tap()
    settle(page)
    assert page.locator(".rl-detail").is_visible()
    assert "shared rank 2 of 5" in page.inner_text(".rl-detail")
    box = page.locator(".rl-detail").bounding_box()
    assert box["y"] + box["height"] <= 741, "the figures stay in view"
    page.locator(".rl-sentence").first.tap()
    settle(page)
    assert ranking(page)[:2] == expected(TOY.for_output(0, 10))[:2]


def test_two_of_them_on_a_page_that_allows_its_own_files_only(browser: Any) -> None:
    body = "<!doctype html><html lang='en'><link rel='stylesheet' href='/report.css'><div id='a'></div>"
    files = {
        "/": ("text/html", body + "<div id='b'></div><script src='/report.js'></script>"),
        "/report.css": ("text/css", static("report.css")),
        "/report.js": ("text/javascript", static("report.js")),
    }
    policy = "default-src 'none'; script-src 'self'; style-src 'self'"

    def serve(route: Any) -> None:
        kind, text = files[route.request.url.removeprefix("http://ropelime.test")]
        headers = {"content-type": f"{kind}; charset=utf-8", "content-security-policy": policy}
        route.fulfill(body=text, headers=headers)

    wrong: list[str] = []
    with browser.new_context() as context:
        context.route("http://ropelime.test/*", serve)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.goto("http://ropelime.test/")
        page.evaluate(
            """(data) => { window.both = ["a", "b"].map((id) =>
                ropelime.mount(document.getElementById(id), data)) }""",
            payload(TOY),
        )
        page.locator("#b .rl-sentence").first.hover()
        settle(page)
        assert "Shaded for" in page.inner_text("#b .rl-shown")
        assert "Shaded for" not in page.inner_text("#a .rl-shown")
        ids = page.evaluate("() => [...document.querySelectorAll('[id]')].map((e) => e.id)")
        assert len(ids) == len(set(ids))
        page.evaluate("() => window.both[0].destroy()")
        assert page.locator("#a > *").count() == 0
        assert page.locator("#b .rl-feature").count() == 5
    assert wrong == []


def test_a_notebook_frame(open_page: Open) -> None:
    page = open_page(f"<!doctype html><html lang='en'><title>x</title>{TOY._repr_html_()}")
    page.locator("summary").click()
    frame = page.frame_locator("iframe")
    frame.locator(".rl-sentence").first.hover()
    frame.locator(".rl-shown", has_text="Shaded for").wait_for()


# The policy and some variables of the page that VS Code shows the outputs of notebooks in.
EDITOR = """<!doctype html><html lang="en"><title>x</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'
'unsafe-eval'; style-src 'unsafe-inline'; connect-src https:; child-src https: data:">
<body style="--vscode-editor-foreground: rgb(212, 212, 212); --vscode-charts-blue: rgb(1, 2, 3);
background: rgb(30, 30, 30)">"""


def test_a_notebook_in_an_editor(open_page: Open) -> None:
    page = open_page(EDITOR + TOY._repr_html_())
    assert page.locator("td").first.evaluate("e => getComputedStyle(e).color") == "rgb(212, 212, 212)"
    bar = page.locator("td span").first
    assert bar.evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(1, 2, 3)"
    page.locator("summary").click()
    page.frame_locator("iframe").locator(".rl-sentence").first.wait_for()


def test_without_scripts_there_is_the_first_view(browser: Any) -> None:
    for html in (EDITOR + TOY._repr_html_(), TOY.to_html()):
        page = browser.new_page(java_script_enabled=False)
        page.set_content(html)
        assert page.locator("tbody tr").count() == 5
        assert page.locator("tbody tr").first.is_visible()
        page.close()


def thousand() -> Explanation:
    """A thousand sentences in paragraphs, and an answer of sixty tokens and several sentences."""
    rng = np.random.default_rng(0)
    coef = rng.normal(0, 0.01, (1000, 60))
    coef[rng.integers(0, 1000, 40), rng.integers(0, 60, 40)] += 1
    chunks = [
        " ".join(f"Sentence {8 * c + s} has some words in it." for s in range(8)) for c in range(125)
    ]
    return explain(
        context=chunks, question="Why?", output=" ".join(["So it is said here."] * 15),
        surrogate=additive(coef), sampler="one-at-a-time", target="nll", kernel="uniform",
        regressor="ridge", progress=False,
    )  # fmt: skip


# Time from a pointer's event to the end of the frame that shows what it did, and how often it did.
REACTION = """async (selector) => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const painted = () => new Promise((done) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = done;
    channel.port2.postMessage(0);
  });
  const elements = [...document.querySelectorAll(selector)];
  const times = [];
  let reactions = 0;
  for (let i = 0; i < 15; i++) {
    await frame();
    await painted();
    const start = performance.now();
    const element = elements[(7 * i) % elements.length];
    element.dispatchEvent(new PointerEvent("pointerover", { bubbles: true, pointerType: "mouse" }));
    await frame();
    if (element.hasAttribute("data-on")) reactions++;
    await painted();
    times.push(performance.now() - start);
  }
  return { times, reactions };
}"""


def test_a_thousand_features_react_at_once(open_page: Open, tmp_path: Path) -> None:
    """In the very next frame, by one layout and by few steps for each feature."""
    e = thousand()
    page, done = counting(open_page, e, tmp_path)
    assert page.locator(".rl-feature").count() == 1000
    assert page.locator(".rl-row").count() == 10
    for rows in (10, 1000):
        for selector in (".rl-sentence", ".rl-feature"):
            done()
            found = page.evaluate(REACTION, selector)
            blocks, layouts = done()
            median, least = statistics.median(found["times"]), min(found["times"])
            print(f"\n1,000 features, {rows} rows, {selector}: {median:.0f} ms, least {least:.0f} ms")
            print(f"{blocks} blocks and {layouts} layouts for 15 events")
            assert found["reactions"] == 15
            assert 0 < blocks <= 15 * 100 * 1000
            assert layouts <= 15 * 4, "a frame has one, and what is said a moment later takes another"
        page.locator(".rl-more").click()
        settle(page)
        assert page.locator(".rl-row").count() == (1000 if rows == 10 else 10)
    page.locator(".rl-sentence").nth(3).click()
    settle(page)
    first = page.locator(".rl-feature[data-rank='1']")
    assert first.evaluate("(f) => f.getBoundingClientRect().top") < 900, "it has come into view"
    part = e.for_output(*e.output_sentences[3])
    assert first.inner_text() == part.top(1)[0].text.strip()
    assert json.dumps(payload(e))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_of_tables(open_page: Open, scheme: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    chunks = ["Lamps last.", {"text": "Cups break.", "source": "https://cups.example/" + "long/" * 40}]
    output = "Yes it is [1]. So it was [2][9]. Now it was."
    options: dict[str, Any] = {
        "features": "document",
        "surrogate": additive([[3.0, 3, 0], [0, 0, 3.0]]),
    }
    audited = audit(
        context=chunks, question="?", output=output, target="nll", progress=False, **options
    )
    for text in (audited.to_html(), summary([audited.explanation, TOY]).to_html()):
        page = open_page(text, width=width, color_scheme=scheme)
        assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
        found = axe.run(page).response["violations"]
        assert [(v["id"], v["impact"], [n["html"] for n in v["nodes"]]) for v in found] == []
    page = open_page(audited.to_html(), width=width)
    verdicts = page.locator("td .rl-badge").all_inner_texts()
    assert verdicts == ["confirmed", "refuted", "unknown"]
    page.locator("a.rl-badge").nth(1).click()
    page.wait_for_selector("tr#mark-2:target")
    assert page.evaluate("() => document.querySelector('tr:target').id") == "mark-2"
