"""Quality against tokens, intervals and trust: ``docs/budget.md`` out of ``ropelime bench budget``."""
