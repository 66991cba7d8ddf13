"""Fuzzers with a seed: a few seconds of each in the tests, as long as one likes by ``make fuzz``."""

from fuzz import api, cli, cutter, saved, traces

FUZZERS = {module.FUZZER.name: module.FUZZER for module in (cli, saved, api, cutter, traces)}
