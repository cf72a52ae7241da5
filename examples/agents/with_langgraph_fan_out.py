# /// script
# dependencies = ["langgraph==1.2.24", "langchain==1.5.2", "langchain-openai==1.7.4"]
# ///
"""LangGraph: three nodes ask side by side, and a fourth acts by what they say."""

import operator
from typing import Annotated, TypedDict

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from shop import count, opened, take


class State(TypedDict):
    task: str
    advice: Annotated[list[str], operator.add]


model = ChatOpenAI(model="any")
graph = StateGraph(State)


def adviser(view: str):
    def advise(state: State) -> dict:
        return {"advice": [str(model.invoke(f"{state['task']} As {view}, what do you advise?").text)]}

    return advise


def act(state: State) -> dict:
    text = "\n".join([state["task"], *sorted(state["advice"])])
    create_agent(model, tools=[count, take]).invoke({"messages": [("user", text)]}, {"max_concurrency": 1})
    return {}


graph.add_node("act", act)
for view in ("a buyer", "a seller", "a thief"):
    graph.add_node(view, adviser(view))
    graph.add_edge(START, view)
    graph.add_edge(view, "act")
graph.add_edge("act", END)
graph.compile().invoke({"task": opened(), "advice": []})
