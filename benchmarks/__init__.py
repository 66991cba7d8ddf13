"""The paper's experiments and what goes beyond them. Every published figure comes from here."""
