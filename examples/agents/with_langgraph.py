# /// script
# dependencies = ["langgraph==1.2.24", "langchain==1.5.2", "langchain-openai==1.7.4"]
# ///
"""LangGraph: an agent with two tools."""

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from shop import count, opened, take

agent = create_agent(ChatOpenAI(model="any"), tools=[count, take])
# one after the other, as they share the stock
print(agent.invoke({"messages": [("user", opened())]}, {"max_concurrency": 1})["messages"][-1].text)
