"""The experiments of the paper and more. Every published number comes from here."""
