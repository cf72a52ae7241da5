# /// script
# dependencies = ["smolagents[openai]==1.26.0"]
# ///
"""smolagents: an agent that writes code, or (with the argument tools) one that calls tools."""

import sys

from shop import count, opened, take
from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool

kind = ToolCallingAgent if sys.argv[1:] == ["tools"] else CodeAgent
agent = kind(tools=[tool(count), tool(take)], model=OpenAIModel("any"), max_steps=6, verbosity_level=0)
print(agent.run(opened()))
