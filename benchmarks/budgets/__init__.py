"""Quality against tokens, intervals and trust: ``docs/budget.md``."""
