"""The command line: help, exit codes, pipes, silence and interrupts."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import io
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import byte_level, tiny_model
from ropelime import load
from ropelime.cli import main, parser
from ropelime.options import PRESETS, Options
from ropelime.surrogate import FunctionSurrogate
from ropelime.surrogate.catalog import HUB
from ropelime.surrogate.embedded import embedded_folder
from ropelime.typing import Floats, Masks
from toy import OUTPUT, PROMPT, additive, toy

Capture = pytest.CaptureFixture[str]
METHOD = ["--features", "word", "--target", "nll", "--kernel", "uniform"]
Use = Callable[[Callable[[Masks], Floats]], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Put a function in the place of the model that the command line would load."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def put(function: Callable[[Masks], Floats]) -> None:
        surrogate = FunctionSurrogate(function)
        monkeypatch.setattr("ropelime.surrogate.load_surrogate", lambda *_, **__: surrogate)

    put(additive())
    return put


@pytest.fixture
def prompt(tmp_path: Path, use: Use) -> str:
    path = tmp_path / "prompt.txt"
    path.write_text(PROMPT)
    return f"@{path}"


def explain(prompt: str, *more: str) -> int:
    return main(["explain", "--prompt", prompt, "--output", OUTPUT, *METHOD, *more])


def test_pickled_weights_are_read_only_with_a_flag(tmp_path: Path, capsys: Capture) -> None:
    tiny_model("llama").model.save_pretrained(tmp_path)
    byte_level("chatml").save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(tiny_model("llama").model.state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "prompt.txt").write_text(PROMPT)
    question = ["explain", "--prompt", f"@{tmp_path / 'prompt.txt'}", "--output", OUTPUT, *METHOD]
    question += ["--surrogate", str(tmp_path), "--device", "cpu"]
    assert main(question) == 1
    assert "--allow-pickle" in capsys.readouterr().err
    assert main([*question, "--allow-pickle"]) == 0


def commands() -> list[str]:
    actions: Any = parser()._subparsers
    return list(actions._group_actions[0].choices)


def test_the_commands_that_there_must_be() -> None:
    assert {"explain", "ask", "check", "models", "demo"} <= set(commands())


@pytest.mark.parametrize("command", [None, *commands()])
def test_help(command: str | None, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"] if command else ["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: ropelime")
    assert command not in ("explain", "ask", "check", "models", None) or "examples:\n  ropelime" in text


def test_help_says_what_each_preset_is_for(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["explain", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for preset in PRESETS:
        assert re.search(rf"\b{preset}( \(default\))?: ", text)
    assert "the preset decides if not given" in text


def arguments_of(command: str) -> dict[str, argparse.Action]:
    """The arguments of a command by their names."""
    top: Any = parser()._subparsers
    return {
        name: action
        for action in top._group_actions[0].choices[command]._actions
        for name in action.option_strings
    }


def test_every_option_is_an_argument() -> None:
    """As the library declares it, in all commands that explain."""
    for command in ("explain", "ask", "batch", "check", "demo"):
        known = arguments_of(command)
        for option in dataclasses.fields(Options):
            action = known[f"--{option.name.replace('_', '-')}"]
            assert str(action.help).startswith(option.metadata["help"])
            assert action.default == option.default


def test_a_model_is_the_answering_model_and_a_surrogate_scores() -> None:
    described, scoreless = set(), ("models", "show", "summary", "verify")
    for command in commands():
        known = arguments_of(command)
        assert ("--model" in known) == (command in ("ask", "batch", "verify"))
        assert ("--surrogate" in known) == (command not in scoreless)
        if "--surrogate" in known:
            described.add(re.search(r": (.*?);", str(known["--surrogate"].help))[1])  # type: ignore[index]
    assert len(described) == 1, "the same in all commands"


def test_version(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("ropelime ")


def test_explain_shows_and_writes(prompt: str, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "why.json"
    assert explain(prompt, "--json", str(file), "--top", "2") == 0
    out, err = capsys.readouterr()
    assert "the 2 largest weights" in out
    assert f"Written to {file}" in out
    assert "\x1b" not in out, "no colour in a pipe"
    assert err == ""
    assert load(file).top(1)[0].text == "red "


def test_explain_writes_the_page(prompt: str, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "why.html"
    assert explain(prompt, "--html", str(file)) == 0
    assert f"Written to {file}" in capsys.readouterr().out
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_explain_prints_the_sources(prompt: str, use: Use, capsys: Capture) -> None:
    use(additive([0.0, 0.0, 3.0, 0.0, 0.0]))
    assert explain(prompt, "--cite") == 0
    out, err = capsys.readouterr()
    assert out == f"{OUTPUT} [1]\n\n[1] blue\n"
    assert err == ""


def test_sources_cannot_act_on_the_terminal(tmp_path: Path, use: Use, capsys: Capture) -> None:
    use(additive([3.0, 0.0]))
    (tmp_path / "prompt.txt").write_text("\x1b[31mred green")
    assert explain(f"@{tmp_path / 'prompt.txt'}", "--cite") == 0
    assert "\x1b" not in capsys.readouterr().out


def test_quiet_is_silent(prompt: str, tmp_path: Path, capsys: Capture) -> None:
    assert explain(prompt, "--quiet", "--json", str(tmp_path / "why.json")) == 0
    assert capsys.readouterr() == ("", "")
    assert (tmp_path / "why.json").exists()


def test_every_text_may_be_a_file(use: Use, tmp_path: Path, capsys: Capture) -> None:
    """One rule for all texts: the text itself, @FILE, or - for standard input."""
    use(additive([1.0, 2.0]))
    for name, text in (("q", "Which?\n"), ("a", "from a file\r\n"), ("c", "One. Two.")):
        (tmp_path / f"{name}.txt").write_text(text)
    file = {name: f"@{tmp_path}/{name}.txt" for name in "qa"}
    why = tmp_path / "why.json"
    method = ["--target", "nll", "--kernel", "uniform", "--quiet", "--json", str(why)]
    given = ["explain", "--context", str(tmp_path / "c.txt"), *method, "--output"]
    assert main([*given, file["a"], "--question", file["q"]]) == 0
    assert load(why).output == "from a file"
    assert load(why).prompt.text.endswith("\n\nWhich?")
    assert main(["explain", "--prompt", "One. Two.", *method, "--output", "@me? no"]) == 1
    assert "me? no cannot be read: No such file" in capsys.readouterr().err
    assert main(["explain", "--prompt", "One. Two.", *method, "--output", "as it is"]) == 0
    assert (load(why).prompt.text, load(why).output) == ("One. Two.", "as it is")


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "--prompt", "FILE", "--output", "yes"],
        ["explain", "--prompt", "a b", "--output", "FILE"],
        ["explain", "--context", "FILE", "--question", "FILE", "--output", "yes"],
        ["explain", "--prompt", "a b", "--output", "yes", "--instead-of", "FILE"],
        ["audit", "--context", "FILE", "--question", "FILE", "--output", "yes [1]"],
        ["ask", "FILE", "--model", "m"],
        ["show", "why.json", "--of", "FILE"],
    ],
)
def test_the_name_of_a_file_is_not_taken_for_a_text(
    use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("One. Two.")
    toy().save(tmp_path / "why.json")
    said = ["text.txt" if each == "FILE" else each for each in arguments]
    assert main(said) == (2 if said[0] == "audit" else 1)
    assert "text.txt is a file. Write @text.txt to read it" in capsys.readouterr().err


def test_a_file_that_is_missing_is_noticed(prompt: str, capsys: Capture) -> None:
    assert main(["explain", "--prompt", prompt, "--output", "none.txt", *METHOD]) == 0
    assert "--output: there is no file none.txt; taken as the text itself" in capsys.readouterr().err


# A saved explanation.


@pytest.fixture
def saved(tmp_path: Path) -> str:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why. Say it."}]
    answer = "Yes it is. Now it was."
    coef = [[0.0, 0.0], [3.0, 0.0], [0.0, 2.0]]
    e = toy(None, answer, messages=chat, features="sentence", surrogate=additive(coef, -4))
    e.save(tmp_path / "why.json")
    return str(tmp_path / "why.json")


def test_show_prints_a_saved_explanation_again(saved: str, capsys: Capture) -> None:
    assert main(["show", saved, "--top", "2"]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"\[message 2, user\]\nWhy\.¹\S* Say it\.[¹²]", out)
    assert "the 2 largest weights" in out
    assert err == ""
    assert main(["show", saved, "--details"]) == 0
    assert "masked prompts" in capsys.readouterr().out
    assert main(["show", saved, "--cite"]) == 0
    assert "[1] Why. (message 2, user)" in capsys.readouterr().out


def test_show_of_a_part_of_the_answer(saved: str, capsys: Capture) -> None:
    assert main(["show", saved, "--of", "Now it was.", "--json", "-"]) == 0
    (first, *_) = json.loads(capsys.readouterr().out)["features"]
    assert (first["text"], first["rank"], first["where"]) == ("Say it.", 1, "message 2, user")
    assert main(["show", saved, "--of", "Never."]) == 1
    assert "the answer does not contain 'Never.'" in capsys.readouterr().err


def test_show_writes(saved: str, tmp_path: Path, capsys: Capture) -> None:
    before = Path(saved).read_text()
    names = ["parts.json", "why.html", "why.svg"]
    files = [str(tmp_path / name) for name in names]
    assert main(["show", saved, "--json", files[0], "--html", files[1], "--svg", files[2]]) == 0
    out = capsys.readouterr().out
    assert all(f"Written to {file}" in out for file in files)
    parts = json.loads(Path(files[0]).read_text())
    assert parts["features"][0]["where"] == "message 2, user"
    assert Path(files[1]).read_text().startswith("<!doctype html>")
    assert Path(saved).read_text() == before
    Path(files[0]).write_text("{}")
    assert main(["show", files[0]]) == 1
    assert capsys.readouterr().err.startswith("ropelime: ")


def test_the_prompt_may_come_through_a_pipe(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(PROMPT))
    assert explain("-") == 0


def test_context_and_messages(use: Use, tmp_path: Path, capsys: Capture) -> None:
    use(additive([1.0, 2.0]))
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"This is {name}.")
    files = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    method = ["--output", "yes", "--target", "nll", "--kernel", "uniform", "--features"]
    asked = ["explain", "--context", *files, "--question", "Which?"]
    assert main([*asked, *method, "document"]) == 0
    assert "Which?" in capsys.readouterr().out
    chat = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Ho."}]
    (tmp_path / "chat.json").write_text(json.dumps(chat))
    assert main(["explain", "--messages", str(tmp_path / "chat.json"), *method, "message"]) == 0
    assert "Ho." in capsys.readouterr().out


def test_demo(use: Use, tmp_path: Path, capsys: Capture) -> None:
    use(lambda masks: np.asarray(masks[:, 3] - 3.0))
    arguments = ["--target", "nll", "--kernel", "hamming", "--json", str(tmp_path / "demo.json")]
    assert main(["demo", *arguments]) == 0
    assert "Marta Velling" in capsys.readouterr().out
    e = load(tmp_path / "demo.json")
    assert len(e.features) == 15
    assert e.top(1)[0].text.startswith("Marta Velling was an engineer")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sampler", "leave-one"], "Did you mean 'leave-one-out'"),
        (["--features", "wrod"], "Did you mean 'word'"),
        (["--budget", "0"], "budget must be at least 1"),
        (["--budget", "many"], "budget must be 'auto', a number of masks"),
        (["--question", "Why?"], "question goes with context"),
        (["--context", "FILE"], "exactly one of"),
        (["--context", "/no/such/file"], "/no/such/file cannot be read: No such file"),
        (["--messages", "FILE"], "is not JSON"),
        (["--output", ""], "output is empty"),
        (["--target", "kl"], "Use preset='faithful' with it, or target='nll'"),
        (["--target", "shift:x"], "floor of shift must be a number from 0 on, not 'x'"),
        (["--target", "shift:nan"], "floor of shift must be a number from 0 on, not nan"),
        (["--sampler", "bernoulli:1000000000000"], "at most 1,000,000, not 1000000000000"),
        (["--sampler", "bernoulli:true"], "must be a whole number of at least 1"),
        (["--prompt", "@" + "x" * 300], "cannot be read: File name too long"),
        (["--prompt", "@"], "cannot be read: "),
        (["--prompt", "@LOOP"], "cannot be read: Too many levels of symbolic links"),
        (["--messages", "DEEP"], "is not JSON (maximum recursion depth"),
        (["--messages", "LONG"], "is not JSON (Exceeds the limit"),
    ],
)
def test_what_is_refused_exits_with_1(
    prompt: str, arguments: list[str], message: str, capsys: Capture
) -> None:
    file = prompt.removeprefix("@")
    folder = Path(file).parent
    named = {"FILE": file, **{name: str(folder / name) for name in ("LOOP", "DEEP", "LONG")}}
    named["@LOOP"] = f"@{named['LOOP']}"
    (folder / "LOOP").symlink_to(folder / "LOOP")
    (folder / "DEEP").write_text("[" * 200_000)
    (folder / "LONG").write_text("1" * 5000)
    assert explain(prompt, *[named.get(a, a) for a in arguments]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("ropelime: ")
    assert message in err
    assert out == ""


def test_files_that_are_no_text(prompt: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    assert explain(f"@{tmp_path / 'latin'}") == 1
    assert "is not UTF-8 text" in capsys.readouterr().err
    assert explain(f"@{tmp_path}") == 1
    assert "cannot be read: Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [[], ["explan"], ["explain"], ["explain", "--output", "x", "--seed", "many"], ["models", "drop"]],
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "usage: ropelime" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_told_before_the_work(
    prompt: str, use: Use, tmp_path: Path, capsys: Capture
) -> None:
    def never(masks: Masks) -> Floats:
        raise AssertionError("asked")

    use(never)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place, why in (
        (tmp_path / "none" / "why.json", "There is no folder"),
        (tmp_path, "is a folder"),
        (tmp_path / ("x" * 300), "File name too long"),
        (tmp_path / "loop", "Too many levels of symbolic links"),
        (Path("/sys/kernel/why.json"), "cannot be written: "),  # read-only for everybody
    ):
        for option in ("--json", "--html", "--svg"):
            with pytest.raises(SystemExit) as stop:
                explain(prompt, option, str(place))
            assert stop.value.code == 2
            assert why in capsys.readouterr().err
        for command in (["check", prompt, "--junit", str(place)], ["batch", prompt, str(place)]):
            with pytest.raises(SystemExit):
                main(command)
            assert why in capsys.readouterr().err


def test_a_full_disk_is_told_before_the_work(
    prompt: str, use: Use, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> Any:
        raise AssertionError("asked")

    toy().save(tmp_path / "old.json")
    use(never)
    monkeypatch.setattr("ropelime.Explanation.verify", never)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(SystemExit):
            explain(prompt, "--json", str(tmp_path / "why.json"))
        assert main(["verify", str(tmp_path / "old.json")]) == 1  # it writes into the file
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert capsys.readouterr().err.count("cannot be written: File too large") == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["old.json", "prompt.txt"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_device_may_be_written_to(prompt: str, capsys: Capture) -> None:
    assert explain(prompt, "--json", "/dev/null") == 0
    assert explain(prompt, "--json", "/dev/full") == 1
    assert "/dev/full cannot be written: No space left on device" in capsys.readouterr().err


def test_an_argument_that_is_not_utf_8() -> None:
    command: list[str | bytes] = [sys.executable, "-m", "ropelime", "models", "fetch", b"caf\xe9"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 2
    assert "'caf\\udce9' is not UTF-8 text. Rename" in finished.stderr


@pytest.mark.parametrize("name", ["~nobody-here/x", "x" * 300])
def test_a_surrogate_of_a_server_that_cannot_be(name: str, tmp_path: Path, capsys: Capture) -> None:
    assert main(["serve", "--port", "0", "--history", str(tmp_path), "--surrogate", name]) == 1
    assert "Unknown surrogate" in capsys.readouterr().err


def test_standard_streams_that_are_closed() -> None:
    command = f"{sys.executable} -m ropelime models >&-"
    finished = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    command = f"{sys.executable} -m ropelime explain --prompt - --output x <&-"
    finished = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert finished.stderr == "ropelime: Standard input is closed, and - reads it.\n"


def test_sampling_that_is_nested_too_deeply(capsys: Capture) -> None:
    assert main(["ask", "Why?", "--model", "m", "--sampling", "x=" + "[" * 100_000]) == 1
    assert "x of --sampling is nested too deeply" in capsys.readouterr().err


def test_a_file_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def broken() -> None:
        raise PermissionError(13, "Permission denied", "some/file\x1b")

    monkeypatch.setattr("ropelime.cli.models.known", broken)
    assert main(["models"]) == 1
    assert capsys.readouterr().err == "ropelime: some/file\ufffd cannot be used: Permission denied.\n"


def test_an_interrupt_exits_with_130_and_leaves_the_old_file(
    prompt: str, use: Use, tmp_path: Path, capsys: Capture
) -> None:
    def interrupt(masks: Masks) -> Floats:
        raise KeyboardInterrupt

    file = tmp_path / "why.json"
    file.write_text("old")
    use(interrupt)
    assert explain(prompt, "--json", str(file)) == 130
    assert file.read_text() == "old"
    assert "interrupted" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["prompt.txt", "why.json"]


def test_models_lists_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("ROPELIME_CACHE", str(tmp_path))
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["smollm2", *HUB]
    assert "not fetched" in lines[0]
    folder = embedded_folder()
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    entry = {"sha256": hashlib.sha256(b"{}").hexdigest(), "stamp": [0, 0]}
    (folder / "ropelime-hashes.json").write_text(json.dumps({"config.json": entry}))
    assert main(["models", "list"]) == 0
    assert str(folder) in capsys.readouterr().out
    assert main(["models", "fetch", "smollm2"]) == 0
    assert capsys.readouterr().out.strip() == str(folder)


def test_models_fetch_of_nothing_and_of_something_unknown(capsys: Capture) -> None:
    assert main(["models", "fetch"]) == 1
    assert "Say which model" in capsys.readouterr().err
    assert main(["models", "fetch", "smollm3"]) == 1
    assert "Did you mean 'smollm2'" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = "from ropelime.cli import main; raise SystemExit(main(['models']))"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_output_device_is_reported() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "ropelime", "models"]
        finished = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert finished.returncode == 1
    assert finished.stderr == "ropelime: the output cannot be written: No space left on device\n"


def test_what_the_terminal_cannot_show_is_no_reason_to_fail() -> None:
    code = "from ropelime.cli import main; main(['models']); print('naïve ·')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    finished = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True
    )
    assert finished.stdout.endswith(b"na?ve ?\n")
