"""Benchmark examples: a prompt, its features, which of them are gold, and the fixed answer."""

from benchmarks.data.example import BUCKETS, Example, bucket, digest
from benchmarks.data.hotpot import hotpotqa
from benchmarks.data.mmlu_words import mmlu

__all__ = ["BUCKETS", "Example", "bucket", "digest", "hotpotqa", "mmlu"]
