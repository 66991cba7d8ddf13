"""The paper's experiments as a page: our tables beside the paper's, and chance beside both."""
