"""``closed``: explanations held against the model that answered."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cli import shared
from ropelime._version import __version__
from ropelime.cli.shared import sampling_arguments
from ropelime.errors import InputError
from ropelime.progress import note, reporting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.closed.answering import Converse
    from benchmarks.closed.cases import Case
    from benchmarks.closed.heads import Heads
    from benchmarks.closed.run import Ask
    from ropelime.answering import AnsweringModel
    from ropelime.surrogate.local import LocalSurrogate

_HELP = "explanations held against the model that answered, which is asked again with parts removed"
KINDS = ("hotpotqa", "reference", "mixed", "lfqa")
_MAX_CALLS = 2000
ANSWERED = ("reference",)  # they come with answers
MOST = {"hotpotqa": 32, "reference": 0, "mixed": 64, "lfqa": 128}  # tokens of an answer


def add(commands: Any) -> None:
    """Add this command."""
    kind = shared.new_command(commands, "closed", _HELP)
    kind.add_argument("kind", choices=KINDS, help="the prompts")
    text = (
        "the model that answers: as --surrogate, or URL#MODEL at a server with the Chat Completions API"
    )
    kind.add_argument(
        "--answering", metavar="MODEL", help=f"{text}; not for prompts that come with answers"
    )
    text = (
        "further arguments of calls to a server (default temperature=0 and max_tokens); values are JSON"
    )
    kind.add_argument("--sampling", nargs="+", default=[], metavar="NAME=VALUE", help=text)
    text = f"calls to a server that are allowed in all (default {_MAX_CALLS:,})"
    kind.add_argument("--max-calls", type=int, default=_MAX_CALLS, metavar="N", help=text)
    text = "calls to a server at once (default 8)"
    kind.add_argument("--concurrency", type=int, default=8, metavar="N", help=text)
    kind.add_argument("--also-by", nargs="*", default=[], metavar="MODEL", help="further surrogates")
    kind.add_argument("--skip", type=int, default=0, metavar="N", help="leave out the first N prompts")
    kind.add_argument("--cached-only", action="store_true", help="leave out methods that score exactly")
    text = "run these methods of the surrogate alone, such as evidence instant"
    kind.add_argument("--only", nargs="+", default=[], metavar="METHOD", help=text)
    text = "compare other ways to mix the signals of evidence, which were tried, and nothing else"
    kind.add_argument("--attempts", action="store_true", help=text)
    kind.add_argument(
        "--labels-only", action="store_true", help="ask the answering model only, to learn from it"
    )
    text = "ask it for its answers with all parts and with none only"
    kind.add_argument("--answers-only", action="store_true", help=text)
    kind.add_argument(
        "--heads",
        type=_named,
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a row for AT2 with weights of `heads`, for the surrogate that they were learnt for",
    )
    shared.add_data(kind)
    shared.add_run(kind)
    kind.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the arena."""
    from benchmarks.closed import cases, rankings
    from benchmarks.closed import run as arena
    from benchmarks.closed.place import COUNTED
    from benchmarks.store import Store, read
    from ropelime.method.learnt import EVIDENCE, INSTANT

    shared.check(options, "limit", "max_calls", "concurrency")
    only = ["evidence", "instant"] if options.attempts else options.only
    if unknown := set(only) - {method.name for method in rankings.compared()}:
        known = ", ".join(method.name for method in rankings.compared())
        raise InputError(f"There is no method {', '.join(sorted(unknown))}. Known: {known}.")
    if (options.answering is None) != (options.kind in ANSWERED):
        raise InputError(
            "--answering MODEL is needed, except for prompts that come with answers: "
            f"{' and '.join(ANSWERED)}."
        )
    if options.data is None:
        raise InputError("--data FILE is needed.")
    found = cases.KINDS[options.kind](options.data)[options.skip :][: options.limit]
    if not found:
        raise InputError(f"{options.data} has no prompts left after --skip {options.skip}.")
    asks: Ask = "answers" if options.answers_only else "labels" if options.labels_only else "rankings"
    if asks != "rankings" and options.answering is None:
        raise InputError(f"--{asks}-only needs --answering MODEL.")
    bench = "closed" if asks == "rankings" else asks
    served = _served(options)
    explaining = [options.surrogate, *options.also_by] if asks == "rankings" else []
    here = [options.answering] if options.answering and not served else []
    loaded = {name: shared.load_local(options, name) for name in dict.fromkeys([*here, *explaining])}
    surrogates = {short(name): loaded[name] for name in explaining}
    heads = _heads(options, surrogates)
    answering = served or loaded.get(options.answering)
    parts = [bench, options.kind, short(options.answering) if answering else None]
    name = "-".join(filter(None, [*parts, *surrogates, "attempts" if options.attempts else None]))
    results = shared.results_file(options, name)
    settings = {
        "bench": bench,
        "kind": options.kind,
        "answering": _described(options.answering, answering) if answering else None,
        "surrogates": {name: _described(name, model) for name, model in surrogates.items()},
        "heads": {name: path.name for name, path in options.heads},
        "signals": {"evidence": dict(EVIDENCE), "instant": dict(INSTANT)},
        **({"last_part": dict.fromkeys(surrogates, COUNTED)} if surrogates else {}),
        "only": only,
        **({"attempts": True} if options.attempts else {}),
        "skip": options.skip,
        "limit": options.limit,
        "seed": options.seed,
        "command": shared.command(options),
        "versions": {"ropelime": __version__, "python": platform.python_version()},
    }
    exact = not options.cached_only
    if served:  # before the file is begun: after a refusal, another --limit may be chosen
        done = {row["example"] for row in read(results)[1]} if results.exists() else set()
        left = [case for case in found if case.id not in done]
        _check_calls(
            options, left, rankings.count(surrogates.values(), exact=exact, attempts=options.attempts)
        )
    store = Store(results, settings, [arena.CASE])
    progress = reporting(shared.progress(options, name), name)
    with progress as report, _conversing(options, answering) as converse:
        arena.run(
            found,
            converse,
            surrogates,
            store,
            seed=options.seed,
            first=options.skip,
            exact=exact,
            only=only,
            attempts=options.attempts,
            ask=asks,
            heads=heads,
            progress=report,
        )
    shared.written(options, results)


