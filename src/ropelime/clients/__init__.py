"""Clients of model servers: answers, log-probabilities of prompts, and a cache of answers."""
