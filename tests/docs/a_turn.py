"""Makes the data on docs/a_turn.md: a real server, a real tokenizer and a scripted policy grow one tree, and each stop
is shown.

``python -m tests.docs.a_turn`` writes the page anew.
"""

import asyncio
import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from pprint import pformat
from typing import Any

import pyarrow.parquet as pq

from agentr.collect.agent import Agent, AgentSettings
from agentr.collect.grow import grow
from agentr.config.model import ModelConfig
from agentr.config.policy import SamplingConfig
from agentr.config.schema import Config
from agentr.config.turns import PromptConfig
from agentr.envs.client import EnvClient
from agentr.envs.transport import EnvStats, Transport
from agentr.models.load import load_codec
from agentr.models.nano import WEIGHTS
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.policy.chat import ChatCodec
from agentr.rows.dataset import write_dataset
from agentr.rows.revision import good_rows
from agentr.rows.targets import Targets
from agentr.search import UCT, Expansion, Tree, UCTConfig
from agentr.search.stored import read_child, to_json
from agentr.store.dataset import read_rows
from agentr.store.growing import GrowingForest
from agentr.store.rows import Row
from agentr.types import Completion, FinishReason, Observation, Task
from env_servers.app import create_app
from env_servers.textcraft import TextCraft
from tests.docs.pages import ROOT, refreshed
from tests.env_servers.support import TOKEN, serving

PAGE = ROOT / "docs" / "a_turn.md"
TASK = Task("textcraft", "bread@0", "train", {"depth": 1})
GET, CRAFT = "get 3 wheat", "craft 1 bread using 3 wheat"
#: With this seed, the search goes down the right one of two turns that it knows equally little of.
SEED = 1
STRATEGY = UCT(UCTConfig(iterations=1, width=3))
#: Of data; a reader scrolls.
WIDTH = 125

# one tree, watched ----------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What came by at the stops that keep nothing: requests and answers."""

    wire: list[tuple[str, str, str]] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    requests: list[GenerateRequest] = field(default_factory=list)
    completions: list[list[Completion]] = field(default_factory=list)


class Script:
    """A policy that knows the way, and also tries what is wrong. The third turn has the first one's action."""

    def __init__(self, codec: ChatCodec, seen: Seen) -> None:
        self.codec = codec
        self.seen = seen

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        right, wrong = (CRAFT, "inventory") if "Got 3 wheat" in request.messages[-1].content else (GET, CRAFT)
        turns = {"bread needs wheat.": right, "I have everything for bread.": wrong, "wheat cannot be crafted.": right}
        texts = [f"Thought: {thought}\nAction: {action}" for thought, action in turns.items()]
        ids = [tuple(self.codec.turn(text)) for text in texts]
        drawn = [Completion(t, i, (-0.25,) * len(i), FinishReason.STOP) for t, i in zip(texts, ids, strict=True)]
        self.seen.requests.append(request)
        self.seen.completions.append(drawn)
        return drawn

    async def stats(self) -> PolicyStats:
        return PolicyStats()


class Watched(Transport):
    """Requests to an environment server, noted with their answers."""

    def __init__(self, seen: Seen, token: str, timeout_s: float, stats: EnvStats) -> None:
        super().__init__(token, timeout_s, stats)
        self.seen = seen

    async def exchange(
        self, method: str, url: str, path: str, *, timeout_s: float | None = None, **content: Any
    ) -> tuple[int, bytes]:
        status, answer = await super().exchange(method, url, path, timeout_s=timeout_s, **content)
        self.seen.wire.append((f"{method} {path}", content.get("data", ""), answer.decode()))
        return status, answer


async def play(url: str, codec: ChatCodec, forest: GrowingForest, seen: Seen) -> tuple[Agent, Tree]:
    """Grows the tree of the task."""
    env = EnvClient([url], TOKEN, transport=lambda *arguments: Watched(seen, *arguments))
    config = Config(prompt=PromptConfig(instruction=False))
    config.collect.sampling = SamplingConfig(max_tokens=48)
    try:
        agent = replace(
            Agent.of(AgentSettings.of(config), Script(codec, seen), env, codec, await env.spec()),
            policy_name="rounds/00/train",
        )
        session = await env.open(TASK)
        seen.observations = [session.last, (await session.expand([GET]))[0].last]
        seen.wire.clear()
        return agent, await grow(TASK, STRATEGY, agent, forest, SEED)
    finally:
        await env.aclose()


