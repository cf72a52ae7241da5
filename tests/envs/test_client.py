"""The client against real servers that fail in every way a server can."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import pytest

from agentr.backoff import Backoff
from agentr.config.schema import TaskSelection
from agentr.envs import pool
from agentr.envs.client import EnvClient, Recorded, Session
from agentr.errors import ConfigError, InfraError
from agentr.types import Task
from env_servers.app import create_app
from env_servers.base import ExpertStep, Observation
from env_servers.protocol import EnvironmentSpec
from env_servers.sessions import Limits
from tests.env_servers.support import TOKEN, Count, Counter, Faulty, child_server, serving, wait_until

TASK = Task("counter", "train-0", "train")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "BACKOFF", Backoff(first_s=0.02, longest_s=10.0, jitter=0.5))


class Bench:
    """A server of ``Counter``, its faults, and what it did."""

    def __init__(self, environment: Counter, **limits: Any) -> None:
        self.environment = environment
        self.app = create_app(environment, token=TOKEN, limits=Limits(**limits))
        self.faulty = Faulty(self.app)
        self.url = ""

    def spoil(self, path: str, *faults: str) -> None:
        self.faulty.plan[f"/v1/{path}"] = list(faults)

    @property
    def sessions(self) -> int:
        return len(self.app.state.sessions)


@contextlib.contextmanager
def bench(environment: Counter | None = None, **limits: Any) -> Iterator[Bench]:
    made = Bench(environment or Counter(), **limits)
    with serving(made.faulty) as url:  # type: ignore[arg-type] - any ASGI application will do
        made.url = url
        yield made


def run(
    urls: Any, test: Callable[[EnvClient], Coroutine[Any, Any, None]], *, token: str = TOKEN, **options: Any
) -> None:
    async def main() -> None:
        client = EnvClient(urls, token, **{"timeout_s": 5.0, "retries": 3, **options})
        try:
            await test(client)
        finally:
            await client.aclose()

    asyncio.run(main())


def texts(sessions: list[Session]) -> list[str]:
    return [session.last.observation for session in sessions]


@pytest.mark.parametrize("can_fork", [True, False])
def test_expanding_is_the_same_with_and_without_forks(can_fork: bool):
    async def test(client: EnvClient) -> None:
        root = await client.open(TASK)
        assert (root.last.observation, root.opening, root.history) == ("task train-0, total 0",) * 2 + ((),)
        children = await root.expand(["add 1", "add 2", "add 1", "what"])
        assert texts(children) == ["total 1", "total 2", "total 1", "total 0"]
        assert [child.last.valid for child in children] == [True, True, True, False]
        assert children[1].history == (Recorded("add 2", "total 2"),)
        grandchildren = await children[1].expand(["add 3", "end"])
        assert texts(grandchildren) == ["total 5", "total 2"]
        assert grandchildren[1].last.done and grandchildren[1].last.reward == 0.02
        assert texts(await root.expand(["add 7"])) == ["total 7"], "the root is where it was"
        assert texts([await children[0].step("add 1"), children[2]]) == ["total 2", "total 1"], "twins are apart"
        with pytest.raises(ValueError, match="has ended"):
            await grandchildren[1].expand(["add 1"])
        assert await root.expand([]) == []
        if can_fork:
            assert (client.stats.forks, client.stats.replays, client.stats.steps) == (7, 0, 8)
        else:
            assert client.stats.forks == 0 and client.stats.replayed_steps > 0

    with bench(Counter(can_fork=can_fork)) as server:
        run([server.url], test)


@pytest.mark.parametrize("can_fork", [True, False])
def test_status_and_scores_are_observed_and_observed_again_by_a_replay(can_fork: bool):
    async def test(client: EnvClient) -> None:
        root = await client.open(TASK)
        children = await root.expand(["add 1", "status empty", "status timeout", "x" * 4097, "grade 0.25"])
        seen = [(child.last.status, dict(child.last.scores)) for child in children]
        assert seen == [("ok", {}), ("empty", {}), ("timeout", {}), ("error", {}), ("ok", {"share": 0.25})]
        for child in children:
            last = child.last
            await child.close()
            await child.ready()
            assert child.last == last

    with bench(Counter(can_fork=can_fork)) as server:
        run([server.url], test)


class Lines(Counter):
    """Answers in several lines."""

    def reset(self, task_id: str) -> tuple[Any, Observation]:
        state, seen = super().reset(task_id)
        return state, replace(seen, observation=f"{seen.observation}\n\tgo")

    def step(self, state: Any, action: str) -> Observation:
        seen = super().step(state, action)
        return replace(seen, observation=f"{seen.observation}\n\tgo on")


@pytest.mark.parametrize("can_fork", [True, False])
def test_answers_are_one_line_where_that_is_asked_for_in_what_is_replayed_too(can_fork: bool):
    async def test(client: EnvClient) -> None:
        root = await client.open(TASK)
        assert root.last.observation == root.opening == "task train-0, total 0\n\tgo", "the first one stays as it is"
        (child,) = await root.expand(["add 1"])
        assert child.history == (Recorded("add 1", "total 1  go on"),)
        await client.close_all([child])
        assert (await child.step("add 1")).last.observation == "total 2  go on", "rebuilt from its history"
        again = await client.open(TASK, child.history)
        assert again.last.observation == "total 2  go on"

    with bench(Lines(can_fork=can_fork)) as server:
        run([server.url], test, one_line=True)


def test_a_rollout_without_forks_never_replays():
    async def test(client: EnvClient) -> None:
        node = await client.open(TASK)
        for total in range(1, 11):
            [node] = await node.expand(["add 1"])
            assert node.last.observation == f"total {total}"
        assert (client.stats.opens, client.stats.steps, client.stats.replays) == (1, 10, 0)

    with bench(Counter(can_fork=False)) as server:
        run([server.url], test)


@pytest.mark.parametrize("can_fork", [True, False])
def test_what_was_carried_out_is_recorded_and_replayed(can_fork: bool):
    async def test(client: EnvClient) -> None:
        root = await client.open(TASK)
        [child, other] = await root.expand(["plus 2", "add 2"])
        assert (child.last.executed, other.last.executed) == ("add 2", "")
        assert child.history == other.history == (Recorded("add 2", "total 2"),)
        await child.step("plus 3")
        assert child.history[-1] == Recorded("add 3", "total 5")
        await client.close_all([child])
        assert (await child.step("end")).last.observation == "total 5", "rebuilt from its history"
        await client.close_all([child])

    with bench(Counter(can_fork=can_fork)) as server:
        run([server.url], test)
        played = server.environment.closed
        wait_until(
            lambda: ["add 2", "add 3", "end"] in [state.log for state in played], "the rebuilt session to be closed"
        )


def test_a_slow_expert_has_a_deadline_of_its_own():
    async def test(client: EnvClient) -> None:
        assert await client.expert(TASK) == [("It is enough.", "end")]
        assert len(await client.tasks(TaskSelection(split="train"))) == 10
        assert client.stats.retries == 0

    async def gives_up(client: EnvClient) -> None:
        with pytest.raises(InfraError, match=r"took longer than 0\.2 s"):
            await client.expert(TASK)
        assert client.stats.retries == 0, "it would take as long again"
        impatient = EnvClient([server.url], TOKEN, expert_timeout_s=0.1, retries=0)
        with pytest.raises(InfraError, match=r"no answer within 0\.1"):
            await impatient.expert(TASK)
        await impatient.aclose()

    with bench(Counter(look_up_s=0.5)) as server:
        run([server.url], test, timeout_s=0.2)
    with bench(Counter(look_up_s=0.5), expert_timeout_s=0.2) as server:
        run([server.url], gives_up)


class Guided(Counter):
    @cached_property
    def spec(self) -> EnvironmentSpec:
        return super().spec.model_copy(update={"guides": True})

    def expert_from(self, state: Count) -> list[ExpertStep]:
        return [ExpertStep("Up to a hundred.", f"add {100 - state.total}"), ExpertStep("There.", "end")]


def test_an_expert_goes_on_from_a_session_that_came_back_too():
    async def test(client: EnvClient) -> None:
        root = await client.open(TASK)
        [session] = await root.expand(["add 30"])
        wanted = [("Up to a hundred.", "add 70"), ("There.", "end")]
        assert await session.expert() == wanted
        await session.close()
        assert await session.expert() == wanted and client.stats.replays == 1
        assert await root.expert() == [("Up to a hundred.", "add 100"), ("There.", "end")]
        [over] = await session.expand(["end"])
        assert await over.expert() is None

    with bench(Guided()) as server:
        run([server.url], test)


def test_an_environment_without_such_an_expert_is_not_asked():
    async def test(client: EnvClient) -> None:
        assert await (await client.open(TASK)).expert() is None

    with bench() as server:
        server.spoil("expert", *["error"] * 9)
        run([server.url], test)


def test_an_expert_that_breaks_costs_the_session_and_no_more():
    class Breaking(Guided):
        broken = 1

        def expert_from(self, state: Count) -> list[ExpertStep]:
            if self.broken:
                self.broken = 0
                raise ValueError("no idea")
            return super().expert_from(state)

    async def test(client: EnvClient) -> None:
        [session] = await (await client.open(TASK)).expand(["add 30"])
        assert (await session.expert() or [])[0] == ("Up to a hundred.", "add 70")
        assert client.stats.replays == 1

    with bench(Breaking()) as server:
        run([server.url], test)


def test_rewards_are_scaled_and_clipped():
    async def test(client: EnvClient) -> None:
        root = await client.open(TASK)
        for amount, reward in ((50, 0.5), (100, 1.0), (500, 1.0), (-5, 0.0)):
            [child] = await root.expand([f"add {amount}"])
            assert (await child.step("end")).last.reward == reward

    with bench() as server:
        run([server.url], test)


@pytest.mark.parametrize("fault", ["error", "drop", "junk", "busy"])
@pytest.mark.parametrize("path", ["open", "step", "expand"])
def test_a_fault_is_not_noticed_and_nothing_happens_twice(fault: str, path: str):
    async def test(client: EnvClient) -> None:
        server.spoil(path, fault, fault)
        session = await client.open(TASK)
        await session.step("add 1")
        await session.step("add 2")
        children = await session.expand(["add 3", "add 4"])
        assert texts([session, *children]) == ["total 3", "total 6", "total 7"]
        assert session.history == (Recorded("add 1", "total 1"), Recorded("add 2", "total 3"))
        assert client.stats.retries == 2
        if path == "step" and fault == "drop":
            assert client.stats.replays == 0, "the stored answer is fetched: no replay, and no second step"

    with bench() as server:
        run([server.url], test)


def test_an_environment_that_is_unavailable_for_a_while_is_asked_again():
    async def test(client: EnvClient) -> None:
        session = await client.open(TASK)
        made.environment.refusals = 2
        await session.step("add 1")
        made.environment.refusals = 1
        assert texts(await session.expand(["add 2"])) == ["total 3"]
        assert (client.stats.retries, client.stats.replays) == (3, 0), "the session is still there"
        made.environment.refusals = 99
        with pytest.raises(InfraError, match=r"503 the counter is at lunch"):
            await session.step("add 1")

    with bench() as made:
        run([made.url], test)


def test_a_server_that_hangs_is_an_error_that_says_so():
    async def test(client: EnvClient) -> None:
        session = await client.open(TASK)
        server.spoil("step", *["hang"] * 9)
        with pytest.raises(InfraError) as caught:
            await session.step("add 1")
        for part in (
            "step of task 'train-0'",
            f"POST {server.url}/v1/step",
            "no answer within 0.2 s",
            "failed 2 times",
        ):
            assert part in str(caught.value)
        server.spoil("step")
        assert (await session.step("add 1")).last.observation == "total 1", "the session outlives the failure"

    with bench() as server:
        run([server.url], test, timeout_s=0.2, retries=1)


def test_a_server_that_is_not_there():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"

        async def test(client: EnvClient) -> None:
            with pytest.raises(InfraError, match=f"specification failed 4 times.*{url}/v1/spec"):
                await client.spec()

        run([url], test)

    async def nowhere(client: EnvClient) -> None:
        with pytest.raises(InfraError, match="no environment server is up"):
            await client.spec()

    run(list, nowhere)


def test_a_wrong_token_is_not_retried():
    async def test(client: EnvClient) -> None:
        with pytest.raises(InfraError, match=r"401.*token"):
            await client.spec()
        assert client.stats.requests == 1

    with bench() as server:
        run([server.url], test, token="wrong")


def test_an_environment_that_always_breaks_on_an_action_is_an_infra_error():
    async def test(client: EnvClient) -> None:
        session = await client.open(TASK)
        await session.step("add 1")
        with pytest.raises(InfraError, match="failed inside the environment"):
            await session.expand(["add 1", "boom"])
        with pytest.raises(InfraError, match="failed inside the environment"):
            await session.step("boom")
        assert texts(await session.expand(["add 1"])) == ["total 2"]

    with bench() as server:
        run([server.url], test, retries=1)


def test_killed_and_restarted_in_the_middle():
    urls: list[str] = []

    async def provider() -> list[str]:
        return urls

    async def test(client: EnvClient) -> None:
        tasks = await client.tasks(TaskSelection(split="train", where={"plan_length": {"min": 5}}, limit=4))
        plans = [[action for _, action in await client.expert(task) or ()] for task in tasks]
        sessions = [await client.open(task) for task in tasks]
        for session, plan in zip(sessions, plans, strict=True):
            for action in plan[:3]:
                await session.step(action)
        child.kill()
        child.wait()
        urls[:] = [second_url]
        children = await asyncio.gather(
            *(session.expand(["inventory", "look"]) for session in sessions for _ in range(3))
        )
        assert all(not answer.last.valid for _, answer in children)
        assert client.stats.replays == 4, "concurrent expansions of a session rebuild it once"
        assert client.stats.replayed_steps == 12
        for session, plan in zip(sessions, plans, strict=True):
            for action in plan[3:]:
                await session.step(action)
            assert session.last.reward == 1.0 and session.last.done
            assert [recorded.action for recorded in session.history] == plan

    with child_server("textcraft") as (url, child), child_server("textcraft", hash_seed="5") as (second_url, _):
        urls.append(url)
        run(provider, test)


def test_other_options_after_a_restart_are_noticed():
    urls: list[str] = []

    async def test(client: EnvClient) -> None:
        session = await client.open(Task("textcraft", "oak sign@0", "train"))
        await session.step("get 1 bamboo")
        child.kill()
        child.wait()
        urls[:] = [other]
        with pytest.raises(InfraError, match="did not repeat itself: task 'oak sign@0', action 0, recorded 'Crafting"):
            await session.step("inventory")

    with (
        child_server("textcraft") as (url, child),
        child_server("textcraft", "--option", "distractors=0") as (other, _),
    ):
        urls.append(url)
        run(lambda: urls, test)


def test_a_nondeterministic_server_is_an_infra_error():
    async def test(client: EnvClient) -> None:
        session = await client.open(TASK)
        await session.step("add 1")
        await session.step("add 1")
        with pytest.raises(InfraError, match=r"task 'train-0', action 1, recorded 'total 1 #0', now 'total 1 #2'"):
            await client.open(TASK, session.history)
        await session.close()
        with pytest.raises(InfraError, match="not deterministic"):
            await session.expand(["add 1"])
        assert client.stats.retries == 0

    with bench(Counter(noisy=True)) as server:
        run([server.url], test)


def test_open_replays_what_was_recorded():
    async def test(client: EnvClient) -> None:
        session = await client.open(TASK)
        for action in ("add 1", "x" * 5000, "add 2", "end"):
            await session.step(action)
        again = await client.open(TASK, session.history, opening=session.opening)
        assert again.last == session.last and again.last.done
        wrong = (Recorded("add 1", "total 1"), Recorded("add 2", "total 4"))
        with pytest.raises(InfraError, match="action 2, recorded 'total 4', now 'total 3'"):
            await client.open(TASK, wrong)
        with pytest.raises(ConfigError, match="no task nothing"):
            await client.open(Task("counter", "nothing", "train"))

    with bench() as server:
        run([server.url], test)


@pytest.mark.parametrize("can_fork", [True, False])
def test_actions_that_no_server_accepts_are_invalid_actions(can_fork: bool):
    async def test(client: EnvClient) -> None:
        root = await client.open(TASK)
        children = await root.expand(["x" * 4097, "a\0b", "add 2", "\ud800"])
        assert texts(children) == ["action too long", "action is not text", "total 2", "action is not text"]
        assert [child.last.valid for child in children] == [False, False, True, False]
        assert texts(await children[0].expand(["add 5"])) == ["total 5"]
        await children[2].step("y" * 5000)
        assert (await children[2].step("add 1")).last.observation == "total 3"
        assert [recorded.observation for recorded in children[2].history] == ["total 2", "action too long", "total 3"]
        assert texts(await root.expand(["add 1"] * 300)) == ["total 1"] * 300

    with bench(Counter(can_fork=can_fork)) as server:
        run([server.url], test)


def test_expired_and_closed_sessions_come_back():
    async def test(client: EnvClient) -> None:
        session = await client.open(TASK)
        await session.step("add 1")
        await session.close()
        await session.close()
        assert server.sessions == 0
        assert texts(await session.expand(["add 1"])) == ["total 2"]
        while server.sessions:
            await asyncio.sleep(0.05)
        assert (await session.step("add 5")).last.observation == "total 6"

    with bench(idle_s=0.2) as server:
        run([server.url], test)


def test_sessions_that_are_freed_are_closed_soon_and_together():
    async def test(client: EnvClient) -> None:
        root = await client.open(TASK)
        children = await root.expand([f"add {number}" for number in range(20)])
        assert server.sessions == 21
        before = client.stats.requests
        for child in children:
            client.free([child])
        assert server.sessions == 21, "nothing is waited for"
        while server.sessions > 1:
            await asyncio.sleep(0.05)
        assert client.stats.requests == before + 1
        client.free([root])

    with bench() as server:
        run([server.url], test)
        assert server.sessions == 0, "those that were still to be closed are closed at the end"


def test_dropped_sessions_are_closed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pool, "DROPPED_BATCH", 50)

    async def test(client: EnvClient) -> None:
        root = await client.open(TASK)
        for _ in range(60):
            await root.expand(["add 1"] * 4)
        assert server.sessions < 150
        await client.close_all([root])
        del root

    with bench(max_sessions=200) as server:
        run([server.url], test)
        assert server.sessions == 0


def test_sessions_spread_over_servers_and_go_on_at_another_one():
    async def test(client: EnvClient) -> None:
        sessions = [await client.open(TASK) for _ in range(6)]
        assert {session.remote.url for session in sessions if session.remote} == {one.url, other.url}
        assert (one.sessions, other.sessions) == (3, 3)
        one.spoil("step", *["error"] * 99)
        one.spoil("open", *["error"] * 99)
        for number, session in enumerate(sessions):
            assert (await session.step(f"add {number}")).last.observation == f"total {number}"

    with bench() as one, bench() as other:
        run([one.url, other.url], test)


def test_a_server_that_is_down_is_left_alone_for_a_while():
    async def test(client: EnvClient) -> None:
        for number in range(6):
            session = await client.open(TASK)
            assert (await session.step(f"add {number}")).last.observation == f"total {number}"
        assert (server.sessions, client.stats.retries, client.pool.causes) == (6, 1, {"server_down": 1}), (
            "it was asked once"
        )

    with bench() as server, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        run([f"http://127.0.0.1:{unused.getsockname()[1]}", server.url], test)


def test_tasks_and_held_out():
    async def test(client: EnvClient) -> None:
        tasks = await client.tasks(TaskSelection(split="test", where={"kind": "odd"}))
        assert {task.id for task in tasks} == {f"test-{i}" for i in (1, 3, 5, 7, 9)}
        assert tasks[0].env == "counter" and tasks[0].split == "test"
        with pytest.raises(ConfigError, match=r"no split 'validation'\. It has: train, test"):
            await client.tasks(TaskSelection(split="validation"))
        assert await client.held_out() == {f"test-{i}": "test" for i in range(10)}
        assert await client.expert(tasks[0]) is None

    with bench() as server:
        run([server.url], test)
