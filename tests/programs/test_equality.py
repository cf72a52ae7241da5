"""TextCraft by a program against native TextCraft: the same trees, id by id."""

import asyncio
import json
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob, run_job
from agentr.collect.replays import replays
from agentr.collect.units import Limits, StageProgress
from agentr.config.policy import SamplingConfig
from agentr.config.schema import EnvConfig, TaskSelection
from agentr.envs.client import EnvClient, Recorded
from agentr.envs.server import EnvServer
from agentr.errors import InfraError
from agentr.search import UCT, Sample, Strategy, Tree, UCTConfig
from agentr.store.forest import Forest
from agentr.types import Task
from env_servers.sandbox import launch
from tests.players import SloppyExpert, sloppy_agent

pytestmark = pytest.mark.skipif(not launch.available(), reason="programs cannot be isolated here")

ROOT = Path(__file__).parents[2]
#: What a turn through a program has beside, and a native one has not.
BESIDE = ("sent", "asked", "behind")


#: What the programs of these tests begin with.
ASK = """
import json, os, random, threading, time, urllib.request

def ask(messages):
    body = json.dumps(dict(model="m", messages=messages)).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]

def user(text):
    return dict(role="user", content=text)

def end():
    json.dump(1.0, open("reward.json", "w"))
"""


def asking(folder: Path, code: str, **options: Any) -> EnvServer:
    """A server of a program, given as its code, with one task."""
    (folder / "agent.py").write_text(ASK + code)
    options |= {"command": [sys.executable, str(folder / "agent.py")]}
    options |= {"tasks": {"train": str(tasks_file(folder, ["one"]))}}
    return EnvServer(EnvConfig(name="program", options=options), "secret", str(folder / "server.log"))


def tasks_file(folder: Path, ids: list[str]) -> Path:
    file = folder / "train.jsonl"
    file.write_text("".join(json.dumps({"id": task}) + "\n" for task in ids))
    return file


def grown(
    server: EnvServer, tasks: list[Task], folder: Path, work: Grow, policy: type[SloppyExpert] = SloppyExpert
) -> list[Tree]:
    """The trees of a search with a policy that depends on prompt and seed alone."""

    async def main() -> None:
        env = EnvClient([server.url()], "secret", timeout_s=120, retries=0)
        try:
            plan = TreeJob(
                folder=folder,
                tasks=tuple(tasks),
                seed=7,
                policy="test",
                work=work,
                sampling=SamplingConfig(max_tokens=64),
                limits=Limits(infra_retries=0),
            )
            known = tasks if policy is SloppyExpert else ()
            agent = await sloppy_agent(env, known)
            await run_job(plan, replace(agent, policy=policy(agent.codec, known)), StageProgress())
        finally:
            await env.aclose()

    asyncio.run(main())
    return list(Forest(folder))


def plain(tree: Tree) -> dict[str, Any]:
    """A tree without the environment's name, costs, and what a program adds."""
    data = asdict(tree)
    for name in ("task", "cost", "spent", "events", "stage"):
        data.pop(name)
    data["nodes"] = [{key: value for key, value in node.items() if key not in BESIDE} for node in data["nodes"]]
    return data


@pytest.mark.parametrize(
    "strategy",
    [UCT(UCTConfig(iterations=3, max_depth=6, width=2)), Sample(2, max_steps=6)],
    ids=["uct", "sample"],
)
@pytest.mark.parametrize("live", [1, 8])
def test_a_program_that_reports_grows_the_same_trees(
    server: EnvServer, tmp_path: Path, strategy: Strategy, live: int
) -> None:
    async def chosen() -> list[Task]:
        env = EnvClient([server.url()], "secret")
        try:
            return await env.tasks(TaskSelection(split="train", where={"depth": [1, 2]}, limit=2))
        finally:
            await env.aclose()

    tasks = asyncio.run(chosen())
    command = [sys.executable, str(ROOT / "tests/programs/plays_textcraft.py"), str(ROOT)]
    options = {"command": command, "tasks": {"train": str(tasks_file(tmp_path, [t.id for t in tasks]))}, "live": live}
    options["action_format"] = "react"
    programs = EnvServer(EnvConfig(name="program", options=options), "secret", str(tmp_path / "server.log"))
    try:
        through = grown(programs, [replace(t, env="program") for t in tasks], tmp_path / "program", Grow(strategy))
    finally:
        programs.stop()
    native = grown(server, tasks, tmp_path / "native", Grow(strategy))
    assert len(native) == len(through) == 2 and sum(len(tree.nodes) for tree in native) > 8
    for one, other in zip(native, through, strict=True):
        assert plain(one) == plain(other)
        assert not any(spent.starts or spent.replayed for spent in one.spent)
    spent = [spent for tree in through for spent in tree.spent]
    starts, replayed = sum(each.starts for each in spent), sum(each.replayed for each in spent)
    if isinstance(strategy, Sample) and live > 1:  # a second start for each task where its runs part, and no other one
        assert starts == 2
    else:
        assert starts > 2 and replayed > 0 and sum(each.replay_s for each in spent) > 0


