"""Arguments and output that several commands share."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from ropelime import surrogate
from ropelime.errors import InputError, Interrupted
from ropelime.explain import Explanation, RankedSentence
from ropelime.files import check_writable, write_text
from ropelime.options import Options
from ropelime.progress import note
from ropelime.surrogate.embedded import EMBEDDED
from ropelime.text.display import plain, shorten
from ropelime.views.findings import has_share

SURROGATE = (
    "a name from `ropelime models`, a directory, a .gguf file, a hub id, or a model on a vLLM server, "
    "http://HOST:8000/v1#MODEL[#TOKENIZER], for preset faithful"
)


TEXTS = "A TEXT is the text itself, @FILE the text of a file, or - that of standard input."
STREAM = "print what each sentence of the answer depends on as soon as it is there, by preset instant"
_SHOWN = 3  # features of a sentence that is streamed


def add_prompt(parser: argparse.ArgumentParser, title: str, output: str) -> Any:
    """Add the prompt in its three forms and the answer, which is described as ``output``."""
    group = parser.add_argument_group(title, TEXTS)
    add = group.add_argument
    add("--prompt", metavar="TEXT", help="the prompt")
    add("--context", nargs="+", metavar="FILE", help="retrieved chunks, one file each")
    add("--question", metavar="TEXT", help="the question about the context")
    add("--messages", metavar="FILE|-", help="chat messages as a JSON list")
    add("--output", required=True, metavar="TEXT", help=output)
    return add


def prompt_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """The prompt of :func:`add_prompt`, as ``explain`` takes it."""
    return {
        "prompt": text_of("--prompt", options.prompt),
        "context": chunks(options.context),
        "question": text_of("--question", options.question),
        "messages": messages(options.messages),
    }


def add_options(parser: argparse.ArgumentParser, **defaults: str) -> None:
    """Add every option of an explanation, as :class:`ropelime.options.Options` declares it.

    Args:
        parser: The parser.
        **defaults: Other defaults, by the name of the option.
    """
    group = parser.add_argument_group("method")
    repeated = "repeat it to average the weights of several (default smollm2)"
    text = f"the open model that scores the answer: {SURROGATE}; {repeated}"
    group.add_argument("--surrogate", action="append", metavar="MODEL", help=text)
    add_running(group)
    for option in fields(Options):
        default = defaults.get(option.name, option.default)
        shown = "" if default is None or default is False else f" (default {default})"
        name = f"--{option.name.replace('_', '-')}"
        text = (option.metadata["help"] + shown).replace("%", "%%")
        group.add_argument(name, default=default, help=text, **option.metadata["argument"])


def add_running(group: Any) -> None:
    """Add the options that say where and how a surrogate runs."""
    add = group.add_argument
    add("--device", help="cpu, cuda, mps or auto (several GPUs); the fastest if not given")
    add("--dtype", help="float32, bfloat16 or float16; chosen for the device if not given")
    text = "read weights other than safetensors and GGUF, which can run code of the model's author"
    add("--allow-pickle", action="store_true", help=text)


def running(options: argparse.Namespace) -> dict[str, Any]:
    """Their values, as ``load_surrogate`` takes them."""
    names = ("device", "dtype", "allow_pickle")
    return {name: getattr(options, name) for name in names}


def add_answering(parser: argparse.ArgumentParser, *, required: bool) -> Any:
    """Add the options that say which answering model to call, and how."""
    group = parser.add_argument_group("answering model")
    add = group.add_argument
    add("--model", required=required, help="the model to call, such as gpt-4o-mini")
    add("--base-url", metavar="URL", help="a server with the Chat Completions API (default OpenAI)")
    text = "further arguments of the call, such as temperature=0 max_tokens=200; values are JSON"
    add("--sampling", nargs="+", default=[], metavar="NAME=VALUE", help=text)
    text = "seconds to wait for data from the server (default 120)"
    add("--timeout", type=float, default=120.0, metavar="S", help=text)
    text = "retries if the server is busy, fails or cannot be reached, up to 100 (default 2)"
    add("--retries", type=int, default=2, metavar="N", help=text)
    text = "price of a million prompt tokens, to report the cost"
    add("--price-in", type=float, metavar="P", help=text)
    add("--price-out", type=float, metavar="P", help="price of a million answer tokens")
    add("--no-cache", action="store_true", help="neither read nor write the cache of answers")
    return group


def add_verifying(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``ask`` that verify the explanation."""
    add = parser.add_argument_group("verification").add_argument
    text = "check the explanation by at most K further calls without its top parts, or with them alone"
    add("--verify", type=count, default=0, metavar="K", help=text)
    add_max_cost(add)


def add_max_cost(add: Any) -> None:
    """Add the limit on what verifying calls may cost."""
    text = "the most that the verifying calls may cost together; needs --price-in and --price-out"
    add("--max-cost", type=float, metavar="P", help=text)


def unverified(explanation: Explanation) -> int:
    """The exit code of a command that verifies: 1 if the calls ended early, with the reason printed."""
    seen = explanation.verified
    if seen is None or not seen.stopped:
        return 0
    note(f"ropelime: {plain(seen.warnings[-1])}")
    return 1


