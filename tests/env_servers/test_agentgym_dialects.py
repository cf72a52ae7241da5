"""AgentGym's dialects beside TextCraft's (`test_agentgym.py`), each driven by a client that sends what AgentGym's
client sends and reads what it reads. The environment's expert says which actions to take."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from env_servers.agentgym import Games, NoDialect
from env_servers.alfworld import agentgym as alfworld
from env_servers.app import create_app
from env_servers.base import Observation, TaskInfo
from env_servers.registry import describe, load
from tests.env_servers.broken import Walk
from tests.env_servers.support import Count, Counter, child_server, http_client, serving

AVAILABLE = {found.name for found in describe() if found.available}


class StepOutput(NamedTuple):
    state: str
    reward: float
    done: bool


class Client:
    """What all clients of AgentGym do: one game for each client, no token, anything but 200 is an error."""

    def __init__(self, url: str) -> None:
        self.http = http_client(url, token=None)
        self.http.timeout = 300  # as AgentGym's clients have it; the first game of ScienceWorld waits for Java

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        response = self.http.post(f"/{path}", json=body) if body is not None else self.http.post(f"/{path}")
        assert response.status_code == 200, response.text
        return response.json()

    def get(self, path: str, **query: Any) -> Any:
        response = self.http.get(f"/{path}", params=query)
        assert response.status_code == 200, response.text
        return response.json()


class BabyAIClient(Client):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.id = self.post("create")["id"]

    def reset(self, index: int) -> str:
        answer = self.post("reset", {"id": self.id, "data_idx": index})
        assert answer["reward"] == answer["score"] == 0 and answer["done"] is False
        return answer["observation"]

    def step(self, action: str) -> StepOutput:
        answer = self.post("step", {"id": self.id, "action": action})
        return StepOutput(answer["observation"], answer["score"], answer["done"])

    def observe(self) -> str:
        return self.get("observation", id=self.id)


class SciWorldClient(BabyAIClient):
    def reset(self, index: int) -> str:
        answer = self.post("reset", {"id": self.id, "data_idx": index})
        assert answer["reward"] == answer["score"] == 0 and answer["task_name"] and answer["var_num"] >= 0
        return f"{answer['task_description']}\n{answer['observation']}"

    def step(self, action: str) -> StepOutput:
        answer = self.post("step", {"id": self.id, "action": action})
        assert isinstance(answer["reward"], int | float)
        return StepOutput(answer["observation"], answer["score"], answer["done"])


class AlfWorldClient(Client):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.id = self.post("create")["id"]

    def reset(self, index: int) -> str:
        answer = self.post("reset", {"id": self.id, "game": index, "world_type": "Text"})
        assert answer["id"] == self.id and answer["task_type"]
        self.available = answer["available_actions"]
        return answer["observation"]

    def step(self, action: str) -> StepOutput:
        answer = self.post("step", {"id": self.id, "action": action})
        self.available = answer["available_actions"]
        return StepOutput(answer["observation"], answer["reward"], answer["done"])

    def observe(self) -> str:
        return self.get("observation", id=self.id)


class WebShopClient(Client):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.id = int(self.post("create"))

    def reset(self, index: int) -> str:
        observation, nothing = self.post("reset", {"env_idx": self.id, "session_id": index})
        assert nothing is None
        return observation

    def step(self, action: str) -> StepOutput:
        answer = self.post("step", {"env_idx": self.id, "action": action})
        assert answer["info"] is None
        return StepOutput(answer["state"], answer["reward"], answer["done"])

    def observe(self) -> str:
        return self.get("observation", env_idx=self.id)


class SearchQAClient(Client):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.id = int(self.post("create", {"id": 0}))

    def reset(self, index: int) -> str:
        return self.post("reset", {"env_idx": self.id, "id": index})

    def step(self, action: str) -> StepOutput:
        answer = self.post("step", {"env_idx": self.id, "action": action})
        return StepOutput(answer["observation"], answer["reward"], answer["done"])

    def observe(self) -> str:
        return self.get("observation", env_idx=self.id)


CLIENTS = {
    "babyai": BabyAIClient,
    "sciworld": SciWorldClient,
    "household": AlfWorldClient,
    "webshop": WebShopClient,
    "searchqa": SearchQAClient,
}


#: Problems of ScienceWorld that its solver is done with in seconds.
SHORT = ("find-animal/7", "power-component/3")


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[str], str]]:
    """The URL of a server of an environment, by its name; one for all tests."""
    urls: dict[str, str] = {}
    with contextlib.ExitStack() as running:
        patch = running.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")  # quicker starts

        def url(name: str) -> str:
            if name not in AVAILABLE:
                pytest.skip(f"{name} is not available here; `agentr list environments` says why")
            if name not in urls:
                urls[name], _ = running.enter_context(child_server(name, "--agentgym"))
            return urls[name]

        yield url


@pytest.mark.slow
@pytest.mark.timeout(900)  # ScienceWorld's experts take their time
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_of_agentgym_plays_to_the_end(serve: Callable[[str], str], name: str):
    url = serve(name)
    environment = load(name)
    client, other = CLIENTS[name](url), CLIENTS[name](url)
    assert other.id == client.id + 1, "ids are counted"
    assert "environment" in client.get("")
    solvable = ((index, task) for index, task in numbered(environment)[:12] if environment.expert(task))
    played = list(itertools.islice(solvable, 2))
    for index, task in played:
        assert client.reset(index) == other.reset(index) == environment.reset(task)[1].observation
        before = other.observe()
        answers = [client.step(step.action) for step in environment.expert(task) or ()]
        success = environment.spec.reward.low + environment.spec.reward.success * environment.spec.reward.high
        assert answers[-1].done and answers[-1].reward >= success
        assert not any(answer.done for answer in answers[:-1])
        assert client.observe() == answers[-1].state
        assert other.observe() == before, "the other game was not touched"
    assert played and client.step("xyzzy").state, "the original goes on after the end"


def numbered(environment: Any) -> list[tuple[int, str]]:
    """AgentGym's indices with the tasks that they stand for here; where there are problems with short solutions, those
    alone."""
    listed = {
        task.id: task.labels.get("problem") for split in environment.spec.splits for task in environment.split(split)
    }
    ours = [task for task in listed if task.startswith("agentgym/")]
    found = [(int(task.partition("/")[2]), task) for task in ours] or list(enumerate(listed))
    return [(index, task) for index, task in found if listed[task] in SHORT] or found


@pytest.mark.slow
def test_alfworld_lists_the_actions_that_are_available(serve: Callable[[str], str]):
    url = serve("household")
    client = AlfWorldClient(url)
    client.reset(0)
    assert "look" in client.available and client.available == client.get("available_actions", id=client.id)
    assert client.step(client.available[0]).state
    assert client.get("detail", id=client.id)["done"] is False
    assert client.post("close", {"id": client.id}) is True
    gone = {"error": f"The id {client.id} is not valid."}
    assert client.get("observation", id=client.id) == gone == client.post("step", {"id": client.id, "action": "look"})
    assert gone == client.post("reset", {"id": client.id, "game": 0, "world_type": "Text"})


def test_alfworld_names_the_game_and_not_its_number():
    class Numbered(Counter):
        def split(self, name: str) -> list[TaskInfo]:
            return (
                [TaskInfo("agentgym/0", {"game": "pick_and_place_simple-Book-None-Bed-301/trial_1"})]
                if name == "test"
                else []
            )

        def reset(self, task_id: str) -> tuple[Count, Observation]:
            return Count(task=task_id), Observation("a bedroom")

    app = create_app(Numbered(), token=None)
    app.include_router(alfworld.routes(Games(Numbered(), app.state.sessions)))
    with serving(app) as url:
        answer = http_client(url, token=None).post("/create").json()
        body = {"id": answer["id"], "game": 0, "world_type": "Text"}
        answer = http_client(url, token=None).post("/reset", json=body).json()
    assert answer["task_type"] == "pick_and_place_simple-Book-None-Bed-301/trial_1"


def test_webshop_says_what_can_be_clicked(serve: Callable[[str], str]):
    url = serve("webshop")
    client = WebShopClient(url)
    client.reset(0)
    assert client.get("available_actions", env_idx=client.id) == {"has_search_bar": True, "clickables": []}
    text = client.get("instruction_text", env_idx=client.id)
    assert text and text in client.observe() and client.id in client.get("list_envs")
    page = client.step(f"search[{text[:60]}]").state
    clickables = client.get("available_actions", env_idx=client.id)["clickables"]
    assert clickables and all(clickable in page for clickable in clickables)
    assert client.get("state", env_idx=client.id)["url"] == "/results"
    assert client.get("instruction_text", env_idx=client.id) == text
    assert client.step("click[nothing of the kind]").state == page, "what is not possible returns the same page"
    assert client.http.post("/step", json={"env_idx": 99, "action": "x"}).status_code == 404
    assert client.http.post("/reset", json={"env_idx": client.id, "session_id": 10**9}).status_code == 404
    assert client.post("close", {"env_idx": client.id}) is True and client.id not in client.get("list_envs")


def test_babyai_says_what_can_be_done(serve: Callable[[str], str]):
    url = serve("babyai")
    client = BabyAIClient(url)
    assert "Available actions: [" in client.reset(0)
    assert client.step("sing a song").reward == 0
    assert client.post("close", {"id": client.id}) is True
    assert "not valid" in client.get("observation", id=client.id)["error"]


def test_an_environment_that_agentgym_does_not_have_is_refused():
    with pytest.raises(NoDialect, match="walk"):
        create_app(Walk(), token=None, agentgym=True)
