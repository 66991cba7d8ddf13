"""Results files become a page: our tables beside the paper's, chance beside both, targets judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ropelime.bench import figures, tables
from ropelime.bench.summary import COMMANDS, Results, Section, load
from ropelime.bench.targets import targets
from ropelime.errors import InputError

_INTRO = """\
# Results

Made by `ropelime bench report` out of {files}; no figure of ours is typed by hand.
What was to be reached, and whether it was, stands [at the end](#targets).

- **IoU, F1, AUROC** compare the top |gold| features with the labels: mean ± standard deviation (divided
  by n) [90 % bootstrap interval of the mean, 2000 resamples]. AUROC is undefined where every feature is
  gold; such examples are counted and left out of it.
- **LDS** is the rank correlation of predicted and true log-probability on held-out masks. **drop@k** is
  the fall of the answer's log-probability, in nats, without the top k features, over the examples with
  enough features. **Insertion** (higher is better) and **deletion** (lower is better) are areas under
  the log-probability per token.
- **Masks, tokens, seconds** are means for one example: prompts read by the surrogate, their tokens, and
  the time of reading and fitting.
- **Chance** is what a random ranking reaches on average. Rows of the **paper** are copied from its
  appendix.
"""
_TITLES: dict[Section, str] = {
    ("hotpotqa", "gold"): "HotpotQA, gold paragraphs",
    ("hotpotqa", "all"): "HotpotQA, all ten paragraphs",
    ("sweep", None): "Sparse-K settings",
    ("mmlu", None): "MMLU, words",
    ("ablation", "gold"): "Ablation, gold paragraphs",
    ("ablation", "all"): "Ablation, all ten paragraphs",
}
_TABLES: dict[str, Callable[[Results], list[str]]] = {
    "hotpotqa": tables.hotpotqa,
    "sweep": tables.sweep,
    "mmlu": tables.mmlu,
    "ablation": tables.ablation,
}
_FIGURES: dict[Section, Callable[[Results, Path], list[Path]]] = {
    ("hotpotqa", "gold"): figures.hotpotqa,
    ("sweep", None): figures.sweep,
    ("mmlu", None): figures.mmlu,
}


_READING = """
## How to read this

- **Equal tokens.** From six features on, the paper's best settings round to k at or above M, so k
  is clipped to M - 1 and the masks that Sparse-K draws first are those of leave-one-out. At
  leave-one-out's tokens both are the same method, so neither can be above the other there. What
  Sparse-K gains over leave-one-out, where it gains, it gains by reading more: masks that remove two
  features.
- **The setting for 9 to 11 sentences.** The paper names two: its sweep ranks (4√M, M) first, its
  summary shows (2√M, min(M, 16k)). `sparse-k` takes the first; the sweep above has both. The choice
  was made after both had been measured here, so read that bucket with it in mind.
- **The caps of c.** With these numbers of features min(M, 16k), min(M, 8k) and min(M, 4k) all equal
  M for nearly every k, so much of the 3 × 6 grid repeats itself.
- **The kernel.** Taking it away changes little, and so do its layer, space, phase and mass. `tight`
  changes nothing here: the way from all features to the kept ones is always the longer of the two.
- **Noise.** Readings are in bfloat16. The same masks read in another batch differ in the last
  digits, and fits of masks of one size amplify that: a single example can change its ranking
  between two runs. The intervals are over examples and do not cover it. The wording of the prompt
  moves these figures as well.
- **The default** follows from the ablation: for few features, the best F1 on gold paragraphs with
  the kernel at its own layer; for many, the best F1 on all ten paragraphs within half of
  ContextCite's tokens.
- **What limits the ten-paragraph figures** is the surrogate more than the sampler: methods that
  cost five times as much are not better with this model.
"""


def write(results: Sequence[Path], docs: Path) -> list[Path]:
    """Write the page of results and its figures.

    Args:
        results: Results files of ``ropelime bench``, at most one for each section.
        docs: The folder to write ``results.md`` and ``figures/`` into.

    Returns:
        The files that were written.
    """
    if not results:
        raise InputError("Name at least one results file of `ropelime bench`.")
    loaded: dict[Section, Results] = {}
    for path in results:
        one = load(path)
        if one.section in loaded:
            raise InputError(
                f"{loaded[one.section].path} and {path} both hold results of "
                f"{_TITLES[one.section]!r}. Name one of them."
            )
        loaded[one.section] = one
    # The order of the page, whatever order the files came in.
    loaded = {section: loaded[section] for section in _TITLES if section in loaded}
    filled = {section: one for section, one in loaded.items() if one.examples()}
    try:
        (docs / "figures").mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{docs} is no folder to write into. Name another one.") from None
    drawn: list[Path] = []
    for section, draw in _FIGURES.items():
        if section in filled:
            drawn += draw(filled[section], docs / "figures")
    page = docs / "results.md"
    page.write_text(_page(loaded, filled), encoding="utf-8", newline="\n")
    return [page, *drawn]


def _page(loaded: dict[Section, Results], filled: dict[Section, Results]) -> str:
    files = ", ".join(f"`{one.path.name}`" for one in loaded.values())
    blocks = [_INTRO.format(files=files)]
    for section, title in _TITLES.items():
        blocks.append(f"## {title}")
        if section not in loaded:
            blocks.append(f"No results were given. This makes them: `{COMMANDS[section]}`")
            continue
        blocks += _origin(loaded[section])
        if section in filled:
            blocks += _TABLES[section[0]](filled[section])
    blocks += ["## Targets", *tables.verdicts(targets(filled)), _READING]
    return "\n\n".join(block.strip("\n") for block in blocks) + "\n"


def _origin(results: Results) -> list[str]:
    """The command, what it ran with, and how much of it is there."""
    header, count = results.header, len(results.examples())
    model = dict(header.get("surrogate") or {})
    name, kind = model.pop("name", "unknown"), model.pop("architecture", None)
    dtype, device = model.pop("dtype", "unknown dtype"), model.pop("device", "unknown device")
    versions = {**header.get("versions", {}), **model}
    facts = [
        f"Surrogate {name}" + (f" ({kind})" if kind else "") + f", {dtype} on {device}",
        ", ".join(f"{library} {version}" for library, version in versions.items())
        or "unknown versions",
        f"seed {header.get('seed')}",
        f"{count} examples, of which AUROC leaves out {results.all_gold()} (every feature gold)",
    ]
    blocks = [f"```\n{header.get('command', COMMANDS[results.section])}\n```", "; ".join(facts) + "."]
    if results.missing:
        blocks.append(
            f"**Not finished: {results.missing} more examples are missing or incomplete.** They are "
            "left out; the same command goes on with them."
        )
    return blocks
