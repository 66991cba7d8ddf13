"""Quality against tokens, intervals and trust: ``docs/budget.md`` out of ``python -m benchmarks budget``."""
