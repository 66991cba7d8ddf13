"""Whether the numbers beside a ranking can be believed: verdicts, grounding and intervals."""
