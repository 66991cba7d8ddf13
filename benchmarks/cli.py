"""``python -m benchmarks``: every experiment, resumable, and the pages of results made from them."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropelime.cli import run_command
from ropelime.errors import InputError
from ropelime.progress import Option, lines, note, reporting

if TYPE_CHECKING:
    from ropelime.surrogate.local import LocalSurrogate

_EPILOG = """\
examples:
  python -m benchmarks hotpotqa --context gold --data hotpot_dev_distractor_v1.json
  python -m benchmarks hotpotqa --context all --limit 160 --data hotpot_dev_distractor_v1.json
  python -m benchmarks sweep --data hotpot_dev_distractor_v1.json
  python -m benchmarks ablation --context gold --limit 20 --data hotpot_dev_distractor_v1.json
  python -m benchmarks mmlu --data miscellaneous_test.csv
  python -m benchmarks budget --context all --limit 300 --data hotpot_dev_distractor_v1.json
  python -m benchmarks speed --data hotpot_dev_distractor_v1.json
  python -m benchmarks speed --shape qwen3-8b --device cuda
  python -m benchmarks batch --memory 10000 --shape tiny
  python -m benchmarks batch --device cuda
  python -m benchmarks report results/*.jsonl --docs docs

A run that was stopped goes on where it was: give the same command again.
"""

CONTEXTS = ("gold", "all", "twice", "100", "400")
_RUNS = ("hotpotqa", "sweep", "ablation", "mmlu", "budget")


def parser() -> argparse.ArgumentParser:
    """The command line of the benchmarks."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Rerun the experiments of the paper, and those beyond it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(dest="bench", metavar="EXPERIMENT", required=True)
    helps = {
        "hotpotqa": "sentences of HotpotQA: Sparse-K, leave-one-out and the peers' estimators",
        "sweep": "the 3 x 6 grid of Sparse-K settings",
        "ablation": "target, kernel, space, sampler and regressor, each against its alternatives",
        "mmlu": "words of MMLU questions: RoPE-LIME against gSMILE",
        "budget": "quality against tokens, intervals and trust: the presets and the peers' estimators",
    }
    for name in _RUNS:
        kind = kinds.add_parser(name, help=helps[name], description=helps[name])
        _add_common(kind)
        if name in ("hotpotqa", "ablation"):
            kind.add_argument("--context", choices=["gold", "all"], default="gold")
        if name == "budget":
            kind.add_argument(
                "--context", choices=CONTEXTS, default="all",
                help="gold paragraphs; all ten; the gold ones of the ten twice; or so many sentences",
            )  # fmt: skip
            kind.add_argument(
                "--ablation", default="delete", help="delete, in-place or placeholder:TEXT"
            )
        if name == "mmlu":
            kind.add_argument("--generator", metavar="MODEL", help="gSMILE's model at a chat endpoint")
            kind.add_argument("--base-url", metavar="URL", help="address of the chat endpoint")
        kind.set_defaults(run=run)
    _add_speed(kinds)
    _add_batch(kinds)
    report = kinds.add_parser(
        "report",
        help="make docs/results.md, docs/performance.md and docs/scale.md out of results files",
    )
    report.add_argument("results", nargs="+", type=Path, metavar="FILE")
    report.add_argument("--docs", type=Path, default=Path("docs"), metavar="FOLDER")
    report.set_defaults(run=make_report)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one experiment and give back the exit code."""
    return run_command(parser(), arguments)


def _add_common(kind: argparse.ArgumentParser) -> None:
    kind.add_argument("--data", type=Path, metavar="FILE", help="the data; the hub's copy if not given")
    kind.add_argument("--limit", type=int, metavar="N", help="examples, of each bucket or in all")
    _add_model(kind)


def _add_model(kind: argparse.ArgumentParser) -> None:
    kind.add_argument(
        "--results", type=Path, metavar="FILE", help="results file to write or go on with"
    )
    kind.add_argument("--surrogate", default="smollm2", metavar="MODEL", help="see `ropelime models`")
    kind.add_argument("--device", help="cpu, cuda, mps or auto")
    kind.add_argument("--dtype", help="float32, bfloat16 or float16")
    kind.add_argument("--seed", type=int, default=0)
    kind.add_argument("--quiet", action="store_true", help="print nothing but errors")


def _add_speed(kinds: Any) -> None:
    help_ = "how fast scoring is: beside a plain loop and the peers, and against the machine's own rate"
    kind = kinds.add_parser("speed", help=help_, description=help_)
    _add_common(kind)
    kind.add_argument("--rounds", type=int, default=3, metavar="N", help="runs of each (default 3)")
    kind.add_argument("--shape", metavar="NAME", help="random weights of this shape, a random prompt")
    kind.add_argument("--features", type=int, default=40, metavar="N", help="features of that prompt")
    kind.add_argument("--feature-tokens", type=int, default=33, metavar="N", help="tokens of each")
    kind.add_argument("--compile", action="store_true", help="compiled layers as well")
    kind.add_argument("--scaling", action="store_true", help="cost against features, random weights")
    kind.add_argument("--start", action="store_true", help="the first explanation of a new process")
    kind.set_defaults(run=run_speed)


def _add_batch(kinds: Any) -> None:
    help_ = "many short prompts: one call after another, a batch, a batch on Ray"
    kind = kinds.add_parser("batch", help=help_, description=help_)
    _add_model(kind)
    kind.add_argument("--shape", metavar="NAME", help="random weights of this shape")
    kind.add_argument("--lines", type=int, default=256, metavar="N", help="in a round (default 256)")
    kind.add_argument("--rounds", type=int, default=3, metavar="N", help="runs of each (default 3)")
    kind.add_argument("--together", type=int, default=64, metavar="N", help="as in `ropelime batch`")
    kind.add_argument("--memory", type=int, default=0, metavar="N", help="watch it over so many lines")
    kind.add_argument(
        "--actors",
        type=int,
        nargs="+",
        default=[],
        metavar="N",
        help="also on Ray, with so many actors",
    )
    kind.set_defaults(run=run_batch, data=None)


def run_batch(options: argparse.Namespace) -> None:
    """Measure batches."""
    from tempfile import TemporaryDirectory

    from benchmarks.scale.measure import measure
    from ropelime.batch.ray import installed

    _check(options, "lines", "rounds", "together")
    if options.actors:
        installed()
    with TemporaryDirectory(prefix="ropelime-shape-") as folder:
        surrogate = _batch_surrogate(options, Path(folder))
        name = options.shape or Path(surrogate.name).name.lower()
        what = f"batch-{surrogate.device.type}-{name}"
        results = _results(options, what)
        with reporting(_progress(options, what), what) as report:
            measure(
                surrogate,
                results,
                lines=options.lines,
                rounds=options.rounds,
                together=options.together,
                command=_command(options),
                device=options.device,
                dtype=options.dtype,
                memory=options.memory,
                actors=tuple(options.actors),
                seed=options.seed,
                progress=report,
            )
    if not options.quiet:
        print(f"Written to {results}")


def _batch_surrogate(options: argparse.Namespace, folder: Path) -> LocalSurrogate:
    """The model, or random weights behind the embedded one's tokenizer; saved where actors load it."""
    from benchmarks.shapes import random_surrogate
    from ropelime.surrogate.loading import best_device, best_dtype, check_device, load_surrogate
    from ropelime.surrogate.local import LocalSurrogate

    name = options.surrogate
    if options.shape:
        device = options.device or best_device()
        check_device(device)
        dtype = options.dtype or best_dtype(device)
        embedded = load_surrogate("smollm2", device="cpu", dtype="float32")
        assert isinstance(embedded, LocalSurrogate)
        made = random_surrogate(
            options.shape, device=device, dtype=dtype, seed=options.seed, tokenizer=embedded.tokenizer
        )
        if not options.actors:
            return made
        name = str(folder / made.name)
        made.model.save_pretrained(name)
        made.tokenizer.save_pretrained(name)
    say = None if options.quiet else note
    loaded = load_surrogate(name, device=options.device, dtype=options.dtype, say=say)
    assert isinstance(loaded, LocalSurrogate)
    return loaded


def run_speed(options: argparse.Namespace) -> None:
    """Measure speed."""
    from ropelime.surrogate import threads

    threads.before_torch()
    from benchmarks import data
    from benchmarks.speed import run as speed

    _check(options, "limit", "rounds", "features", "feature_tokens")
    if options.scaling + options.start + bool(options.shape) * (not options.scaling) > 1:
        raise InputError("--scaling, --start and --shape are measured one at a time.")
    if options.compile and (options.scaling or options.start):
        raise InputError("--compile does not go with --scaling or --start.")
    shared: dict[str, Any] = {"rounds": options.rounds, "command": _command(options)}
    surrogate = _speed_surrogate(options)
    what = next((w for w in ("scaling", "start") if getattr(options, w)), options.shape)
    words = ["speed", surrogate.device.type, what, "compiled" if options.compile else None]
    name = "-".join(filter(None, words))
    results = _results(options, name)
    with reporting(_progress(options, name), name) as report:
        if options.scaling:
            speed.run_scaling(surrogate, results, seed=options.seed, progress=report, **shared)
        elif options.start:
            speed.run_start(surrogate, results, device=options.device, dtype=options.dtype, **shared)
        elif options.shape:
            speed.run_shape(
                surrogate,
                results,
                features=options.features,
                tokens=options.feature_tokens,
                seed=options.seed,
                compiled=options.compile,
                **shared,
            )
        else:
            examples = data.hotpotqa(options.data, context="all", limit=options.limit or 2)
            speed.run_contest(
                examples, surrogate, results, compiled=options.compile, progress=report, **shared
            )
    if not options.quiet:
        print(f"Written to {results}")


def _speed_surrogate(options: argparse.Namespace) -> LocalSurrogate:
    from benchmarks.shapes import random_surrogate
    from ropelime.surrogate.loading import best_device, best_dtype, check_device, load_surrogate
    from ropelime.surrogate.local import LocalSurrogate

    if options.shape or options.scaling:
        device = options.device or best_device()
        check_device(device)
        dtype = options.dtype or best_dtype(device)
        shape = options.shape or ("smollm2-135m" if device.startswith("cuda") else "tiny")
        return random_surrogate(shape, device=device, dtype=dtype, seed=options.seed)
    loaded = load_surrogate(
        options.surrogate,
        device=options.device,
        dtype=options.dtype,
        say=None if options.quiet else note,
    )
    assert isinstance(loaded, LocalSurrogate)
    return loaded


def _check(options: argparse.Namespace, *counts: str) -> None:
    for name in counts:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} must be at least 1, not {value}.")
    if options.seed < 0:
        raise InputError(f"--seed must not be negative, not {options.seed}.")


def _results(options: argparse.Namespace, name: str) -> Path:
    """The file that was named, or one in the folder of results."""
    if options.results is not None:
        return Path(options.results)
    results = Path("results") / f"{name}.jsonl"
    try:
        results.parent.mkdir(exist_ok=True)
    except FileExistsError:
        raise InputError(
            f"{results.parent} is a file, so no results can go into it. Pass --results FILE."
        ) from None
    return results


def run(options: argparse.Namespace) -> None:
    """Run one experiment."""
    from benchmarks import data, experiments
    from ropelime.surrogate import load_surrogate

    _check(options, "limit")
    context = getattr(options, "context", None)
    if options.bench == "mmlu":
        examples = data.mmlu(options.data, limit=options.limit)
    else:
        examples = data.hotpotqa(options.data, context=context or "gold", limit=options.limit)
    model = Path(options.surrogate).stem if options.bench == "budget" else None
    ablation = getattr(options, "ablation", "delete")
    how = None if ablation == "delete" else ablation.partition(":")[0]
    name = "-".join(filter(None, [options.bench, context, how, model]))
    results = _results(options, name)
    surrogate = load_surrogate(
        options.surrogate,
        device=options.device,
        dtype=options.dtype,
        say=None if options.quiet else note,
    )
    with reporting(_progress(options, name), name) as report:
        experiments.run(
            options.bench,
            examples,
            surrogate,
            results,
            context=context,
            seed=options.seed,
            limit=options.limit,
            command=_command(options),
            generator=getattr(options, "generator", None),
            base_url=getattr(options, "base_url", None),
            ablation=ablation,
            progress=report,
        )
    if not options.quiet:
        print(f"Written to {results}")


def _progress(options: argparse.Namespace, name: str) -> Option:
    if options.quiet:
        return False
    return "auto" if sys.stderr.isatty() else lines(name)


def make_report(options: argparse.Namespace) -> None:
    """Make the pages of results."""
    from benchmarks import report

    for path in report.write(options.results, options.docs):
        print(path)


def _command(options: argparse.Namespace) -> str:
    """The command as it can be given again anywhere: local paths by their names only."""
    words = ["python", "-m", "benchmarks", options.bench]
    names = ["context", "ablation", "limit", "surrogate", "device", "dtype", "seed", "generator"]
    names += ["base_url", "rounds", "shape", "lines", "together", "memory"]
    switches = [name for name in ("compile", "scaling", "start") if getattr(options, name, False)]
    if options.bench == "speed" and options.shape and "scaling" not in switches:
        names += ["features", "feature_tokens"]
    usual = {("surrogate", "smollm2"), ("ablation", "delete"), ("seed", 0), ("rounds", 3)}
    usual |= {("together", 64), ("memory", 0)}
    for name in names:
        value = getattr(options, name, None)
        if value is not None and (name, value) not in usual:
            local = name == "surrogate" and Path(value).expanduser().exists()
            words += [f"--{name.replace('_', '-')}", Path(value).name if local else str(value)]
    words += [f"--{name}" for name in switches]
    if getattr(options, "actors", None):
        words += ["--actors", *map(str, options.actors)]
    if options.data:
        words += ["--data", options.data.name]
    return shlex.join(words)
