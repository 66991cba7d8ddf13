"""Quality against tokens, and intervals: ``docs/results/budget.md``."""