@pytest.mark.parametrize(
    "prompt, ignore, said",
    [
        ("Go.", [], "and 2 of 2 calls were the same"),
        ("It is {time.time_ns()}.", [], r"in call 1, messages\.0\.content: 'It is \d+\.', was 'It is \d+\.'\. Pin"),
        ("It is {time.time_ns()}.", ["messages /It is .*/"], "and 2 of 2 calls were the same"),
        ("{sorted('abcdefgh', key=lambda _: random.random())}", [], "in call 1, messages.0.content"),
    ],
    ids=["pinned", "a clock", "a clock that is ignored", "a random order"],
)
def test_a_task_is_played_twice_before_a_run(tmp_path: Path, prompt: str, ignore: list[str], said: str) -> None:
    server = asking(
        tmp_path,
        f"messages = [user(f{prompt!r})]\n"
        "for _ in range(2):\n"
        "    messages += [dict(role='assistant', content=ask(messages)), user('On.')]\n"
        "end()\n",
        ignore=ignore,
    )

    async def main() -> str:
        env = EnvClient([server.url()], "secret", timeout_s=120, retries=0)
        try:
            return await replays(env, (await env.tasks(TaskSelection(split="train")))[0])
        finally:
            await env.aclose()

    try:
        assert re.search(said, asyncio.run(main()))
    finally:
        server.stop()


@pytest.mark.parametrize("ignore", [[], ["messages.0 /At [0-9]+/", r"messages /\(took \d+ ns\)/"]])
def test_what_is_ignored_makes_no_difference_to_a_session_that_is_opened_anew(
    tmp_path: Path, ignore: list[str]
) -> None:
    """Revisions, and sessions that were lost with their server, are replayed by what was recorded of them."""
    server = asking(
        tmp_path,
        "messages = [user(f'At {time.time_ns()}: go.')]\n"
        "for _ in range(3):\n"
        "    answer = ask(messages)\n"
        "    took = user(f'{answer}? (took {time.time_ns()} ns)')\n"
        "    messages += [dict(role='assistant', content=answer), took]\n"
        "end()\n",
        ignore=ignore,
        limits={"early_s": 0.2},
    )

    async def main() -> None:
        env = EnvClient([server.url()], "secret", timeout_s=120, retries=0)
        try:
            (task,) = await env.tasks(TaskSelection(split="train"))
            session = await env.open(task)
            while not session.last.done:
                session = await session.step(f"turn {len(session.history)}")
            for size in (1, 2, 3):
                again = await env.open(task, session.history[:size], opening=session.opening)
                assert again.history == session.history[:size] and again.opening == session.opening
            changed = replace(session.history[0], observation="Turn 0? (took 5 ns)")
            with pytest.raises(InfraError, match="did not repeat itself"):
                await env.open(task, [changed, *session.history[1:]], opening=session.opening)
        finally:
            await env.aclose()

    try:
        if ignore:
            asyncio.run(main())
        else:
            with pytest.raises(InfraError, match="did not repeat itself"):
                asyncio.run(main())
    finally:
        server.stop()


def test_a_session_is_opened_anew_whatever_order_its_calls_come_in(tmp_path: Path) -> None:
    """Three threads ask at about the same time, in an order that is another one in each start; each asks twice."""
    server = asking(
        tmp_path,
        "def talk(name, wait):\n"
        "    time.sleep(wait)\n"
        "    messages = [user(name)]\n"
        "    for _ in range(2):\n"
        "        answer = ask(messages)\n"
        "        messages += [dict(role='assistant', content=answer), user(f'{name}: {answer}?')]\n"
        "names = random.sample('abc', 3)\n"
        "threads = [threading.Thread(target=talk, args=(name, 0.2 * n)) for n, name in enumerate(names)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "end()\n",
    )

    async def main() -> None:
        env = EnvClient([server.url()], "secret", timeout_s=120, retries=0)
        try:
            (task,) = await env.tasks(TaskSelection(split="train"))
            for _ in range(2):
                session = await env.open(task)
                while not session.last.done:
                    session = await session.step(f"turn {len(session.history)}")
                for size in (1, 3, 6, 6):
                    again = await env.open(task, session.history[:size], opening=session.opening)
                    assert again.history == session.history[:size] and again.opening == session.opening
            spaced = replace(session.history[0], observation=session.history[0].observation.replace(" ", "  "))
            with pytest.raises(InfraError, match="program did not repeat itself"):
                await env.open(task, [spaced, *session.history[1:]], opening=session.opening)
            with pytest.raises(InfraError, match=r"program did not repeat itself: .*recorded 'c: on', now"):
                await env.open(task, [Recorded("on", "c: on")])
        finally:
            await env.aclose()

    try:
        asyncio.run(main())
    finally:
        server.stop()