def _served(options: argparse.Namespace) -> AnsweringModel | None:
    """The answering model behind a server, if it was named as one."""
    from ropelime.answering import AnsweringModel
    from ropelime.surrogate import is_served

    if options.answering is None or not is_served(options.answering):
        return None
    base_url, _, model = options.answering.partition("#")
    if not model or "#" in model:
        raise InputError(
            "A model behind a server is named as URL#MODEL, such as "
            f"http://localhost:8000/v1#Qwen/Qwen3-8B, not {options.answering}."
        )
    sampling = {"temperature": 0, "max_tokens": MOST[options.kind]}
    if "max_completion_tokens" in (given := sampling_arguments(options.sampling)):
        del sampling["max_tokens"]
    return AnsweringModel(model, base_url, sampling=sampling | given)


def _named(text: str) -> tuple[str, Path]:
    """NAME=FILE."""
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE")
    return name, Path(path)


def _heads(
    options: argparse.Namespace, surrogates: Mapping[str, LocalSurrogate]
) -> dict[str, dict[str, Heads]]:
    """The weights of heads, by surrogate and then by name."""
    from benchmarks.closed.heads import Heads

    found: dict[str, dict[str, Heads]] = {surrogate: {} for surrogate in surrogates}
    for name, path in options.heads:
        loaded = Heads.load(path)
        if loaded.model not in found:
            raise InputError(
                f"{path} was learnt for {loaded.model}, which is not one of the surrogates "
                f"({', '.join(found)}). Name it with --surrogate or --also-by."
            )
        found[loaded.model][name] = loaded
    return found


def _check_calls(options: argparse.Namespace, left: Sequence[Case], ranked: int) -> None:
    """Say how many calls will be made at most, before any is made; refuse more than are allowed."""
    from benchmarks.closed.run import most_calls

    calls = sum(most_calls(case, ranked) for case in left)
    if calls > options.max_calls:
        raise InputError(
            f"{len(left)} prompts take up to {calls:,} calls of {options.answering}, and --max-calls "
            f"allows {options.max_calls:,}. Raise it, or lower --limit."
        )
    if not options.quiet:
        note(
            f"ropelime: up to {calls:,} calls of {options.answering} for {len(left)} prompts; those "
            "in the cache of answers are not made again."
        )


@contextmanager
def _conversing(
    options: argparse.Namespace, answering: LocalSurrogate | AnsweringModel | None
) -> Iterator[Converse | None]:
    """What begins conversations with the answering model, while its connections are open."""
    from benchmarks.closed.answering import LocalConversation, ServedConversation
    from ropelime.answering import AnsweringModel
    from ropelime.clients.pool import Pool

    if answering is None:
        yield None
    elif isinstance(answering, AnsweringModel):
        with Pool(options.concurrency) as pool:
            yield partial(ServedConversation, answering, pool)
    else:
        yield partial(LocalConversation, answering, most=MOST[options.kind])


def _described(name: str, model: LocalSurrogate | AnsweringModel) -> dict[str, Any]:
    """What is recorded about a model: its name instead of its path."""
    return {**model.describe(), "name": short(name)}


def short(name: str) -> str:
    """The name of a model in the tables."""
    _, at_server, model = name.partition("#")
    return model.rpartition("/")[2] if at_server else Path(name).name.removesuffix(".gguf")
