"""The router's decisions, over engines that are plain objects."""

import asyncio
from collections.abc import Callable

import pytest

from agentr.backoff import Backoff
from agentr.config.policy import PolicyConfig
from agentr.errors import ContextOverflow, EngineLost, InfraError, ModelError, StaleWeights
from agentr.policy.base import EngineHealth, GenerateRequest
from agentr.policy.router import SPILL, Dispatcher, Router
from agentr.types import Completion, Cost, FinishReason, Sampling


class FakeEngine:
    """An engine whose calls can be held, failed or hung."""

    def __init__(self, name: str, checkpoint: str = "v1") -> None:
        self.name = name
        self.checkpoint = checkpoint
        self.calls = self.active = self.most_active = self.probes = 0
        self.loads: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails: Callable[[], BaseException | None] = lambda: None
        self.sick = False
        self.sickness = InfraError("dead")

    async def generate(self, request: GenerateRequest, checkpoint: str) -> list[Completion]:
        self.calls += 1
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            if error := self.fails():
                raise error
            await self.gate.wait()
            if checkpoint and checkpoint != self.checkpoint:
                raise StaleWeights(f"holds {self.checkpoint}, asked was {checkpoint}")
        finally:
            self.active -= 1
        return [
            Completion(self.name, (1, 2), (0.0, 0.0), FinishReason.STOP, cached_tokens=3 * (i == 0))
            for i in range(request.n)
        ]

    async def load(self, path: str) -> None:
        if self.sick:
            raise self.sickness
        if path == "missing":
            raise ModelError("no model at missing")
        self.checkpoint = path
        self.loads.append(path)

    async def health(self) -> EngineHealth:
        self.probes += 1
        if self.sick:
            raise self.sickness
        return EngineHealth(checkpoint=self.checkpoint)


def ask(affinity: str = "", n: int = 1) -> GenerateRequest:
    return GenerateRequest((1, 2, 3, 4), n, Sampling(), affinity)


def make(
    count: int, *, cap: int = 0, timeout_s: float = 1.0, checkpoint: str = "v1", retries: int = 3
) -> tuple[Router, list[FakeEngine]]:
    engines = [FakeEngine(f"e{i}") for i in range(count)]
    config = PolicyConfig(timeout_s=timeout_s, retries=retries)
    return Router(
        engines,
        config,
        checkpoint=checkpoint,
        cap=cap,
        backoff=Backoff(first_s=0.01, longest_s=0.32),
        probe_timeout_s=0.2,
    ), engines


