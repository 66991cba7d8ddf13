"""``ropelime bench``: the paper's experiments, resumable, and the page of results made from them."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from ropelime.errors import InputError
from ropelime.progress import Option, lines, note, reporting

_EPILOG = """\
examples:
  ropelime bench hotpotqa --context gold --data hotpot_dev_distractor_v1.json
  ropelime bench hotpotqa --context all --limit 160 --data hotpot_dev_distractor_v1.json
  ropelime bench sweep --data hotpot_dev_distractor_v1.json
  ropelime bench ablation --context gold --limit 20 --data hotpot_dev_distractor_v1.json
  ropelime bench mmlu --data miscellaneous_test.csv
  ropelime bench report results/*.jsonl --docs docs

A run that was stopped goes on where it was: give the same command again.
"""

_RUNS = ("hotpotqa", "sweep", "ablation", "mmlu")


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "bench",
        help="rerun the experiments",
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
    }
    for name in _RUNS:
        kind = kinds.add_parser(name, help=helps[name], description=helps[name])
        kind.add_argument(
            "--data", type=Path, metavar="FILE", help="the data; the hub's copy if not given"
        )
        kind.add_argument("--limit", type=int, metavar="N", help="examples, of each bucket or in all")
        kind.add_argument(
            "--results", type=Path, metavar="FILE", help="results file to write or go on with"
        )
        kind.add_argument(
            "--surrogate", default="smollm2", metavar="MODEL", help="see `ropelime models`"
        )
        kind.add_argument("--device", help="cpu, cuda or mps")
        kind.add_argument("--dtype", help="float32, bfloat16 or float16")
        kind.add_argument("--seed", type=int, default=0)
        kind.add_argument("--quiet", action="store_true", help="print nothing but errors")
        if name in ("hotpotqa", "ablation"):
            kind.add_argument("--context", choices=["gold", "all"], default="gold")
        if name == "mmlu":
            kind.add_argument("--generator", metavar="MODEL", help="gSMILE's model at a chat endpoint")
            kind.add_argument("--base-url", metavar="URL", help="address of the chat endpoint")
        kind.set_defaults(run=run)
    report = kinds.add_parser("report", help="make docs/results.md out of results files")
    report.add_argument("results", nargs="+", type=Path, metavar="FILE")
    report.add_argument("--docs", type=Path, default=Path("docs"), metavar="FOLDER")
    report.set_defaults(run=make_report)


def run(options: argparse.Namespace) -> None:
    """Run one experiment."""
    from ropelime.bench import data, experiments
    from ropelime.surrogate import load_surrogate

    if options.limit is not None and options.limit < 1:
        raise InputError(f"--limit must be at least 1, not {options.limit}.")
    if options.seed < 0:
        raise InputError(f"--seed must not be negative, not {options.seed}.")
    context = getattr(options, "context", None)
    if options.bench == "mmlu":
        examples = data.mmlu(options.data, limit=options.limit)
    else:
        examples = data.hotpotqa(options.data, context=context or "gold", limit=options.limit)
    name = "-".join(filter(None, [options.bench, context]))
    results = options.results or Path("results") / f"{name}.jsonl"
    if options.results is None:
        try:
            results.parent.mkdir(exist_ok=True)
        except FileExistsError:
            raise InputError(
                f"{results.parent} is a file, so no results can go into it. Pass --results FILE."
            ) from None
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
            progress=report,
        )
    if not options.quiet:
        print(f"Written to {results}")


def _progress(options: argparse.Namespace, name: str) -> Option:
    if options.quiet:
        return False
    return "auto" if sys.stderr.isatty() else lines(name)


def make_report(options: argparse.Namespace) -> None:
    """Make the page of results."""
    from ropelime.bench import report

    for path in report.write(options.results, options.docs):
        print(path)


def _command(options: argparse.Namespace) -> str:
    """The command as it can be given again anywhere: local paths by their names only."""
    words = ["ropelime", "bench", options.bench]
    names = ("context", "limit", "surrogate", "device", "dtype", "seed", "generator", "base_url")
    for name in names:
        value = getattr(options, name, None)
        if value is not None and (name, value) not in {("surrogate", "smollm2"), ("seed", 0)}:
            local = name == "surrogate" and Path(value).expanduser().exists()
            words += [f"--{name.replace('_', '-')}", Path(value).name if local else str(value)]
    if options.data:
        words += ["--data", options.data.name]
    return shlex.join(words)
