"""Views: they read an explanation and compute nothing."""
