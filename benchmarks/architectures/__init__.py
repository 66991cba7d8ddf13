"""Tiny models of every causal architecture of transformers, scored by the engine and by a naive loop."""
