"""Closed models: one call, one answer, and where answers are kept."""
