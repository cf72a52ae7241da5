# /// script
# dependencies = ["pydantic-ai-slim[openai]==2.62.0"]
# ///
"""pydantic-ai: two tools and an output of a given structure."""

from pydantic import BaseModel
from pydantic_ai import Agent, Tool
from shop import count, opened, take


class Done(BaseModel):
    left: int


# one after the other, as they share the stock
tools = [Tool(count, sequential=True), Tool(take, sequential=True)]
agent = Agent("openai-chat:any", output_type=Done, tools=tools)
print(agent.run_sync(opened()).output.left)
