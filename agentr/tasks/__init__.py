"""Tasks as the agent sees them: the opening of an episode, the formats of actions."""