def answering(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of :class:`ropelime.answering.AnsweringModel`, from :func:`add_answering`."""
    if (options.price_in is None) != (options.price_out is None):
        raise InputError("--price-in and --price-out go together.")
    return {
        **{name: getattr(options, name) for name in ("model", "base_url", "timeout", "retries")},
        "sampling": sampling_arguments(options.sampling),
        "price": None if options.price_in is None else (options.price_in, options.price_out),
        "cache": not options.no_cache,
    }


def sampling_arguments(pairs: list[str]) -> dict[str, Any]:
    """The arguments of a call from ``NAME=VALUE``."""
    sampling: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise InputError(f"--sampling takes NAME=VALUE, such as temperature=0, not {pair!r}.")
        try:
            sampling[name] = json.loads(value)
        except ValueError:
            sampling[name] = value
        except RecursionError:
            raise InputError(f"{name} of --sampling is nested too deeply.") from None
    return sampling


def add_output(
    parser: argparse.ArgumentParser,
    *,
    json: Callable[[str], Path] | None = None,
    json_help: str = "write the explanation as JSON",
) -> None:
    """Add the options that say what to do with the result."""
    add = parser.add_argument_group("result").add_argument
    add("--json", type=json or writable, metavar="FILE", help=json_help)
    add("--html", type=writable, metavar="FILE", help="write a self-contained HTML page")
    add("--svg", type=writable, metavar="FILE", help="write the terminal view as SVG")
    add("--cite", action="store_true", help="print citations, not the ranking")
    add("--top", type=count, default=5, metavar="K", help="features to list (default 5)")
    text = "print all of the prompt, not only the parts that matter with what surrounds them"
    add("--full", action="store_true", help=text)
    text = "print how it was scored as well: verdicts, notes and cost"
    add("--details", action="store_true", help=text)
    add("--quiet", action="store_true", help="print nothing but errors")


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 is needed, not {text}")
    return int(text)


def writable(name: str) -> Path:
    """A path to write to; a wrong one is refused before any work is done."""
    path = Path(name)
    try:
        check_writable(path)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path


def read(name: str | None) -> str | None:
    """The text of a file, or of standard input for ``-``."""
    if name is None:
        return None
    if name == "-" and sys.stdin is None:
        raise InputError("Standard input is closed, and - reads it.")
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text ({error.reason} at byte {error.start}).") from None
    except (OSError, ValueError) as error:  # or a NUL character
        raise InputError(f"{name} cannot be read: {getattr(error, 'strerror', error)}.") from None


def text_of(name: str, value: str | None) -> str | None:
    """The text of an argument: the value itself, ``@FILE``, or ``-`` for standard input.

    The name of a file without the @ is refused: it is hardly meant as the text, which may be paid for.
    """
    if value is None:
        return None
    if value == "-" or value.startswith("@"):
        return (read(value.removeprefix("@")) or "").rstrip("\r\n")
    try:
        is_file = Path(value).is_file()
    except (OSError, ValueError):  # too long for a file name, or not one at all
        is_file = False
    if is_file:
        raise InputError(
            f"{name}: {value} is a file. Write @{value} to read it; - takes these words as a text, "
            "through standard input."
        )
    if re.fullmatch(r"\S+\.(txt|md|json)", value):
        note(f"ropelime: {name}: there is no file {value}; taken as the text itself")
    return value


def chunks(names: Sequence[str] | None) -> list[dict[str, Any]] | None:
    """Files as chunks, each with its name as the source."""
    return [{"text": read(name), "source": name} for name in names] if names else None


def messages(name: str | None) -> Any:
    """Chat messages from a JSON file."""
    text = read(name)
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON ({error}); a list of messages is needed.") from None


def chosen(options: argparse.Namespace) -> dict[str, Any]:
    """The values of :func:`add_options`, as ``explain`` and ``Options`` take them."""
    given = {option.name: getattr(options, option.name) for option in fields(Options)}
    return {**given, "instead_of": text_of("--instead-of", options.instead_of)}


def method(options: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of ``explain`` from :func:`add_options`, with the surrogates loaded."""
    given = chosen(options)
    Options(**given)  # refuses what is wrong before a model is loaded
    say = None if options.quiet else note
    names = options.surrogate or [EMBEDDED]
    return {
        **given,
        "surrogate": [surrogate.load_surrogate(name, **running(options), say=say) for name in names],
        "progress": False if options.quiet else "auto",
    }


@contextmanager
def showing_interrupted(options: argparse.Namespace) -> Iterator[None]:
    """After Ctrl-C, show what was scored until then, and stop."""
    try:
        yield
    except Interrupted as stop:
        if isinstance(stop.kept, Explanation):
            emit(stop.kept, options)
        raise


def follow(items: Iterable[RankedSentence | Explanation], options: argparse.Namespace) -> Explanation:
    """Print sentences of the answer with their ranking as they come; returns the explanation."""
    width = shutil.get_terminal_size().columns
    for item in items:
        if isinstance(item, Explanation):
            return item
        if options.quiet:
            continue
        note(" ".join(item.text.split()))
        e = item.explanation
        for part in item.top(_SHOWN):
            if has_share(e, part.index):
                where = e.prompt.where(e.features[part.index].part)
                line = f"{part.normalized_weight:.0%} {where}{': ' if where else ''}{part.text}"
                note(f"    {shorten(line, max(width - 5, 20))}")
    raise AssertionError("a stream ends with the explanation")


def emit(explanation: Explanation, options: argparse.Namespace, *, save: bool = True) -> None:
    """Write the requested files and show the explanation; ``save`` says whether --json is for it."""
    from ropelime.views.terminal import show, to_svg

    how = {name: getattr(options, name) for name in ("top", "full", "details")}
    if options.json and save:
        explanation.save(options.json)
    if options.html:
        explanation.to_html(options.html)
    if options.svg:
        write_text(options.svg, to_svg(explanation, **how))
    if options.quiet:
        return
    if options.cite:
        print(plain(str(explanation.cite())))
        for warning in explanation.diagnostics.warnings:  # the citations do not show them
            note(f"! {plain(warning)}")
    else:
        show(explanation, **how)
    for path in filter(None, (options.json, options.html, options.svg)):
        print(f"Written to {path}")
