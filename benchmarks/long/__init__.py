"""Prompts that are longer than the window: needles, and HotpotQA among thousands of sentences."""
