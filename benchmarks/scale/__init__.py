"""How fast many explanations are, and what a million of them takes."""
