"""Quality against tokens, and intervals: ``docs/budget.md``."""
