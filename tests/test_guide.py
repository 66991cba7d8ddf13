"""The pages' examples run: Python prints the output shown, and commands succeed.

Those of ``how-to/agents.md`` run in ``tests/traces``, those of ``how-to/server.md`` with vLLM.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import doc_examples
from doc_examples import SITE
from ropelime.cli import main
from ropelime.surrogate.embedded import fetch_embedded
from servers import Handler, Proxy, says

pytest.importorskip("openai", reason="pip install 'ropelime[ask]'")

pytestmark = [pytest.mark.slow, pytest.mark.real_model]
ANSWER = "Lamps carry a guarantee of six years. To use it, send a photograph of the lamp."
OTHER = {  # what the model answers without a sentence of its context
    "Lamps carry a guarantee of six years.": "I cannot find how long the guarantee is.",
    "send a photograph": "Lamps carry a guarantee of six years.",
}
USAGE = {"prompt_tokens": 96, "completion_tokens": 19, "total_tokens": 115}
ELSEWHERE = ("serve", "--engine", "--base-url")  # need a browser, a cluster, another server
FILES = {
    "prompt.txt": "Marta built the tower. It stands in Kessel. The answer is Marta.",
    "question.txt": "Who built it?",
    "answer.txt": "Marta built it.",
    "answer.md": "Marta built the tower [1].",
    "docs/a.txt": "Marta built the tower.",
    "docs/b.txt": "It stands in Kessel. Kessel has a fair.",
}
CHAT = [
    {"role": "user", "content": "[1] Marta built the tower.\n\n[2] It stands in Kessel."},
    {"role": "user", "content": "Who built it?"},
]
LINE = {"context": ["Marta built the tower.", "It stands in Kessel."], "question": "Who built it?"}


def answering(handler: Handler) -> None:
    """The model that the pages call."""
    sent = handler.body["messages"][0]["content"]
    answers = [answer for sentence, answer in OTHER.items() if sentence not in sent]
    guided = "guarantee" in sent
    says(ANSWER if guided and not answers else answers[0] if guided else "Marta.", usage=USAGE)(handler)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A folder with an answering model and the files that commands name."""
    folder = fetch_embedded()  # the model stays in its cache; answers get a cache of their own
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / folder.name).symlink_to(folder)
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("ROPELIME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-guide-0123456789")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Proxy(otherwise=answering).running() as proxy:
        monkeypatch.setenv("OPENAI_BASE_URL", proxy.url)
        yield proxy


def test_the_guide_runs(server: Proxy) -> None:
    page = SITE / "how-to/rag.md"
    doc_examples.run(page)
    assert sum(bool(shown) for _, shown in doc_examples.python_blocks(page)) == 6
    assert len(server.seen) == 1, "the model is asked once"
    assert {path.name for path in Path().iterdir()} == {"why.html", "why.json"}


@pytest.mark.parametrize(
    ("page", "calls"),
    [
        ("quickstart", 0),
        ("how-to/chat", 0),
        ("how-to/closed-api", 4),
        ("how-to/ci", 0),
        ("concepts/presets", 0),
    ],
)
def test_the_python_of_a_page_runs(page: str, calls: int, server: Proxy) -> None:
    doc_examples.run(SITE / f"{page}.md")
    assert len(server.seen) == calls
    if page == "how-to/ci":
        assert main(["check", "answers.jsonl", "--junit", "report.xml"]) == 0


def prepare() -> None:
    """Write the files that the commands of the pages name."""
    Path("docs").mkdir()
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")
    Path("chat.json").write_text(json.dumps(CHAT), encoding="utf-8")
    reply = {"choices": [{"message": {"role": "assistant", "content": "Marta built the tower [1]."}}]}
    Path("response.json").write_text(json.dumps(reply), encoding="utf-8")
    line = {**LINE, "output": "Marta.", "expect": [{"rests_on": {"document": 1}}]}
    Path("answers.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")


PAGES = ["quickstart", *(f"how-to/{p}" for p in ("rag", "chat", "ci", "batch", "closed-api"))]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(
    page: str, server: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare()
    if page in ("how-to/batch", "how-to/rag"):
        line = {**LINE, "id": "tower", "output": "Marta."}
        Path("answers.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
        Path("questions.jsonl").write_text(json.dumps(LINE) + "\n", encoding="utf-8")
    if page == "how-to/rag":
        for name in ("whys", "monday", "tuesday"):
            assert main(["batch", "answers.jsonl", f"{name}.jsonl"]) == 0
    ran = 0
    for words in doc_examples.commands(SITE / f"{page}.md"):
        if words[0] == "ropelime" and not any(word in words for word in ELSEWHERE):
            code = main(doc_examples.expanded(words[1:]))
            # An audit may find what it looks for.
            assert code == 0 or (code == 1 and words[1] == "audit"), (words, capsys.readouterr().err)
            ran += 1
    assert ran
