"""AgentGym's protocol, driven by calls like those of its client: same paths, keys, and expectations of the answers."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from env_servers.protocol import MAX_ACTION_CHARS
from env_servers.textcraft import TextCraft
from env_servers.textcraft.environment import AGENTGYM_TEST
from tests.env_servers.support import child_server, http_client


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with child_server("textcraft", "--agentgym") as (url, _):
        yield url


class GymClient:
    """What AgentGym's TextCraft client sends: no token, and every answer is a 200."""

    def __init__(self, url: str) -> None:
        self.http = http_client(url, token=None)
        made = self.post("create", {"minecraft_dir": "agentenv_textcraft/", "commands": None, "goal": None})
        self.id = made["id"]
        self.first = made

    def post(self, path: str, body: dict[str, Any]) -> Any:
        response = self.http.post(f"/{path}", json=body)
        assert response.status_code == 200, response.text
        return response.json()

    def get(self, path: str) -> Any:
        response = self.http.get(f"/{path}?id={self.id}")
        assert response.status_code == 200, response.text
        return response.json()

    def step(self, action: str) -> tuple[str, float, bool]:
        answer = self.post("step", {"id": self.id, "action": action})
        return answer["observation"], answer["reward"], answer["done"]

    def reset(self, data_idx: int) -> dict[str, Any]:
        return self.post("reset", {"id": self.id, "data_idx": data_idx})

    def close(self) -> Any:
        return self.post("close", {"id": self.id})


def test_ids_count_up_and_a_game_starts_at_once(url: str):
    first, second = GymClient(url), GymClient(url)
    assert isinstance(first.id, int) and second.id == first.id + 1
    assert set(first.first) == {"id", "observation", "done", "reward"}
    assert first.first["reward"] == 0 and first.first["done"] is False
    assert first.http.get("/").json() == "This is environment TextCraft."
    assert first.get("observation") == first.first["observation"]


def test_the_expert_wins_agentgym_tasks(url: str):
    client, game = GymClient(url), TextCraft()
    for index in AGENTGYM_TEST[::25]:
        opened = client.reset(index)
        assert opened["id"] == client.id
        assert opened["observation"] == game.reset(f"agentgym/{index}")[1].observation
        answers = [client.step(step.action) for step in game.expert(f"agentgym/{index}") or ()]
        assert answers[-1][1:] == (1, True) and all(answer[1:] == (0, False) for answer in answers[:-1])
        assert client.get("detail") == {"observation": answers[-1][0], "done": True, "reward": 1, "deleted": False}
        assert client.step("inventory")[0].startswith("Inventory"), "the original goes on after the end"


def test_games_are_apart_and_errors_are_answers(url: str):
    one, other = GymClient(url), GymClient(url)
    one.reset(0)
    other.reset(0)
    one.step("get 1 stone")
    assert "stone" not in other.step("inventory")[0]
    assert one.close() is True and one.close() is False
    assert one.get("detail") == {"error": f"The id {one.id} is not valid."}
    assert (
        one.get("observation") == one.reset(3) == one.post("step", {"id": one.id, "action": "x"}) == one.get("detail")
    )
    assert "no task" in other.reset(-1)["error"] and "no task" in other.reset(10**12)["error"]
    too_long = other.http.post("/step", json={"id": other.id, "action": "x" * (MAX_ACTION_CHARS + 1)})
    assert (too_long.status_code, too_long.json()["error"]) == (
        422,
        "body.action: String should have at most 4096 characters",
    )
    assert other.step("inventory")[0]
    assert other.http.post("/step", json={"id": "x"}).status_code == 422


def test_ours_still_want_the_token(url: str):
    with http_client(url, token=None) as stranger:
        assert stranger.post("/v1/open", json={"task": "agentgym/0"}).status_code == 401
        assert stranger.get("/metrics").status_code == 401


def test_off_unless_asked_for():
    with child_server("textcraft") as (url, _), http_client(url) as client:
        response: httpx.Response = client.post("/create", json={})
        assert response.status_code == 404
