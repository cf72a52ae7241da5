"""AgentGym's own servers behind our sessions: our requests in, its requests out.

Its servers cannot copy a state. So the specification says ``can_fork: false``, and a session does what it then does
anyway: a branch is a reset and a replay, and every observation must be the recorded one, to the letter. A lost answer
is never asked for again, because a step cannot be repeated there; the session is replayed instead. Games that a server
has no way to close are kept and reset for the next session, since a server of AgentGym's never forgets one by itself.

Instruction, reward scale and task numbers come from our environment of the same name, which must be usable here; the
texts come from the server. Labels are left out: the same number may be another problem on a server of another version,
or of another file system.
"""

import json
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from agentr.envs.transport import EnvStats, RequestFailed, Transport, UnknownOnServer, reading
from agentr.errors import ConfigError
from agentr.foreign import read
from agentr.secrets import Secret, quoted
from env_servers import protocol as wire
from env_servers.registry import ClientDialect, Environment

Answer = TypeVar("Answer", bound=BaseModel)


class AgentGymTransport(Transport):
    """Answers our requests with what one of AgentGym's servers says."""

    def __init__(
        self, environment: Environment, dialect: ClientDialect, token: str | Secret, timeout_s: float, stats: EnvStats
    ) -> None:
        super().__init__(token, timeout_s, stats)
        self._dialect = dialect
        self._spec = specification(environment)
        self._environment = environment
        self._free: dict[str, list[int]] = {}
        self._available: dict[tuple[str, int], list[str]] = {}

    async def get(
        self, url: str, path: str, answer: type[Answer], *, timeout_s: float | None = None, **query: str
    ) -> Answer:
        if path == "/v1/spec":
            return cast(Answer, self._spec)
        if path == "/v1/expert":  # ours speaks of our tasks, which need not be the server's
            return cast(Answer, wire.ExpertResponse(task=query["task"], steps=None))
        name = path.removeprefix("/v1/splits/")
        tasks = [wire.TaskEntry(id=task.id) for task in self._environment.split(name)]
        return cast(Answer, wire.SplitResponse(name=name, tasks=tasks))

    async def post(self, url: str, path: str, body: BaseModel, answer: type[Answer]) -> Answer:
        match body:
            case wire.OpenRequest():
                done = await self._open(url, body)
            case wire.StepRequest():
                done = await self._step(url, body)
            case wire.CloseRequest():
                done = await self._close(url, body)
            case wire.SessionRequest() if path == "/v1/actions":
                done = wire.ActionsResponse(actions=self._available.get((url, int(body.session)), []))
            case _:
                raise AssertionError(f"AgentGym's servers have nothing like {path}, and can_fork is false")
        return cast(Answer, done)

    async def _open(self, url: str, body: wire.OpenRequest) -> wire.ObservedState:
        family, _, number = body.task.partition("/")
        if family != "agentgym" or not number.isdecimal():
            raise UnknownOnServer(
                f"AgentGym has no task {body.task!r}", hint="Its tasks are agentgym/0, agentgym/1 and so on."
            )
        dialect, free = self._dialect, self._free.setdefault(url, [])
        if free:
            game = free.pop()
        else:
            made = await self._ask(url, "/create", dialect.create())
            game = reading("/create", made, lambda: int(made if isinstance(made, int) else made[dialect.key]))
        answer = await self._ask(url, "/reset", {dialect.key: game, **dialect.reset(int(number))})
        self._note_actions(url, game, answer)
        return reading(
            "/reset", answer, lambda: wire.ObservedState(session=str(game), observation=dialect.opening(answer))
        )

    async def _step(self, url: str, body: wire.StepRequest) -> wire.ObservedState:
        dialect, game = self._dialect, int(body.session)
        try:
            answer = await self._ask(url, "/step", {dialect.key: game, "action": body.action})
        except RequestFailed as failure:
            # Whether it was carried out is not known, and there is no asking.
            raise RequestFailed(
                str(failure), session_lost=True, server_down=failure.server_down, wait=failure.wait
            ) from failure
        self._note_actions(url, game, answer)

        def observed() -> wire.ObservedState:
            text, reward, done = answer[dialect.text], float(answer[dialect.reward]), answer["done"]
            return wire.ObservedState(session=body.session, observation=text, reward=reward, done=done)

        return reading("/step", answer, observed)

    async def _close(self, url: str, body: wire.CloseRequest) -> wire.CloseResponse:
        for game in map(int, body.sessions):
            self._available.pop((url, game), None)
            if self._dialect.closes:
                await self._ask(url, "/close", {self._dialect.key: game})
            else:
                self._free.setdefault(url, []).append(game)
        return wire.CloseResponse(closed=len(body.sessions))

    async def _ask(self, url: str, path: str, body: dict[str, Any]) -> Any:
        status, data = await self.exchange("POST", url, path, data=json.dumps(body))
        what = f"POST {url}{path}"
        if status != 200:
            raise RequestFailed(f"{what}: {status} {quoted(data, 200)}", session_lost=True)
        answer = reading(what, data, lambda: read(data))
        if isinstance(answer, dict) and "error" in answer:
            raise RequestFailed(f"{what}: {quoted(answer, 200)}", session_lost=True)
        return answer

    def _note_actions(self, url: str, game: int, answer: Any) -> None:
        if self._dialect.actions and isinstance(answer, dict):
            named = answer.get(self._dialect.actions, [])
            self._available[url, game] = reading(
                "a look at the actions", answer, lambda: wire.ActionsResponse(actions=named).actions
            )


def specification(environment: Environment) -> wire.EnvironmentSpec:
    """Adapts our specification to AgentGym's server: only the splits in AgentGym's numbering, and no forks.

    Raises:
        ConfigError: There are none.
    """
    spec = environment.spec
    splits = {name: split for name, split in spec.splits.items() if name.startswith("agentgym")}
    if not splits:
        raise ConfigError(
            f"no split of {spec.name} is in AgentGym's numbering here; it has {', '.join(spec.splits)}",
            hint="Some environments need files for that: see `agentr list NAME` and env.options.",
        )
    return spec.model_copy(update={"splits": splits, "identity": "", "strata": [], "can_fork": False})
