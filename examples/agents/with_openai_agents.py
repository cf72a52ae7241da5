# /// script
# dependencies = ["openai-agents==0.24.0"]
# ///
"""OpenAI Agents SDK: a hand-off from one agent to another, which has two tools."""

from agents import Agent, RunConfig, Runner, ToolExecutionConfig, function_tool, set_default_openai_api
from shop import count, opened, take

set_default_openai_api("chat_completions")
clerk = Agent("Clerk", instructions="You run a shop.", model="any", tools=[function_tool(count), function_tool(take)])
door = Agent("Door", instructions="Hand over to the clerk.", model="any", handoffs=[clerk])
# one after the other, as they share the stock
config = RunConfig(tool_execution=ToolExecutionConfig(max_function_tool_concurrency=1))
print(Runner.run_sync(door, opened(), run_config=config).final_output)
