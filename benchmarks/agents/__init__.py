"""Steps of agents that read an injected instruction: which part of the prompt made them act."""