async def hold(router: Router, engines: list[FakeEngine], requests: list[GenerateRequest]) -> list[asyncio.Task]:
    """Starts calls that stay in flight."""
    for engine in engines:
        engine.gate.clear()
    tasks = []
    for request in requests:
        tasks.append(asyncio.create_task(router.generate(request)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    return tasks


async def finish(engines: list[FakeEngine], tasks: list[asyncio.Task]) -> list[str]:
    for engine in engines:
        engine.gate.set()
    return [answers[0].text for answers in await asyncio.gather(*tasks)]


def failing(times: int, error: Callable[[], BaseException]) -> Callable[[], BaseException | None]:
    left = [times]

    def fails() -> BaseException | None:
        left[0] -= 1
        return error() if left[0] >= 0 else None

    return fails


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(2.0):
        while not condition():
            await asyncio.sleep(0.005)


def test_calls_go_to_the_least_loaded_engine():
    async def main():
        router, engines = make(3)
        tasks = await hold(router, engines, [ask() for _ in range(9)])
        assert [e.active for e in engines] == [3, 3, 3]
        await finish(engines, tasks)

    asyncio.run(main())


def test_a_tree_stays_at_home_until_home_is_too_busy():
    async def main():
        router, engines = make(2)
        home = (await router.generate(ask("tree")))[0].text
        tasks = await hold(router, engines, [ask("tree") for _ in range(SPILL + 3)])
        answered = await finish(engines, tasks)
        assert answered.count(home) == SPILL + 2
        assert (await router.generate(ask("tree")))[0].text == home

    asyncio.run(main())


def test_trees_are_spread_over_engines():
    async def main():
        router, _ = make(2)
        homes = [(await router.generate(ask(f"tree {i}")))[0].text for i in range(6)]
        assert sorted(homes) == ["e0"] * 3 + ["e1"] * 3

    asyncio.run(main())


def test_cap_bounds_calls_in_flight():
    async def main():
        router, engines = make(2, cap=2)
        tasks = await hold(router, engines, [ask() for _ in range(10)])
        assert [e.active for e in engines] == [2, 2]
        assert len(await finish(engines, tasks)) == 10
        assert max(e.most_active for e in engines) == 2

    asyncio.run(main())


def test_failed_engine_is_quarantined_and_comes_back():
    async def main():
        router, (bad, good) = make(2)
        bad.fails = failing(1, lambda: InfraError("it died"))
        bad.sick = True
        assert {(await router.generate(ask()))[0].text for _ in range(4)} == {"e1"}
        assert "it died" in router.states()["e0"]
        bad.sick = False
        await until(lambda: not router.states()["e0"])
        assert "e0" in {(await router.generate(ask(f"t{i}")))[0].text for i in range(4)}
        assert good.probes == 0
        await router.close()

    asyncio.run(main())


def test_hung_engine_is_left_for_another():
    async def main():
        router, (hung, _) = make(2, timeout_s=0.1)
        hung.gate.clear()
        hung.sick = True
        assert (await router.generate(ask()))[0].text == "e1"
        assert router.states()["e0"].startswith("no answer to a generate call within 0.1 s")
        assert hung.active == 0  # the call was cancelled
        await router.close()

    asyncio.run(main())


def test_the_only_engine_restarts_and_the_call_succeeds():
    async def main():
        router, (engine,) = make(1)
        engine.fails = failing(1, lambda: InfraError("killed"))
        assert (await router.generate(ask()))[0].text == "e0"
        assert engine.calls == 2
        await router.close()

    asyncio.run(main())


def test_the_error_names_what_was_waited_for():
    async def main():
        router, (engine,) = make(1, timeout_s=0.1)
        engine.fails = failing(99, lambda: InfraError("it died"))
        engine.sick = True
        with pytest.raises(
            InfraError, match=r"waited 0\.1 s for an engine that is ready and has room \(e0: it died.*Before that: e0"
        ):
            await router.generate(ask())
        await router.close()

    asyncio.run(main())


def test_attempts_are_bounded():
    async def main():
        router, (engine,) = make(1, retries=2)
        engine.fails = failing(99, lambda: InfraError("it died"))
        with pytest.raises(InfraError, match="no completion after 3 attempts: e0: it died"):
            await router.generate(ask())
        assert engine.calls == 3
        await router.close()

    asyncio.run(main())


def test_a_refused_request_is_not_sent_elsewhere():
    async def main():
        router, engines = make(2)
        for engine in engines:
            engine.fails = failing(9, lambda: ContextOverflow("too long"))
        with pytest.raises(ContextOverflow):
            await router.generate(ask())
        assert sum(e.calls for e in engines) == 1
        assert router.states() == {"e0": "", "e1": ""}

    asyncio.run(main())


def test_a_restarted_engine_gets_the_current_weights_before_use():
    async def main():
        router, (engine,) = make(1)
        await router.load("v2")
        engine.checkpoint = "v1"  # a restart: the constructor's weights
        assert (await router.generate(ask()))[0].text == "e0"
        assert engine.checkpoint == "v2" and engine.loads == ["v2", "v2"]
        await router.close()

    asyncio.run(main())


def test_load_waits_for_calls_in_flight_and_holds_new_ones_back():
    async def main():
        router, engines = make(2)
        before = await hold(router, engines, [ask(), ask()])
        loading = asyncio.create_task(router.load("v2"))
        await asyncio.sleep(0.01)
        after = asyncio.create_task(router.generate(ask()))
        await asyncio.sleep(0.01)
        assert [e.loads for e in engines] == [[], []] and sum(e.active for e in engines) == 2
        await finish(engines, before)
        await loading
        await after
        assert [e.checkpoint for e in engines] == ["v2", "v2"] == [router.checkpoint] * 2

    asyncio.run(main())


def test_an_engine_that_cannot_load_is_not_used_until_it_has():
    async def main():
        router, (bad, good) = make(2)
        bad.sick = True
        await router.load("v2")
        assert {(await router.generate(ask()))[0].text for _ in range(3)} == {good.name}
        bad.sick = False
        await until(lambda: not router.states()["e0"])
        assert bad.checkpoint == "v2"
        await router.close()

    asyncio.run(main())


def test_missing_weights_leave_the_old_weights_in_use():
    async def main():
        router, _ = make(2)
        with pytest.raises(ModelError, match="no model at missing"):
            await router.load("missing")
        assert router.checkpoint == "v1"
        await router.generate(ask())

    asyncio.run(main())


def test_a_load_waits_for_an_engine_that_is_started_again():
    """The only engine died just before: its actor comes back, and holds the weights that it began with."""

    async def main():
        router, (engine,) = make(1)
        engine.sick = True
        loading = asyncio.create_task(router.load("v2"))
        await until(lambda: engine.probes > 0)
        assert not loading.done()
        engine.sick = False
        await loading
        assert engine.loads == ["v2"] and (await router.generate(ask()))[0].text == engine.name
        await router.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (InfraError("dead"), r"waited 0\.3 s for an engine to load v2 \(e0: loading v2: dead"),
        (EngineLost("gone for good"), r"no engine could load v2: e0: loading v2: gone for good"),
    ],
)
def test_no_engine_could_load(error: InfraError, says: str):
    async def main():
        router, (engine,) = make(1, timeout_s=0.3)
        engine.sick, engine.sickness = True, error
        with pytest.raises(InfraError, match=says):
            await router.load("v2")
        await router.close()

    asyncio.run(main())


