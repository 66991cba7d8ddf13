"""Views of an explanation: terminal, HTML, plots, JUnit. They display results and compute nothing."""
