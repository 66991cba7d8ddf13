"""Tiny models of every causal architecture, scored by the engine and by a naive loop."""
