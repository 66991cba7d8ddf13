"""``python -m fuzz [NAME ...] --seconds 3600``: run fuzzers, and say how to repeat what they find."""

from __future__ import annotations

import argparse
import itertools
import sys
import time

from fuzz import FUZZERS
from fuzz.harness import run


def main() -> int:
    """Run the fuzzers one after the other; the exit code is 1 if one has found something."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(FUZZERS)}; all if none"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="for each of them (default 60)")
    parser.add_argument("--seed", type=int, help="of all cases (default: the time)")
    parser.add_argument("--case", type=int, help="run this one alone")
    options = parser.parse_args()
    if strange := [name for name in options.names if name not in FUZZERS]:
        parser.error(f"there is no fuzzer {strange[0]}; there are {', '.join(FUZZERS)}")
    seed = int(time.time()) if options.seed is None else options.seed
    findings = 0
    for name in options.names or FUZZERS:
        cases = itertools.count() if options.case is None else iter([options.case])
        found, counts = run(
            FUZZERS[name],
            seed=seed,
            cases=cases,
            seconds=options.seconds,
            tell=lambda finding: print(finding, flush=True),
        )
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        print(f"{name}, seed {seed}: {outcomes}; {len(found)} kinds of findings", flush=True)
        findings += len(found)
        if "interrupted" in counts:
            break
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
