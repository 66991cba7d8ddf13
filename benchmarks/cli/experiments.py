"""The experiments on labelled examples: ``hotpotqa``, ``sweep``, ``ablation``, ``mmlu``, ``budget``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.cli import shared
from ropelime.progress import reporting

_HELP = {
    "hotpotqa": "sentences of HotpotQA: Sparse-K, leave-one-out and the estimators of peers",
    "sweep": "the 3 x 6 grid of Sparse-K settings",
    "ablation": "target, kernel, space, sampler and regressor, each against its alternatives",
    "mmlu": "words of MMLU questions: RoPE-LIME against gSMILE",
    "budget": "quality against tokens, and intervals: the presets and the estimators of peers",
}
_CONTEXTS = ("gold", "all", "twice", "100", "400")


def add(commands: Any) -> None:
    """Add these commands."""
    kinds = {}
    for name, text in _HELP.items():
        kinds[name] = kind = shared.new_command(commands, name, text)
        shared.add_data(kind)
        shared.add_run(kind)
        kind.set_defaults(run=run, context=None, ablation="delete", generator=None, base_url=None)
    for name in ("hotpotqa", "ablation"):
        kinds[name].add_argument("--context", choices=["gold", "all"], default="gold")
    kinds["budget"].add_argument(
        "--context",
        choices=_CONTEXTS,
        default="all",
        help="the gold paragraphs; all ten; all ten with the gold ones twice; or so many sentences",
    )
    kinds["budget"].add_argument(
        "--ablation", default="delete", help="delete, in-place or placeholder:TEXT"
    )
    kinds["mmlu"].add_argument("--generator", metavar="MODEL", help="gSMILE's model at a chat endpoint")
    kinds["mmlu"].add_argument("--base-url", metavar="URL", help="address of the chat endpoint")


def run(options: argparse.Namespace) -> None:
    """Run one experiment."""
    from benchmarks import data, experiments

    shared.check(options, "limit")
    context = options.context
    if options.bench == "mmlu":
        examples = data.mmlu(options.data, limit=options.limit)
    else:
        examples = data.hotpotqa(options.data, context=context or "gold", limit=options.limit)
    model = Path(options.surrogate).stem if options.bench == "budget" else None
    how = None if options.ablation == "delete" else options.ablation.partition(":")[0]
    name = "-".join(filter(None, [options.bench, context, how, model]))
    results = shared.results_file(options, name)
    surrogate = shared.load(options)
    with reporting(shared.progress(options, name), name) as report:
        experiments.run(
            options.bench,
            examples,
            surrogate,
            results,
            context=context,
            seed=options.seed,
            limit=options.limit,
            command=shared.command(options),
            generator=options.generator,
            base_url=options.base_url,
            ablation=options.ablation,
            progress=report,
        )
    shared.written(options, results)
