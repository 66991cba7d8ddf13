"""The result: the explanation, what it can be held to, and its file."""
