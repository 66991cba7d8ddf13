"""The terminal view: what it says, and that no text can act on the terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from ropelime import Explanation
from ropelime.results.verdicts import Trust, Verdict
from ropelime.views.terminal import show, to_svg
from toy import COEF, additive, invented, signalled, toy


def shown(e: Explanation, *, colour: bool = False, width: int = 100, **how: Any) -> str:
    file = io.StringIO()
    console = Console(
        file=file, width=width, force_terminal=colour, color_system="truecolor" if colour else None
    )
    show(e, console=console, **how)
    return file.getvalue()


def words(*texts: str) -> Explanation:
    """An explanation over the given texts as features."""
    spans, prompt = [], ""
    for text in texts:
        spans.append((len(prompt), len(prompt) + len(text)))
        prompt += text + "\n"
    coef = [float(len(texts) - i) for i in range(len(texts))]
    return toy(prompt, features=spans, surrogate=additive(coef, -20))


def test_it_shows_the_prompt_the_answer_and_the_ranking() -> None:
    text = shown(toy(sampler="exhaustive"), top=3, details=True)
    assert "red¹ green blue black² white⁻³" in text
    assert "yes it is" in text
    ranked = [line for line in text.splitlines() if "█" in line]
    assert [line.split()[-1] for line in ranked] == ["red", "black", "white"]
    assert [line.split()[:2] for line in ranked] == [["1", "43%"], ["2", "34%"], ["3", "14%"]]
    assert ["+█" in line for line in ranked] == [True, True, False]
    assert "function scored 32 masked prompts" in text
    assert "R² 1.00" in text


def test_no_colour_codes_off_a_terminal() -> None:
    assert "\x1b" not in shown(toy())
    assert "\x1b[" in shown(toy(), colour=True)


def test_supporting_and_opposing_features_have_different_colours() -> None:
    # Blue for "red", the largest support; orange for "white", which opposes by a third of it.
    text = shown(toy(), colour=True)
    assert "48;2;8;81;156" in text.split("red")[0]
    assert "48;2;225;171;138" in text.split("white")[0]


def test_ranks_are_raised_where_there_is_no_colour() -> None:
    assert "red¹ " in shown(toy(sampler="exhaustive"))
    assert "red " in shown(toy(), colour=True)
    assert "¹" not in shown(toy(), colour=True)
    assert "¹" not in shown(toy(surrogate=additive([0.0] * 5))), "nothing is ranked by no weight"


@pytest.mark.parametrize("width", [30, 60, 120, 240])
def test_it_fits_the_width(width: int) -> None:
    text = shown(toy(), width=width)
    assert max(map(len, text.splitlines())) <= width
    longest = max(line.count("█") for line in text.splitlines())
    assert longest == min(max(width // 4, 6), 30)
    assert len(re.findall(r"\bred", text)) == 2


def test_bars_are_in_proportion_to_an_eighth_and_never_empty() -> None:
    rows = [line for line in shown(words(*"abcdefgh"), top=8).splitlines() if "+" in line]
    assert f"+{25 * '█'} " in rows[0]
    assert "+███▏ " in rows[-1], "an eighth of 25"
    tiny = toy(surrogate=additive([1.0, 1e-6, 0, 0, 0]))
    assert "+▏" in shown(tiny)


def test_intervals_and_trust_are_shown_where_they_are_known() -> None:
    e = toy()
    ends = np.column_stack([e.weights - 0.4, e.weights + 0.35])
    e = replace(e, intervals=ends, trust=Trust(0.9, "It held up."))
    assert "1= 43% 31% to 53% +█" in shown(e, details=True), "1.1 and 1.85 of 3.5"
    assert "1= 43% +█" in shown(e), "a person needs the share alone"
    assert "trust 90% · It held up. (--details says more)\n" in shown(e)
    assert "trust 90% · It held up.\n" in shown(e, details=True)


def test_each_verdict_has_a_line_of_its_own() -> None:
    verdicts = (Verdict("rests", 0.04, "By heart."), Verdict("understood", 0.93, "Well read."))
    e = replace(toy(), trust=Trust(0.04, "By heart.", verdicts))
    lines = shown(e, details=True).splitlines()
    at = lines.index("trust 4% · By heart.")
    assert lines[at + 1].rstrip() == "  rests       4% as above", "a sentence is said once"
    assert lines[at + 2].rstrip() == "  understood 93% Well read."
    assert "understood" not in shown(e)
    assert "understood" not in shown(replace(e, trust=Trust(0.04, "By heart.")), details=True)


def test_no_share_is_not_a_share_of_nothing() -> None:
    lines = shown(signalled(), details=True).splitlines()
    rows = [line.split() for line in lines if line.startswith("4=")]
    assert rows == [["4=", "–", "0%", "to", "10%", word] for word in ("green", "white")]
    assert "no share" not in shown(signalled()), "all are listed"
    assert "\n1 more part has no share" in shown(signalled(), top=4)
    assert "\n2 parts have no share" in shown(signalled(), top=3)


@pytest.mark.parametrize("colour", [False, True])
def test_sentences_without_a_source_say_so(colour: bool) -> None:
    text = re.sub(r"\x1b\[[\d;]*m", "", shown(invented(), colour=colour, width=200))
    assert "\nGreen lamps glow all night. Paris hosted queens twice. [no source] Cats vote" in text
    assert "in London. [no source]\n" in text
    assert ("\x1b[2mCats vote" in shown(invented(), colour=colour, width=200)) is colour


def test_places_that_cannot_be_told_apart_are_shared() -> None:
    e = toy(sampler="exhaustive")
    e = replace(e, intervals=np.column_stack([e.weights - 0.4, e.weights + 0.4]))
    text = shown(e)
    ranked = [line for line in text.splitlines() if "█" in line]
    assert [line.split()[0] for line in ranked] == ["1=", "1=", "3=", "3="]
    assert "red¹⁼ green⁻³⁼ blue" in text
    assert "black¹⁼ white⁻³⁼" in text


def test_a_file_of_an_older_release_has_no_intervals_and_no_trust() -> None:
    text = shown(replace(toy(), intervals=None, trust=None))
    assert "1 43% +█" in text
    assert "trust" not in text


def test_warnings_are_shown() -> None:
    assert "! The output hardly depends" in shown(toy(surrogate=additive([0.0] * 5)))


def test_the_explained_span_is_marked() -> None:
    e = toy("yes it was. no more. so.", features="sentence", surrogate=additive(COEF[[0, 2, 3]] * 2))
    assert "\x1b[7myes\x1b[0m it is" in shown(e.for_output(0, 3), colour=True)
    without = shown(toy().for_output(0, 3), colour=True)
    assert "\x1b[2;7myes\x1b[0m" in without, "and it has no source"


@pytest.mark.parametrize("text", ["[bold]x[/bold]", "[/red]", "[link=http://a]b", ":smile:", "\\[x]"])
def test_markup_in_the_text_is_text(text: str) -> None:
    view = shown(words(text, "other"))
    assert view.count(text) == 2, "in the prompt and in the ranking"


@pytest.mark.parametrize("code", ["\x1b[31m", "\x1b]0;title\x07", "\x08", "\x9b2J", "\u202e", "\r"])
def test_control_characters_do_not_reach_the_terminal(code: str) -> None:
    e = words(f"a{code}b", "other")
    answer = toy(output=f"one{code}two three")
    for view in (shown(e), shown(answer), shown(answer.for_output(0, 5))):
        assert code[0] not in view
        assert "\N{REPLACEMENT CHARACTER}" in view


@pytest.mark.parametrize("text", ["«\xa0oui\u202f!\xa0»", "日本\u3000語", "👩‍🚀", "می‌خواهم", "naïve"])
def test_ordinary_text_of_any_script_is_shown_as_it_is(text: str) -> None:
    assert text in shown(words(text, "other"))


def test_a_top_of_none_or_of_more_than_there_are() -> None:
    assert "█" not in shown(toy(), top=0)
    assert shown(toy(), top=99).count("the 5 largest weights") == 1


def test_the_picture_is_the_same_each_time_and_holds_the_prompt() -> None:
    e = toy()
    picture = to_svg(e)
    assert picture == to_svg(e)
    assert picture.startswith("<svg")
    assert "answer" in picture


def test_chunks_are_named_in_the_ranking_where_they_have_a_source() -> None:
    chunks = [
        {"text": "One.", "source": "a.txt"},
        {"text": "Two.", "source": "b\x1b[31m.pdf", "page": 4},
    ]
    e = toy(None, context=chunks, features="document", surrogate=additive([1.0, 2.0]))
    ranked = [line for line in shown(e).splitlines() if "█" in line]
    assert ["b�[31m.pdf, page 4 Two." in line for line in ranked] == [True, False]
    assert ranked[1].split()[-2:] == ["a.txt", "One."]
    assert all(len(line) <= 40 for line in shown(e, width=40).splitlines())
    long = [{"text": "One.", "source": f"{'folder/' * 9}a.txt"}, "Two."]
    e = toy(None, context=long, features="document", surrogate=additive([1.0, 2.0]))
    assert "…lder/folder/folder/a.txt One." in shown(e)


def test_signals_are_shown_where_there_is_room() -> None:
    wide, narrow = (shown(signalled(), width=width, details=True) for width in (140, 139))
    (first,) = [line for line in wide.splitlines() if "70%" in line]
    assert first.split("█ ")[1].split() == ["shift", "50%,", "words", "90%", "red"]
    assert "shift" not in narrow
    assert max(map(len, wide.splitlines())) <= 140
    assert "shift" not in shown(toy(), width=200, details=True)
    assert "shift" not in shown(signalled(), width=140)


def test_the_key_has_no_sign_that_no_weight_can_have() -> None:
    assert "prompt · raised numbers are ranks, ⁻ opposes" in shown(toy())
    assert "prompt · blue supports the answer, orange opposes it" in shown(toy(), colour=True)
    assert "opposes" not in shown(signalled())
    assert "prompt · blue supports the answer " in shown(signalled(), colour=True)


def test_a_fit_that_does_not_exist_has_no_figure() -> None:
    e = toy(sampler="exhaustive")
    assert "· R² " in shown(e, details=True)
    without = replace(e, diagnostics=replace(e.diagnostics, r2=float("nan")))
    assert "· R² " not in shown(without, details=True)
    alone = toy(sampler="leave-one-out")
    assert alone.diagnostics.r2 == pytest.approx(1)
    assert "· R² " not in shown(alone, details=True), "as many scores as unknowns: any fit is exact"
    assert '"Fit"' not in alone.to_html()


def test_names_of_a_loaded_file_cannot_act_on_the_terminal() -> None:
    """Those of signals, presets and surrogates are text of the file, and no markup."""
    name = "\x1b]0;title\x07[/red]"
    signals = {name: signalled().signals["shift"]}
    also = replace(toy(), config={**toy().config, "preset": name})
    text = shown(replace(signalled(), signals=signals, also=also), width=200, details=True)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.count("[/red]") == 6, "of five features, and of the other preset"


# Long prompts.


def long(count: int, heavy: dict[int, float], **options: Any) -> Explanation:
    """Sentences in chunks of twenty, some of them with a weight."""
    sentences = [f"Sentence {i:03} of the book says nothing that anybody needs." for i in range(count)]
    chunks = [" ".join(sentences[i : i + 20]) for i in range(0, count, 20)]
    named = [{"text": text, "source": f"{i + 1}.txt"} for i, text in enumerate(chunks)]
    coef = [heavy.get(i, 0.0) for i in range(count)]
    given = {"context": named, "question": "Which one?", "features": "sentence"}
    return toy(None, **{**given, "surrogate": additive(coef, -9), **options})


def test_a_long_prompt_is_shown_where_it_matters() -> None:
    e = long(400, {130: 3.0, 131: 1.0, 290: 2.0})
    lines = shown(e).splitlines()
    assert len(lines) < 40
    text = "\n".join(lines)
    for number, rank in ((130, "¹"), (290, "²"), (131, "³")):
        assert re.search(rf"Sentence {number}[^.]*\.{rank}", " ".join(text.split()))
    names = [line for line in lines if re.match(r"\[chunk", line)]
    assert names == ["[chunk 7, 7.txt]", "[chunk 15, 15.txt]"]
    assert "⋯ 6 chunks, 120 sentences without weight (--full)" in lines
    assert "⋯ 8 sentences without weight (--full)" in lines, "before the surroundings"
    assert "Sentence 129" in text
    assert "Sentence 120" not in text
    at = lines.index("Which one?")
    assert not lines[at - 1], "the question is always there, apart from the last chunk"
    assert text.count("Sentence") < 20


def test_nothing_is_left_out_of_the_whole_prompt() -> None:
    e = long(400, {130: 3.0})
    text = " ".join(shown(e, full=True).split())
    assert all(f"Sentence {i:03} of" in text for i in range(400))
    assert "⋯" not in text
    assert "⋯" not in shown(long(20, {3: 1.0})), "a short one is whole anyway"


def test_what_is_folded_says_what_weight_it_has() -> None:
    e = long(200, dict.fromkeys(range(200), 1.0))
    lines = [line for line in shown(e, top=1).splitlines() if line.startswith("⋯")]
    assert lines, "equal weights are all shaded, but only the first twelve are shown"
    assert all("of all weight (--full)" in line for line in lines)
    shares = re.findall(r"with (\d+)% of", "".join(lines))
    assert sum(map(int, shares)) > 50


@pytest.mark.parametrize("width", [30, 80, 200])
def test_a_long_prompt_fits_the_width(width: int) -> None:
    lines = shown(long(400, {130: 3.0}), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) < 60


def test_a_long_part_is_cut_in_its_middle() -> None:
    e = long(400, {3: 2.0}, features="document", surrogate=additive([0.0] * 3 + [2.0] + [0.0] * 16))
    text = " ".join(shown(e).split())
    assert "Sentence 060" in text
    assert "Sentence 079" in text
    assert " … " in text
    assert "Sentence 070" not in text
    assert "⋯ 3 chunks, 3 chunks" not in text
    assert "⋯ 3 chunks without weight (--full)" in text


def test_messages_have_their_roles_and_chunks_their_names() -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?\x1b[2J"}]
    e = toy(None, messages=chat, features="message", surrogate=additive([1.0, 2.0]))
    lines = shown(e).splitlines()
    at = lines.index("[message 1, system]")
    assert lines[at + 1] == "Be brief.²"
    assert lines[at + 2] == "[message 2, user]"
    assert lines[at + 3] == "Why?�[2J¹"
    assert "\n[chunk 1, 1.txt]\nSentence 000" in shown(long(20, {3: 1.0}))
    assert not re.search(r"^\[", shown(toy()), re.MULTILINE)


def test_the_first_screen_has_no_notes_and_no_cost() -> None:
    e = toy(sampler="leave-one-out")
    assert "as many scores as unknowns" in shown(e, details=True)
    for word in ("nats", "masked prompts", "R²", "KV cache", "unknowns"):
        assert word not in shown(e)
