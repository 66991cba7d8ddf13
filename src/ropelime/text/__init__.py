"""The input: prompts, what other libraries hand over, and how a prompt is split into features."""
