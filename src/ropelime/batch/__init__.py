"""Many explanations: a file of lines in, a file of rows out, on this machine or on a Ray cluster."""
