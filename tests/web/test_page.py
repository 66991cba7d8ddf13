"""The page in a browser, used as a person would: paste, run, point, compare, download, come back."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import ropelime
import trace_samples
from ropelime import example
from ropelime.options import Options
from ropelime.surrogate import FunctionSurrogate, load_surrogate
from ropelime.web.service import Service
from toy import additive
from web_server import (
    DOCUMENTS,
    PLAIN,
    Slow,
    finished,
    live,
    serving,
    settings,
    tiny_folder,
    until,
)

Page = Any  # of Playwright, which may be missing
Open = Callable[..., Page]

TEXT = "Paris is the capital of France. It lies on the Seine. Berlin has many museums."
ANSWER = "The capital is Paris. It has a river."
HOSTILE = [
    "<script>window.broken = 1</script>",
    "</script><script>window.broken = 2</script>",
    "</style><style>* { display: none }</style>",
    '<img src=x onerror="window.broken = 3">',
    '"><svg onload="window.broken = 4">',
    "[link](javascript:window.broken=5) javascript:window.broken=6",
    "{{constructor.constructor('window.broken=7')()}} ${window.broken=8}",
    "right \u202e to left \u2066 and back \u2069 \u200b \ufeff",
    "\x01\x1b[31m red \x7f",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Service]]:
    with live(settings(tmp_path_factory.mktemp("history"))) as (client, service):
        for output in ("Paris.", "Berlin. It is large."):
            assert finished(client, {**DOCUMENTS, "output": output})["state"] == "done"
        yield str(client.base_url).rstrip("/"), service


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Open an address; nothing may go wrong in it, nor come from elsewhere."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def open_it(url: str, *, allow: str = "nothing at all", **options: Any) -> Page:
        chosen: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}, **options}
        context = browser.new_context(**chosen)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)

        def say(text: str) -> None:
            if allow not in text:
                wrong.append(text)

        page.on("pageerror", lambda error: say(str(error)))
        page.on("console", lambda message: say(message.text))
        page.on("dialog", lambda dialog: say("a dialog"))
        base = url.split("/#")[0].split("/api")[0]
        page.on("request", lambda r: None if r.url.startswith((base, "blob:")) else say(r.url))
        page.goto(url)
        page.wait_for_selector("main > section:visible")
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert wrong == []


def shades(page: Page, within: str = "body") -> list[str]:
    """How strongly each part of the prompt is coloured."""
    found: list[str] = page.evaluate(
        """(within) => [...document.querySelectorAll(`${within} .rl-feature`)].map((f) =>
            `${f.dataset.sign} ${f.style.getPropertyValue("--depth")}`)""",
        within,
    )
    return found


def settle(page: Page) -> None:
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


def visit(page: Page, address: str, selector: str) -> None:
    """Go to an address within the page, and wait for what is there and nowhere else.

    Where only the hash differs, ``goto`` returns while the previous address is still shown.
    """
    page.goto(address)
    page.wait_for_selector(selector)
    settle(page)


def place(page: Page) -> str:
    """Where the page itself says that it is; ``page.url`` is set later."""
    found: str = page.evaluate("location.hash")
    return found


def name_of(page: Page) -> str:
    """The name of the explanation that is shown."""
    return place(page).rsplit("/", 1)[1]


def await_kept(page: Page, condition: str) -> None:
    """Wait until this tab has stored a form of which a condition holds."""
    kept = "JSON.parse(sessionStorage.getItem('ropelime-form') || 'null')"
    page.wait_for_function(f"() => {{ const form = {kept}; return form !== null && {condition}; }}")


def scored(page: Page) -> float:
    """The part of the masked prompts that were scored."""
    if page.inner_text("#stage") != "Scoring masked prompts":
        return 0.0
    return float(page.get_attribute("#bar", "value") or 0)


def run(page: Page) -> None:
    page.get_by_role("button", name="Explain", exact=True).click()
    page.wait_for_selector("#mount .ropelime")


def test_paste_run_and_point_at_a_sentence(server: tuple[str, Service], open_page: Open) -> None:
    page = open_page(server[0])
    page.get_by_label("Prompt", exact=True).fill(TEXT)
    page.get_by_label("Answer", exact=True).fill(ANSWER)
    page.get_by_label("Split the prompt into").select_option(label="sentences")
    page.get_by_label("Surrogate").select_option("tiny")
    run(page)
    assert page.title() == f"{ANSWER} · RoPE-LIME"
    assert "3 sentences · scored by tiny in " in page.inner_text("#meta")
    assert "preset" not in page.inner_text("#meta"), "only one that was chosen is named"
    whole = shades(page)
    page.locator(".rl-sentence").nth(1).hover()
    settle(page)
    second = shades(page)
    page.locator(".rl-sentence").nth(0).hover()
    settle(page)
    assert len({tuple(whole), tuple(second), tuple(shades(page))}) == 3
    assert "The capital is Paris." in page.inner_text(".rl-shown")
    kept = server[1].history.explanation(name_of(page))
    assert kept is not None
    part = kept.token_weights[:, slice(*kept.tokens_in(22, 37))].sum(1)  # the shares add up
    depth = part / part.max()
    assert [float(s.split()[1]) for s in second] == pytest.approx(list(depth), abs=0.02)
    page.get_by_role("link", name="warning").click()  # a link inside the component
    page.wait_for_selector("#mount .rl-trust h2:focus")
    assert place(page).startswith("#/e/"), "is no way out of the page"


def test_the_example_takes_one_click(server: tuple[str, Service], open_page: Open) -> None:
    page = open_page(server[0])
    page.get_by_role("button", name="Run the example").click()
    page.wait_for_selector("#mount .ropelime")
    assert example.ANSWER in page.inner_text(".rl-answer")
    page.get_by_role("button", name="Change and run again").click()
    assert page.get_by_label("Document 5", exact=True).input_value() == example.CONTEXT[4]
    assert page.get_by_label("Question").input_value() == example.QUESTION
    assert page.locator("#hello").is_hidden()


def test_chat_and_files(server: tuple[str, Service], open_page: Open, tmp_path: Path) -> None:
    page = open_page(server[0])
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who? Why?"}]
    (tmp_path / "chat.json").write_text(json.dumps(chat), encoding="utf-8")
    (tmp_path / "answer.txt").write_text("Nobody.\n", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes("déjà".encode("latin-1"))
    page.get_by_text("Chat", exact=True).click()
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Open a JSON file").click()
    chooser.value.set_files(tmp_path / "chat.json")
    with page.expect_file_chooser() as chooser:
        page.locator('[data-open="output"]').click()
    chooser.value.set_files(tmp_path / "latin.txt")
    page.wait_for_selector("#output-wrong")
    assert "latin.txt is not UTF-8 text." in page.inner_text("#output-wrong")
    with page.expect_file_chooser() as chooser:
        page.locator('[data-open="output"]').click()
    chooser.value.set_files(tmp_path / "answer.txt")
    until(lambda: page.input_value("#output") == "Nobody.")
    page.get_by_label("Split the prompt into").select_option(label="messages")
    run(page)
    assert page.locator(".rl-label").all_inner_texts() == ["system", "user"]

    page = open_page(server[0])
    page.get_by_text("Documents", exact=True).click()
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text(f"This is {name}.", encoding="utf-8")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Open text files").click()
    chooser.value.set_files([tmp_path / "one.txt", tmp_path / "two.txt"])
    page.wait_for_selector("#document-2")
    assert page.get_by_label("Document 2", exact=True).input_value() == "This is two."
    assert page.locator(".document .aside").all_inner_texts() == ["one.txt", "two.txt"]
    page.get_by_role("button", name="Remove document 1").click()
    assert page.get_by_label("Document 1", exact=True).input_value() == "This is two."


def test_what_is_wrong_stands_beside_its_field(server: tuple[str, Service], open_page: Open) -> None:
    page = open_page(server[0], allow="status of 422")
    go = page.get_by_role("button", name="Explain", exact=True)

    def error_of(control: str) -> str:
        page.wait_for_selector(f"{control}[aria-invalid]")
        assert page.locator(f"{control}:focus").count() == 1
        line = page.locator("#" + page.get_attribute(control, "aria-describedby").split()[0])
        below = line.bounding_box()["y"] - page.locator(control).bounding_box()["y"]
        assert below > 0
        return str(line.inner_text())

    go.click()
    assert "prompt is empty" in error_of("#prompt")
    page.fill("#prompt", TEXT)
    go.click()
    assert "The answer is empty" in error_of("#output")
    assert page.locator(".wrong").count() == 1
    page.fill("#output", ANSWER)
    for name, text, words in (
        ("seed", "many", "A whole number"),
        ("budget", "many", "budget must be 'auto', a number of masks"),
        ("budget", "99999", "at most 1,000"),
        ("sampler", "leave-one", "Did you mean 'leave-one-out'"),
        ("ablation", "blank", "Known: delete, in-place"),
    ):
        page.evaluate("document.getElementById('more').open = true")
        page.fill(f"#{name}", text)
        page.evaluate("document.getElementById('more').open = false")
        go.click()
        page.locator(f"#{name}-wrong", has_text=words).wait_for()
        error_of(f"#{name}")
        assert page.get_attribute(f"#{name}", "aria-describedby") == f"{name}-wrong {name}-help"
        page.fill(f"#{name}", "")
    page.get_by_text("Chat", exact=True).click()
    page.fill("#messages", "[{]")
    go.click()
    assert "This is not JSON" in error_of("#messages")
    page.get_by_text("Documents", exact=True).click()
    page.fill("#document-1", "Just one sentence.")
    go.click()
    assert "at least two" in error_of("#features")


def test_options_are_set_on_the_page(server: tuple[str, Service], open_page: Open) -> None:
    url, service = server
    page = open_page(url)
    assert page.locator("#options").is_hidden(), "folded until it is opened"
    page.fill("#prompt", TEXT)
    page.fill("#output", ANSWER)
    page.locator("#more summary").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#options:visible")
    names = [option.name for option in dataclasses.fields(Options)]
    assert [name for name in names if not page.locator(f"#{name}").is_visible()] == []
    for option in dataclasses.fields(Options):
        if option.name != "features":
            help_ = page.inner_text(f"#{option.name}-help")
            assert help_.lower() == f"{option.metadata['help']}.".lower()
    page.get_by_label("Preset").select_option("faithful")
    page.get_by_label("Sampler").fill("bernoulli:9")
    page.get_by_label("Interactions").focus()
    page.keyboard.press("Space")
    await_kept(page, "form.options.interactions")  # a moment after the last key
    page.reload()
    page.wait_for_selector("#explain:visible")
    run(page)
    assert "preset faithful" in page.inner_text("#meta")
    kept = service.history.explanation(name_of(page))
    assert kept is not None
    assert kept.config["preset"] == "faithful"
    assert kept.config["sampler"] == {"name": "bernoulli", "count": 9, "p": 0.5}
    assert kept.config["interactions"] is True
    page.get_by_role("button", name="Change and run again").click()
    page.wait_for_selector("#options:visible")
    assert page.input_value("#preset") == "faithful"
    assert page.input_value("#sampler") == "bernoulli:9"
    assert page.is_checked("#interactions")
    assert page.input_value("#budget") == ""
    page.get_by_role("button", name="Empty the form").click()
    assert page.input_value("#preset") == "evidence"
    assert page.input_value("#sampler") == ""
    assert page.locator("#options").is_hidden()


def test_a_request_of_another_client_is_kept_whole(tmp_path: Path, open_page: Open) -> None:
    models = {"tiny": str(tiny_folder()), "twin": str(tiny_folder())}
    sent = {
        "context": [{"text": "One is here.", "source": "a.pdf", "page": 3}, "Two is there."],
        "output": "Two.",
        "surrogate": ["twin", "tiny"],
        "features": [[9, 21], [23, 36]],
        "budget": "5 seconds",
        "instead_of": "One.",
    }
    with live(settings(tmp_path, surrogates=models)) as (client, service):
        first = finished(client, sent)
        assert first["state"] == "done", first
        page = open_page(f"{client.base_url}/#/e/{first['id']}")
        page.wait_for_selector("#mount .ropelime")
        assert "2 spans · scored by twin and tiny" in page.inner_text("#meta")
        page.get_by_role("button", name="Change and run again").click()
        page.wait_for_selector("#options:visible")
        assert page.locator(".document .aside").first.inner_text() == "a.pdf, page 3"
        assert page.get_by_label("tiny", exact=True).is_checked()
        run(page)
        second = name_of(page)
        assert second != first["id"]
        rows = [service.history.entry(name) for name in (first["id"], second)]
        assert rows[0] is not None
        assert rows[1] is not None
        assert rows[0][1] == rows[1][1], "the same request"


def test_progress_is_seen_and_a_run_can_be_cancelled(tmp_path: Path, open_page: Open) -> None:
    with live(settings(tmp_path, grace=5)) as (client, service):  # a busy machine reloads slowly
        model = Slow(0.05)  # more than a minute in all
        service._loaded["tiny"] = model
        page = open_page(str(client.base_url))
        page.fill("#prompt", "One is here. " * 40)
        page.fill("#output", ANSWER)
        page.select_option("#features", "word")
        page.click("#run")
        until(lambda: scored(page) > 0)
        assert "%" in page.inner_text("#left")
        page.get_by_role("link", name="History").click()
        page.locator("#chip", has_text="Scoring").click()
        page.get_by_role("button", name="Cancel").click()
        page.wait_for_selector("#progress", state="hidden")
        assert page.locator("#alert").is_hidden()
        page.click("#run")
        until(lambda: scored(page) > 0)
        await_kept(page, f"form.output === {json.dumps(ANSWER)}")
        page.reload()  # soon enough: the job continues
        until(lambda: scored(page) > 0)
        states = [job.state for job in service.jobs._jobs.values()]
        assert states == ["cancelled", "running"], "and no other was begun"
        assert page.input_value("#output") == ANSWER
        page.close()  # and a page that is gone takes its run with it
        until(lambda: all(job.over for job in service.jobs._jobs.values()))
        assert {job.state for job in service.jobs._jobs.values()} == {"cancelled"}
        assert service.history.page(10) == []


def test_sentences_are_ranked_while_the_rest_is_scored(tmp_path: Path, open_page: Open) -> None:
    with live(settings(tmp_path)) as (client, service):
        model, ready = load_surrogate(str(tiny_folder())), threading.Event()
        inner = model.score_all

        def score_all(requests: Any, **options: Any) -> Any:
            if len(requests[0].masks) > 2:  # after the first look
                ready.wait(20)
            return inner(requests, **options)

        model.score_all = score_all  # type: ignore[method-assign]
        service._loaded["tiny"] = model
        page = open_page(str(client.base_url))
        page.fill("#prompt", TEXT)
        page.fill("#output", ANSWER)
        page.click("#run")
        page.wait_for_selector("#ranked li:nth-child(2)")
        shown = page.locator("#ranked li").all_inner_texts()
        assert [text.splitlines()[0] for text in shown] == ["The capital is Paris.", "It has a river."]
        assert all("%" in text for text in shown)
        assert page.inner_text("#stage") == "Scoring masked prompts"
        ready.set()
        page.wait_for_selector("#mount .ropelime")
        assert page.locator("#progress").is_hidden()


def test_two_are_compared(server: tuple[str, Service], open_page: Open) -> None:
    page = open_page(server[0])
    page.get_by_role("link", name="History").click()
    entries = page.locator(".entry")
    entries.first.wait_for()
    for text in ("Paris.", "Berlin. It is large."):
        page.get_by_label(f"Compare: {text}", exact=True).check()
    page.get_by_role("button", name="Compare the two selected").click()
    page.wait_for_selector(".side:nth-child(2) .ropelime")
    answers = page.locator(".side .rl-sentence").all_inner_texts()
    assert answers == ["Paris.", "Berlin.", "It is large."]
    assert "The answer differs; the prompt" in page.inner_text("#difference")
    boxes = [page.locator(".side").nth(i).bounding_box() for i in range(2)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
    left, right = shades(page, ".side:nth-child(1)"), shades(page, ".side:nth-child(2)")
    page.locator(".side:nth-child(2) .rl-sentence").nth(0).hover()
    settle(page)
    assert shades(page, ".side:nth-child(1)") == left, "each for itself"
    assert shades(page, ".side:nth-child(2)") != right
    page.select_option("#left-choice", page.input_value("#right-choice"))
    page.get_by_text("are the same in both").wait_for()
    page.get_by_role("link", name="History").click()
    page.locator(".entry a").first.click()
    page.wait_for_selector("#mount .ropelime")
    page.get_by_role("link", name="Compare", exact=True).last.click()
    page.get_by_text("Choose two explanations").wait_for()
    assert page.locator(".side .ropelime").count() == 1


def test_downloads(server: tuple[str, Service], open_page: Open, browser: Any, tmp_path: Path) -> None:
    page = open_page(server[0] + "/#/history")
    page.locator(".entry a").last.click()
    page.wait_for_selector("#mount .ropelime")
    name = name_of(page)
    for button, ending in (("Download JSON", "json"), ("Download HTML", "html")):
        with page.expect_download() as download:
            page.get_by_role("button", name=button).click()
        assert download.value.suggested_filename == f"ropelime-{name[:8]}.{ending}"
        download.value.save_as(tmp_path / f"e.{ending}")
    assert ropelime.load(tmp_path / "e.json") == server[1].history.explanation(name)
    report = browser.new_page()
    report.goto((tmp_path / "e.html").as_uri())
    assert "Paris." in report.inner_text(".rl-answer")
    report.close()


def test_the_history_survives(tmp_path: Path, open_page: Open) -> None:
    with live(settings(tmp_path)) as (client, _):
        page = open_page(str(client.base_url))
        page.fill("#prompt", TEXT)
        page.fill("#output", ANSWER)
        run(page)
        before = shades(page)
        page.reload()
        page.wait_for_selector("#mount .ropelime")
        assert shades(page) == before
    with live(settings(tmp_path)) as (client, _):
        page = open_page(str(client.base_url) + "/#/history")
        page.get_by_role("link", name=ANSWER).click()
        page.wait_for_selector("#mount .ropelime")
        assert shades(page) == before
        page.go_back()
        delete = page.get_by_role("button", name="Delete")
        delete.click()
        assert delete.inner_text() == "Delete for good?"
        delete.click()
        page.get_by_text("Nothing has been explained yet.").wait_for()
        page.reload()
        page.get_by_text("Nothing has been explained yet.").wait_for()


def test_whatever_is_typed_is_text(tmp_path: Path, open_page: Open) -> None:
    with live(settings(tmp_path)) as (client, _):
        chat = [{"role": "user", "content": text} for text in HOSTILE]
        requests: list[dict[str, Any]] = [
            {"prompt": "\n\n".join(HOSTILE), "features": "paragraph"},
            {"context": HOSTILE, "question": HOSTILE[0], "features": "document"},
            {"messages": chat, "features": "message"},
        ]
        names = []
        for asked in requests:
            state = finished(client, {**asked, "output": " ".join(HOSTILE)})
            assert state["state"] == "done", state
            names.append(state["id"])
        page = open_page(str(client.base_url) + "/#/history")
        assert page.locator(".entry").count() == 3
        for name in names:
            visit(page, f"{client.base_url}/#/e/{name}", "#mount .ropelime")
            for text in (HOSTILE[0], HOSTILE[3]):
                assert text in page.inner_text(".rl-prompt")
            page.get_by_role("button", name="Change and run again").click()
            page.wait_for_selector("#explain:visible")
            assert page.input_value("#output") == " ".join(HOSTILE)
        both = f"{client.base_url}/#/compare/{names[0]}/{names[1]}"
        visit(page, both, ".side:nth-child(2) .ropelime")
        assert page.evaluate("window.broken") is None
        for address in ("#/e/<img src=x onerror=window.broken=9>", "#/compare/%3Cscript%3E/x", "#/<b>"):
            page = open_page(f"{client.base_url}/{address}", allow="status of 422")
            page.locator("#lost").wait_for()
            assert page.evaluate("window.broken") is None


def test_a_line_of_a_megabyte(tmp_path: Path, open_page: Open) -> None:
    line = "x" * 1_000_000
    with live(settings(tmp_path)) as (client, service):
        page = open_page(str(client.base_url), allow="status of 422")
        page.fill("#prompt", line)
        page.fill("#output", ANSWER)
        page.click("#run")
        words = "1,000,000 characters and this server takes at most 500,000"
        page.locator("#prompt-wrong", has_text=words).wait_for()
        wide = ropelime.explain(
            f"{line} end",
            line,
            features="word",
            surrogate=FunctionSurrogate(additive([[0.3], [0.1]]), "toy"),
            target="nll",
            kernel="uniform",
            progress=False,
        )
        assert service.history.page(1) == []
        state = finished(client, PLAIN)
        row, asked = service.history.entry(state["id"]) or ({}, {})
        service.history.add("f" * 32, {**row, "id": "f" * 32, "answer": line[:160]}, asked, wide)
        for address, selector in (
            (f"#/e/{'f' * 32}", "#result:visible .ropelime"),
            ("#/history", "#history:visible .entry:nth-child(2)"),
            (f"#/compare/{'f' * 32}/{state['id']}", "#compare:visible .side:nth-child(2) .ropelime"),
        ):
            visit(page, f"{client.base_url}/{address}", selector)
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= 1280, "nothing sticks out"


def test_a_server_that_asks_for_its_token(tmp_path: Path, open_page: Open) -> None:
    token = "a token+of/mine?".replace(" ", "-") + "%23"
    with live(settings(tmp_path, token=token)) as (client, _):
        page = open_page(str(client.base_url), allow="status of 401")
        page.get_by_label("Token").fill("a wrong one")
        page.get_by_role("button", name="Enter").click()
        page.locator("#token-wrong", has_text="The token is wrong.").wait_for()
        page.get_by_label("Token").fill(token)
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Which part").first.wait_for()
        page.fill("#prompt", TEXT)
        page.fill("#output", ANSWER)
        run(page)
        with page.expect_download():
            page.get_by_role("button", name="Download JSON").click()
        page.reload()
        page.wait_for_selector("#mount .ropelime")
        linked = open_page(f"{client.base_url}/#token={quote(token, safe='')}")
        linked.get_by_role("heading", name="Which part").first.wait_for()
        assert place(linked) == "#/", "and the address holds it no more"
        assert token not in linked.evaluate("decodeURIComponent(location.href)")


def test_keys_are_enough(server: tuple[str, Service], open_page: Open) -> None:
    page = open_page(server[0])

    def tab_to(condition: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate(f"document.activeElement.matches({json.dumps(condition)})"):
                return
        raise AssertionError(f"{condition} is not reached")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.wait_for_selector("#view:focus")
    tab_to("#kind-prompt")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    tab_to("#prompt")
    page.keyboard.insert_text(TEXT)
    tab_to("#output")
    page.keyboard.insert_text(ANSWER)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#mount .ropelime")
    page.wait_for_selector("#result h1:focus")
    tab_to(".rl-sentence")
    settle(page)
    assert "The capital is Paris." in page.inner_text(".rl-shown")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_anybody_out(
    server: tuple[str, Service], open_page: Open, scheme: str, tmp_path: Path
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    url, service = server
    names = [row.id for row in service.history.page(2)]

    def serious(page: Page) -> list[str]:
        found = axe.run(page).response["violations"]
        return [
            f"{v['id']}: {node['target']} {node.get('failureSummary', '')}"
            for v in found
            if v["impact"] in ("serious", "critical")
            for node in v["nodes"]
        ]

    page = open_page(url, color_scheme=scheme, allow="status of 4")
    assert serious(page) == []
    page.get_by_text("Documents", exact=True).click()
    page.get_by_text("Options", exact=True).click()
    page.click("#run")
    page.wait_for_selector("[aria-invalid]")
    assert serious(page) == []
    page.get_by_text("Chat", exact=True).click()
    page.evaluate("document.getElementById('progress').hidden = false")
    page.evaluate("document.getElementById('enter').hidden = false")
    assert serious(page) == []
    for address, selector in (
        (f"#/e/{names[0]}", "#result:visible .ropelime"),
        (f"#/compare/{'/'.join(names)}", "#compare:visible .side:nth-child(2) .ropelime"),
        ("#/compare", "#compare:visible #difference:has-text('Choose two explanations')"),
        ("#/history", "#history:visible .entry"),
        ("#/runs", "#runs:visible #open-run"),
        ("#/x", "#lost:visible"),
    ):
        visit(page, f"{url}/{address}", selector)
        assert serious(page) == [], address
    page.goto(f"{url}/api.html")
    page.wait_for_selector(".endpoint")
    assert serious(page) == []


def test_it_fits_a_phone(server: tuple[str, Service], open_page: Open) -> None:
    url, service = server
    names = [row.id for row in service.history.page(2)]
    page = open_page(url, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    for address, selector in (
        ("#/", "#explain:visible"),
        (f"#/e/{names[0]}", "#result:visible .ropelime"),
        (f"#/compare/{'/'.join(names)}", "#compare:visible .side:nth-child(2) .ropelime"),
        ("#/history", "#history:visible .entry"),
    ):
        visit(page, f"{url}/{address}", selector)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, address


@pytest.mark.real_model
def test_the_embedded_model_once(tmp_path: Path, open_page: Open) -> None:
    with live(settings(tmp_path, surrogates={"smollm2": "smollm2"})) as (client, _):
        page = open_page(str(client.base_url))
        page.set_default_timeout(120_000)
        page.get_by_role("button", name="Run the example").click()
        page.wait_for_selector("#mount .ropelime")
        assert "The town is famous for its blue pottery." in page.inner_text(".rl-lead")


@pytest.mark.parametrize("wrong", ["%", "%E0%A4%A", "", "%00"])
def test_a_token_that_was_copied_badly_is_asked_for(
    open_page: Open, tmp_path: Path, wrong: str
) -> None:
    token = "a-token-for-this-test"
    with live(settings(tmp_path, token=token)) as (client, _):
        page = open_page(f"{str(client.base_url).rstrip('/')}/#token={wrong}", allow="401")
        page.fill("#token", "é")
        page.click("#enter-form button")
        assert "The token is wrong" in page.inner_text("#enter-form")
        page.fill("#token", token)
        page.click("#enter-form button")
        page.wait_for_selector("#explain:visible")


NAMES = ("__proto__", "constructor", "toString")


def test_models_may_have_the_names_that_javascript_uses(open_page: Open, tmp_path: Path) -> None:
    models = {name: str(tiny_folder()) for name in NAMES}
    with live(settings(tmp_path, surrogates=models)) as (client, _):
        base = str(client.base_url).rstrip("/")
        page = open_page(base)
        assert page.locator("#surrogate option").all_inner_texts() == list(NAMES)
        page.fill("#prompt", TEXT)
        page.fill("#output", ANSWER)
        page.click("#more summary")
        page.check("#options .others input[value=toString]")
        await_kept(page, "form.averaged.includes('toString')")
        page.reload()
        page.wait_for_selector("#explain:visible")
        assert page.input_value("#surrogate") == "__proto__"
        page.click("#run")
        page.wait_for_selector("#result:visible .rl-feature")
        assert "scored by __proto__ and toString" in page.inner_text("#meta")
        page.click("#again")
        assert page.input_value("#surrogate") == "__proto__"
        visit(page, f"{base}/#/history", "#entries .entry")
        assert "__proto__ and toString" in page.inner_text("#entries")
        (made,) = client.get("/api/explanations").json()["items"]
        assert finished(client, {**PLAIN, "surrogate": "__proto__"})["state"] == "done"
        same = f"{base}/#/compare/{made['id']}/{made['id']}"
        visit(page, same, "#compare:visible .side:nth-child(2) .rl-feature")
        assert "__proto__" in page.inner_text("#compare")


def test_a_folder_called_as_a_prototype_is_served(open_page: Open, tmp_path: Path) -> None:
    folder = tmp_path / "__proto__"
    shutil.copytree(tiny_folder(), folder)
    with serving(tmp_path / "history", surrogate=str(folder)) as server:
        page = open_page(server.url)
        assert page.locator("#surrogate").input_value() == "__proto__"
        page.fill("#prompt", TEXT)
        page.fill("#output", ANSWER)
        run(page)
        assert "scored by __proto__" in page.inner_text("#meta")
        page.reload()
        page.wait_for_selector("#mount .ropelime")
        visit(page, f"{server.url}/#/__proto__", "text=Page not found")


def test_a_damaged_entry_can_be_deleted(open_page: Open, tmp_path: Path) -> None:
    with live(settings(tmp_path)) as (client, service):
        names = [finished(client, PLAIN)["id"] for _ in range(2)]
        with sqlite3.connect(service.history.path) as file:
            file.execute("UPDATE explanations SET summary = '{' WHERE id = ?", (names[1],))
        file.close()
        page = open_page(f"{str(client.base_url).rstrip('/')}/#/history")
        page.wait_for_selector("#entries .entry")
        assert page.locator("#entries .entry").count() == 2
        broken = page.locator(f"#entries .entry[data-id='{names[1]}']")
        assert "is damaged" in broken.inner_text()
        for _ in range(2):
            broken.locator("button").click()
        until(lambda: page.locator("#entries .entry").count() == 1)
        assert [row.id for row in service.history.page(9)] == names[:1]


def run_file(folder: Path, text: str = trace_samples.RESULT) -> Path:
    """A run of an agent as a file."""
    messages = trace_samples.openai(reasoning=False)
    messages[3]["content"] = text
    file = folder / "bills.json"
    file.write_text(json.dumps(messages), encoding="utf-8")
    return file


def test_a_run_is_opened_and_explained_with_the_keyboard(
    server: tuple[str, Service], open_page: Open, tmp_path: Path
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page(f"{server[0]}/#/runs")
    page.locator("#open-run").wait_for()  # the list of runs comes after the page
    assert axe.run(page).response["violations"] == []
    page.locator("#open-run").focus()
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(run_file(tmp_path))
    page.wait_for_selector("#timeline .tl-step")
    assert page.title() == "bills.json · RoPE-LIME"
    assert page.locator(".tl-step h2").all_inner_texts() == [
        "1. Model",
        "2. Tool find_bill",
        "3. Model",
    ]
    page.get_by_role("button", name="Explain step 3").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#step-3 .tl-decision")
    page.wait_for_selector("#step-3:focus")
    tool = page.locator("#step-3 .tl-bar[data-decider=tool] > summary")
    if not tool.is_visible():
        page.locator("#step-3 .tl-bars .tl-fold > summary").click()
    tool.focus()
    page.keyboard.press("Enter")
    message = page.locator("#step-3 .tl-bar[data-decider=tool] .tl-message")
    message.wait_for()
    assert trace_samples.RESULT in message.inner_text()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the link to the step that called the tool
    page.wait_for_selector("#step-1:focus")
    assert place(page).startswith("#/run/")
    assert axe.run(page).response["violations"] == []
    page.get_by_role("link", name="All figures of this step").click()
    page.wait_for_selector("#mount .ropelime")
    assert page.locator(".rl-label").all_inner_texts() == ["system", "user", "assistant", "tool"]
    page.go_back()
    page.wait_for_selector("#step-3 .tl-decision")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download HTML").click()
    assert "ropelime.timeline" in Path(download.value.path()).read_text(encoding="utf-8")


def test_all_steps_of_a_run_are_explained(
    server: tuple[str, Service], open_page: Open, tmp_path: Path
) -> None:
    page = open_page(f"{server[0]}/#/runs", viewport={"width": 360, "height": 740})
    page.set_input_files("#run-file", run_file(tmp_path, " ".join(HOSTILE[:7])))
    page.get_by_role("button", name="Explain all 2 steps").click()
    page.wait_for_selector("#step-3 .tl-decision")
    assert page.locator("#step-1 .tl-decision").count() == 1
    for summary in page.locator(".tl-bar > summary").all():
        if summary.is_visible():
            summary.click()
    assert page.evaluate("() => window.broken") is None
    assert HOSTILE[0] in page.inner_text("#step-2")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.get_by_role("link", name="Agent runs").click()
    entry = page.locator("#run-entries .entry").first
    entry.wait_for()
    for _ in range(2):
        entry.locator("button").click()
    page.wait_for_function("() => document.getElementById('says').textContent === 'Deleted.'")


def test_a_file_that_is_not_a_run_says_why(
    server: tuple[str, Service], open_page: Open, tmp_path: Path
) -> None:
    page = open_page(f"{server[0]}/#/runs", allow="status of 422")
    for name, held, words in (
        ("other.json", b'{"a": 1}', "other.json is not a trace"),
        ("log.eval", b"PK\x03\x04\xff\xfe", "inspect log convert"),
        ("big.json.gz", gzip.compress(b" " * 3_000_000), "larger than this server accepts"),
    ):
        (tmp_path / name).write_bytes(held)
        page.set_input_files("#run-file", tmp_path / name)
        page.locator("#run-wrong", has_text=words).wait_for()
    packed = tmp_path / "run.json.gz"
    packed.write_bytes(gzip.compress(run_file(tmp_path).read_bytes()))
    page.set_input_files("#run-file", packed)
    page.wait_for_selector("#timeline .tl-step")


def test_a_chat_with_tool_calls_is_explained(server: tuple[str, Service], open_page: Open) -> None:
    page = open_page(server[0])
    page.get_by_text("Chat", exact=True).click()
    page.fill("#messages", json.dumps(trace_samples.openai(reasoning=False)))
    page.get_by_label("Split the prompt into").select_option(label="messages")
    run(page)
    assert page.locator(".rl-label").all_inner_texts() == ["system", "user", "assistant", "tool"]
    assert page.inner_text(".rl-answer-text").startswith(trace_samples.ANSWER)


def test_the_history_is_searched(server: tuple[str, Service], open_page: Open) -> None:
    page = open_page(f"{server[0]}/#/history")
    page.locator(".entry").first.wait_for()
    page.get_by_label("Search prompts, answers and sources").fill("it is LARGE")
    until(lambda: page.locator("#entries .entry").count() == 1)
    assert "Berlin. It is large." in page.inner_text("#entries")
    page.get_by_label("Search").fill("nowhere at all")
    page.wait_for_selector("#no-match:visible")
    page.get_by_label("Search").fill("")
    until(lambda: page.locator("#entries .entry").count() > 1)


def test_a_comparison_shows_what_differs(server: tuple[str, Service], open_page: Open) -> None:
    url, service = server
    names = [row.id for row in service.history.page(9, words="What lies on the Seine?")][:2]
    page = open_page(f"{url}/#/compare/{'/'.join(names)}")
    page.wait_for_selector("#changes:visible")
    kept = [service.history.explanation(name) for name in names]
    assert kept[0] is not None
    assert kept[1] is not None
    gaps = kept[1].normalized_weights - kept[0].normalized_weights
    rows = page.locator("#changes-rows tr").all_inner_texts()
    assert len(rows) == 2
    points = f"{round(100 * abs(gaps).max())}"
    assert points == "0" or f"{points} points" in rows[0]
    assert f"{round(100 * abs(gaps).sum() / 2)}% of all weight" in page.inner_text("#changes-lead")


def test_sources_of_files_are_shown_and_summed(
    server: tuple[str, Service], open_page: Open, tmp_path: Path
) -> None:
    page = open_page(server[0])
    page.get_by_text("Documents", exact=True).click()
    for name in ("seine", "spree"):
        (tmp_path / f"{name}.txt").write_text(f"The {name} is long. It is wide.", encoding="utf-8")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Open text files").click()
    chooser.value.set_files([tmp_path / "seine.txt", tmp_path / "spree.txt"])
    page.wait_for_selector("#document-2")
    page.fill("#output", "It is long.")
    run(page)
    assert page.locator(".rl-label").all_inner_texts() == ["Chunk 1, seine.txt", "Chunk 2, spree.txt"]
    page.locator("#mount").get_by_text("Documents", exact=True).click()
    settle(page)
    assert sorted(page.locator(".rl-row-words").all_inner_texts()) == ["seine.txt", "spree.txt"]
