"""Explanations held against the model that answered: it is asked again with parts removed."""
