"""How fast scoring is: beside a plain loop and the peers, and against what the machine could do."""
