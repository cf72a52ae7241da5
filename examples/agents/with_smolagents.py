# /// script
# dependencies = ["smolagents[openai]==1.26.0"]
# ///
"""smolagents: an agent that writes code, or (with the argument tools) one that calls tools."""

import sys

from shop import count, opened, take
from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool

settings = {"tools": [tool(count), tool(take)], "model": OpenAIModel("any"), "max_steps": 6, "verbosity_level": 0}
# one after the other, as they share the stock
agent = ToolCallingAgent(**settings, max_tool_threads=1) if sys.argv[1:] == ["tools"] else CodeAgent(**settings)
print(agent.run(opened()))
