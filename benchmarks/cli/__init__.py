"""``python -m benchmarks``: every experiment, resumable, and the pages made from their results."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks.cli import (
    agents,
    architectures,
    batch,
    believe,
    closed,
    experiments,
    files,
    heads,
    learn,
    long,
    renew,
    speed,
)
from ropelime.cli import run_command

_EPILOG = """\
examples:
  python -m benchmarks hotpotqa --context gold --data hotpot_dev_distractor_v1.json
  python -m benchmarks hotpotqa --context all --limit 160 --data hotpot_dev_distractor_v1.json
  python -m benchmarks sweep --data hotpot_dev_distractor_v1.json
  python -m benchmarks ablation --context gold --limit 20 --data hotpot_dev_distractor_v1.json
  python -m benchmarks mmlu --data miscellaneous_test.csv
  python -m benchmarks budget --context all --limit 300 --data hotpot_dev_distractor_v1.json
  python -m benchmarks agents --form plain unframed asked --data agentdyn.jsonl.xz
  python -m benchmarks heads hotpotqa --limit 500 --data hotpot_dev_distractor_v1.json
  python -m benchmarks long needles --limit 10 --data hotpot_dev_distractor_v1.json
  python -m benchmarks speed --data hotpot_dev_distractor_v1.json
  python -m benchmarks speed --shape qwen3-8b --device cuda
  python -m benchmarks batch --memory 10000 --shape tiny
  python -m benchmarks batch --device cuda
  python -m benchmarks architectures --docs docs
  python -m benchmarks report results/* --docs docs
  python -m benchmarks headline
  python -m benchmarks compress results/mmlu.jsonl
  python -m benchmarks lexical results/mmlu.jsonl.xz --data miscellaneous_test.csv

A run appends to results/NAME.jsonl, and the same command resumes a run that was stopped. Results are
kept compressed: once a run has finished, `compress` replaces its file by results/NAME.jsonl.xz.
`report` reads both.
"""


def parser() -> argparse.ArgumentParser:
    """The command line of the benchmarks."""
    top = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Rerun the experiments of the paper, and more.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="bench", metavar="EXPERIMENT", required=True)
    groups = (
        experiments,
        closed,
        believe,
        agents,
        heads,
        learn,
        long,
        renew,
        speed,
        batch,
        architectures,
        files,
    )
    for group in groups:
        group.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one experiment and return the exit code."""
    return run_command(parser(), arguments)
