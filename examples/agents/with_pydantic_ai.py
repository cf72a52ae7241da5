# /// script
# dependencies = ["pydantic-ai-slim[openai]==2.62.0"]
# ///
"""pydantic-ai: two tools and an output of a given structure."""

from pydantic import BaseModel
from pydantic_ai import Agent
from shop import count, opened, take


class Done(BaseModel):
    left: int


agent = Agent("openai-chat:any", output_type=Done, tools=[count, take])
print(agent.run_sync(opened()).output.left)
