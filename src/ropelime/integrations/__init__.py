"""Other libraries: what they return as arguments of ours, and explanations inside of them."""