def test_counters_survive_a_restart():
    async def main():
        router, (engine,) = make(1)
        await router.generate(ask(n=2))
        engine.fails = failing(1, lambda: InfraError("killed"))
        await router.generate(ask(n=3))
        stats = await router.stats()
        assert stats.cost == Cost(calls=2, completions=5, prompt_tokens=8, cached_tokens=6, completion_tokens=10)
        await router.close()

    asyncio.run(main())


def test_a_cancelled_call_gives_its_place_back():
    async def main():
        router, engines = make(1, cap=1)
        (task,) = await hold(router, engines, [ask()])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        engines[0].gate.set()
        await router.generate(ask())
        assert engines[0].active == 0

    asyncio.run(main())


def test_waiting_calls_are_served_in_their_order_and_each_is_woken_once(monkeypatch: pytest.MonkeyPatch):
    async def main():
        router, engines = make(1, cap=1)
        looked, choose = [0], Dispatcher._choose
        monkeypatch.setattr(
            Dispatcher, "_choose", lambda self, affinity: looked.__setitem__(0, looked[0] + 1) or choose(self, affinity)
        )
        order: list[int] = []

        async def call(number: int) -> None:
            await router.generate(ask(str(number)))
            order.append(number)

        await asyncio.gather(*(call(number) for number in range(200)))
        assert order == list(range(200)) and engines[0].most_active == 1
        assert looked[0] <= 2 * 200 + 2, "a free engine made more than one call look"

    asyncio.run(main())


def test_a_waiting_call_that_is_cancelled_or_times_out_leaves_no_engine_taken():
    async def main():
        router, engines = make(1, cap=1, timeout_s=0.05)
        (held,) = await hold(router, engines, [ask()])
        late = asyncio.create_task(router.generate(ask()))
        with pytest.raises(InfraError, match=r"waited 0.05 s for an engine|no answer to a generate call within 0.05 s"):
            await late  # it has the engine for a moment if the held call is given up first
        for turn in range(40):  # cancelled before, in and after the moment in which the engine becomes free
            router, engines = make(1, cap=1)
            (held,) = await hold(router, engines, [ask()])
            waiting = asyncio.create_task(router.generate(ask()))
            await asyncio.sleep(0)
            engines[0].gate.set()
            for _ in range(turn % 8):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(held, waiting, return_exceptions=True)
            async with asyncio.timeout(1.0):
                await router.generate(ask())
            assert router.running == router.waiting == 0

    asyncio.run(main())


def test_calls_that_wait_while_weights_are_loaded_go_on_afterwards():
    async def main():
        router, engines = make(1)
        (held,) = await hold(router, engines, [ask()])
        loading = asyncio.create_task(router.load("v2"))
        await asyncio.sleep(0.01)
        waiting = [asyncio.create_task(router.generate(ask())) for _ in range(5)]
        await asyncio.sleep(0.01)
        engines[0].gate.set()
        async with asyncio.timeout(0.5):
            await asyncio.gather(held, loading, *waiting)
        assert engines[0].checkpoint == "v2"

    asyncio.run(main())