def snippets() -> dict[str, str]:
    """Returns the parts of the page by name."""
    codec, seen, words = load_codec(WEIGHTS, ModelConfig()), Seen(), {}
    with tempfile.TemporaryDirectory() as name, serving(create_app(TextCraft("exact", 1), token=TOKEN)) as url:
        forest, dataset = GrowingForest(Path(name, "collect")), Path(name, "dataset")
        agent, tree = asyncio.run(play(url, codec, forest, seen))
        line = forest.journal(TASK.key)[0]
        forest.write(tree)
        forest.seal()
        rows = good_rows(forest.read(TASK.key), min_return=1.0, limit=1, targets=Targets())
        write_dataset(dataset, rows, max_length=1024)
        (row,) = read_rows(dataset)
        table = pq.read_table(dataset / "rows.parquet")
    # What the strategy was told, told again: a run that continues does the same.
    expansion, children = Expansion(**line["expansion"]), [read_child(child) for child in line["children"]]
    added = STRATEGY.tell(Tree.start(TASK, tree.messages, tree.prompt_ids, SEED), expansion, children)
    stored, first = json.loads(to_json(tree)), tree.nodes[1]
    fields = ("id", "parent", "action", "outcome", "visits", "value")
    return {
        "open": exchanged(seen.wire[0], words),
        "first observation": shown(seen.observations[0]),
        "messages": shown(tree.messages),
        "prompt": tokens(codec, tree.prompt_ids),
        "expansion": shown(expansion),
        "request": shown(replace(seen.requests[0], messages=...)),
        "completion": shown(seen.completions[0][0]),
        "parsed": shown(agent.format.parse(first.text)),
        "expand": exchanged(seen.wire[1], words),
        "observation": shown(seen.observations[1]),
        "bridge": tokens(codec, first.bridge_ids),
        "child": shown(children[0]),
        "told": "\n".join(
            "None" if n is None else f"Node(id={n.id}, action={n.action!r}, valid={n.valid}, ...)" for n in added
        ),
        "next prompt": codec.decode(seen.requests[1].prompt_ids, special=True),
        "journal": data(
            {"expansion": line["expansion"], "children": [line["children"][0], ...], "counts": line["counts"]}
        ),
        "tree": data(
            stored | {"messages": [...], "nodes": [{f: n[f] for f in fields} | {"...": ...} for n in stored["nodes"]]}
        ),
        "node": data(stored["nodes"][1]),
        "row": marked(codec, row),
        "parquet": "\n".join(f"{f.name:11}{f.type!s:24}{shown(table[f.name][0].as_py())}" for f in table.schema),
    }


# how it is shown ------------------------------------------------------------------------------------------------------


class Ids(tuple):
    """Numbers, of which a page shows the first and the last."""

    def __repr__(self) -> str:
        few = map(repr, self) if len(self) <= 8 else [*map(repr, self[:5]), "...", repr(self[-1])]
        return f"[{', '.join(few)}]"


def shown(value: Any) -> str:
    """Returns a value as Python shows it, with long ids elided."""
    if isinstance(value, list):
        return repr(Ids(value))
    ids = {k: Ids(v) for k, v in getattr(value, "__dict__", {}).items() if k.endswith("ids") or k == "logprobs"}
    text = pformat(replace(value, **ids) if ids else value, width=WIDTH)
    return re.sub(r"<(\w+\.\w+): '\w*'>", r"\1", text).replace("Ellipsis", "...")


def data(value: Any, indent: str = "") -> str:
    """Returns JSON, on one line what fits there, with long ids elided."""
    if not isinstance(value, dict | list) or not value:
        return "..." if value is ... else json.dumps(value)
    if isinstance(value, list) and all(isinstance(number, int | float) for number in value):
        return repr(Ids(value))
    deeper = f"{indent}  "
    if isinstance(value, dict):
        opening, pieces, closing = (
            "{",
            [f"{json.dumps(k)}: {data(v, deeper)}" if k != "..." else k for k, v in value.items()],
            "}",
        )
    else:
        opening, pieces, closing = "[", [data(v, deeper) for v in value], "]"
    line = f"{opening}{', '.join(pieces)}{closing}"
    if len(indent + line) <= WIDTH and "\n" not in line:
        return line
    return f",\n{deeper}".join(pieces).join((f"{opening}\n{deeper}", f"\n{indent}{closing}"))


def exchanged(exchange: tuple[str, str, str], words: dict[str, str]) -> str:
    """Returns a request and its answer, with a word in place of each session's id: the server draws ids at random."""

    def word(found: re.Match[str]) -> str:
        return words.setdefault(found[0], f"session-{len(words)}")

    line, asked, answered = (re.sub(r'(?<="session":")[^"]+', word, text) for text in exchange)
    return f"{line}\n{data(json.loads(asked))}\n\n200\n{data(json.loads(answered))}"


def tokens(codec: ChatCodec, ids: Sequence[int]) -> str:
    """Returns ids with their texts, a line of text on a line."""
    return re.sub(r"('\\n') ", r"\1\n", " ".join(f"{i}:{codec.decode([i], special=True)!r}" for i in ids))


def marked(codec: ChatCodec, row: Row) -> str:
    """Returns a row as text, its trained parts in double brackets."""
    pieces = groupby(zip(row.input_ids, row.loss_mask, strict=True), key=lambda pair: pair[1])
    texts = [(trained, codec.decode([i for i, _ in pairs], special=True)) for trained, pairs in pieces]
    return "".join(f"⟦{text}⟧" if trained else text for trained, text in texts)


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE, snippets().__getitem__), encoding="utf-8")
