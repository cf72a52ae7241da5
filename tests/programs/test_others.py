"""Programs that ask other models, too: those are asked once, and what they said is what is replayed."""

import asyncio
import itertools
import json
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agentr.collect.grow import Given, Grow
from agentr.config.schema import TaskSelection
from agentr.envs.client import EnvClient
from agentr.envs.server import EnvServer
from agentr.errors import RunError
from agentr.policy.base import GenerateRequest
from agentr.search import UCT, Node, Sample, Tree, UCTConfig
from agentr.types import Completion, FinishReason
from env_servers.base import Unavailable
from env_servers.observation import OtherAnswer
from env_servers.program.others import MAX_ANSWER, Heard, endpoints
from env_servers.protocol import OpenRequest
from env_servers.sandbox import launch
from tests.players import SloppyExpert
from tests.programs.test_equality import asking, grown
from tests.programs.test_program import Make, make

__all__ = ["make"]

pytestmark = pytest.mark.skipif(not launch.available(), reason="programs cannot be isolated here")


class Helper:
    """A model that says something else each time, over HTTP.

    Attributes:
        asked: Path, headers and body of each request.
        refuses: Statuses of the next answers, each given once.
        down: Every status is 503.
        body: In place of what it says.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.refuses: list[int] = []
        self.down, self.body = False, b""
        numbers, helper = itertools.count(1), self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                helper.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                status = 503 if helper.down else helper.refuses.pop(0) if helper.refuses else 200
                said = {"choices": [{"message": {"content": f"word {next(numbers)}"}}], "error": str(status)}
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.end_headers()
                self.wfile.write(helper.body or json.dumps(said).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v2"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def helper() -> Iterator[Helper]:
    running = Helper()
    yield running
    running.stop()


#: Asks for advice before its first call, and twice the same after each answer.
ADVISED = """
    def advice(*messages):
        body = {"model": "helper", "messages": list(messages)}
        return post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)[1]["choices"][0]["message"]["content"]

    messages = [user("Go, " + advice(user("how?")))]
    for n in range(3):
        messages.append(assistant(said(*messages)))
        messages.append(user(advice(user("and?")) + ", " + advice(user("and?"))))
    reward(1)
"""


@pytest.mark.parametrize("live", [1, 8])
def test_a_branch_hears_again_what_was_said_before_it_and_something_new_behind_it(
    make: Make, helper: Helper, live: int
) -> None:
    env = make(ADVISED, models={"helper": {"url": helper.url}}, live=live)
    state, first = env.reset("one")
    assert first.observation == "Go, word 1" and first.asked is not None
    assert [(heard.model, heard.status) for heard in first.asked.others] == [("helper", 200)]
    states = [env.fork(state) for _ in range(2)]
    seen = [env.step(each, "on") for each in states]
    assert [one.observation for one in seen] == ["word 2, word 3", "word 4, word 5"]
    assert [len(one.asked.others) for one in seen if one.asked] == [2, 2]
    deeper = [env.fork(each) for each in states for _ in range(2)]
    last = [env.step(each, "on").observation for each in deeper]
    assert last == [f"word {n}, word {n + 1}" for n in (6, 8, 10, 12)]
    back = env.restore(json.loads(json.dumps(env.snapshot(deeper[1]))))
    ended = env.step(back, "end")
    assert ended.done and ended.reward == 1 and ended.asked is not None and len(ended.asked.others) == 2
    assert len(helper.asked) == 15, "nothing was asked for a second time"


def test_what_is_ignored_makes_no_difference_to_what_is_asked(make: Make, helper: Helper) -> None:
    code = ADVISED.replace('"how?"', 'f"how? {time.time_ns()}"')
    env = make(code, models={"helper": {"url": helper.url}}, ignore=[r"messages /\d+$/"], live=1)
    state, _ = env.reset("one")
    one, other = env.fork(state), env.fork(state)
    assert [env.step(each, "on").asked.refused for each in (one, other)] == ["", ""]
    assert sum("how?" in json.dumps(body) for _, _, body in helper.asked) == 1


def test_a_request_goes_where_its_model_is_with_its_name_and_key(
    make: Make, helper: Helper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELPERS_KEY", "secret-of-the-helper")
    code = """
    key, bearer = os.environ["OPENAI_API_KEY"], {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}

    def tell(path, headers, **body):
        url = os.environ["ANTHROPIC_BASE_URL"] + path
        headers = {"Content-Type": "application/json", **headers}
        urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()

    tell("/v1/embeddings", bearer, model="vectors", input=["a"])
    tell("/v1/messages", {"x-api-key": key, "anthropic-version": "2023-06-01"}, model="helper", stream=True)
    tell("/v1/responses?version=2", bearer, model="helper")
    outside = [post(os.environ["OPENAI_BASE_URL"] + path, {"model": "helper"})[0] for path in ("/../x", "/%2e%2e/x")]
    names = urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/models", None, bearer))
    status, _ = post(os.environ["OPENAI_BASE_URL"] + "/embeddings", {"model": "unknown", "input": ["a"]})
    said(user(json.dumps([[model["id"] for model in json.load(names)["data"]], status, outside])))
    """
    models = {
        "helper": {"url": f"{helper.url}/", "model": "helper-2", "key_env": "HELPERS_KEY"},
        "vectors": {"url": helper.url},
    }
    _, first = make(code, models=models).reset("one")
    assert json.loads(first.observation) == [["agentr", "helper", "vectors"], 404, [400, 400]]
    paths = [path for path, _, _ in helper.asked]
    assert paths == ["/v2/embeddings", "/v2/messages", "/v2/responses?version=2"]
    assert [body["model"] for _, _, body in helper.asked] == ["vectors", "helper-2", "helper-2"]
    (vectors, messages, responses) = (headers for _, headers, _ in helper.asked)
    assert "authorization" not in vectors and "x-api-key" not in vectors
    assert messages["x-api-key"] == "secret-of-the-helper" and messages["anthropic-version"] == "2023-06-01"
    assert "authorization" not in messages and responses["authorization"] == "Bearer secret-of-the-helper"


def test_an_error_that_is_an_answer_is_heard_and_one_that_passes_is_not(make: Make, helper: Helper) -> None:
    code = """
    def status(text):
        return post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", {"model": "helper", "text": text})[0]

    said(user(f"{status('a')} {status('b')}"))
    said(user("on"))
    """
    helper.refuses = [429, 500, 200, 422]
    env = make(code, models={"helper": {"url": helper.url}}, live=1)
    state, first = env.reset("one")
    assert first.observation == "200 422" and len(helper.asked) == 4
    for branch in (env.fork(state), env.fork(state)):
        assert env.step(branch, "x").observation == "on"
    assert len(helper.asked) == 4


@pytest.mark.parametrize("body, said", [(b"\xff", "is no text"), (b"x" * (MAX_ANSWER + 1), "more than 8 MiB")])
def test_an_answer_that_cannot_be_recorded_is_refused(make: Make, helper: Helper, body: bytes, said: str) -> None:
    code = """
    status, error = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", {"model": "helper"})
    said(user(f"{status} {error['error']['message']}"))
    """
    helper.body = body
    _, first = make(code, models={"helper": {"url": helper.url}}).reset("one")
    assert first.observation.startswith("400 ") and said in first.observation
    assert first.asked is not None and not first.asked.others


@pytest.mark.parametrize("when", ["before the first call", "behind an answer", "in a replay"])
def test_a_model_that_is_gone_loses_nothing(make: Make, helper: Helper, when: str) -> None:
    env = make(ADVISED, models={"helper": {"url": helper.url}}, live=1, limits={"hold_s": 0.6, "early_s": 0.1})
    helper.down = when == "before the first call"
    if helper.down:
        with pytest.raises(Unavailable, match=r"helper gave no answer: http://.*status 503"):
            env.reset("one")
        helper.down = False
    state, _ = env.reset("one")
    branch = env.fork(state)
    if when != "before the first call":
        if when == "in a replay":  # a program that stands elsewhere begins again
            env.step(env.fork(state), "aside")
        helper.down = True
        for _ in range(2):
            with pytest.raises(Unavailable, match="helper gave no answer"):
                env.step(branch, "on")
        helper.down = False
    assert env.step(branch, "on").observation.count("word") == 2
    assert [answer.content for _, answer in branch.history] == ["on"]


def test_a_program_does_not_go_on_with_what_was_no_answer(make: Make, helper: Helper) -> None:
    """Its way of bearing an endpoint's failure is none of the agent's turns."""
    code = """
    said(user("Go."))
    status, _ = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", {"model": "helper"})
    said(user(f"status {status}"))
    """
    env = make(code, models={"helper": {"url": helper.url}}, limits={"hold_s": 0.3})
    state, _ = env.reset("one")
    helper.down = True
    with pytest.raises(Unavailable):
        env.step(state, "on")
    assert env._programs._live == 0


@pytest.mark.parametrize(
    "models, said",
    [
        ({"m": "http://x"}, "m is 'http://x', and must have a url"),
        ({"m": {}}, "must have a url"),
        ({"m": {"url": 3}}, "must have a url"),
        ({"m": {"url": "http://x", "api_key": "k"}}, "perhaps model and key_env"),
        ({"m": {"url": "ftp://x/v1"}}, "must begin with http"),
        ({"m": {"url": "http://x/v1", "key_env": "NOT_SET"}}, "the environment variable NOT_SET, with the key of m"),
    ],
)
def test_models_without_a_place_are_refused(make: Make, models: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make(ADVISED, models=models)
    with pytest.raises(ValueError, match=said):
        endpoints(models)


def test_equal_requests_are_answered_in_their_order_and_each_once() -> None:
    answers = [OtherAnswer("m", asked, 200, "", str(n)) for n, asked in enumerate("abab")]
    heard = Heard(answers)
    taken = [heard.again(asked) for asked in "bbaab"]
    assert [one and one.body for one in taken] == ["1", "3", "0", "2", None] and heard.all == tuple(answers)


def test_answers_that_cannot_be_sent_are_no_request() -> None:
    answer = {"model": "m", "asked": "", "status": 200, "kind": "", "body": "\ud800"}
    with pytest.raises(ValueError, match="lone surrogate"):
        OpenRequest.model_validate({"task": "t", "others": [answer]})


# sessions and trees ---------------------------------------------------------------------------------------------------

#: The same for `tests.programs.test_equality.asking`.
ADVISED_TREE = """
def advice(text):
    body = json.dumps(dict(model="helper", messages=[user(text)])).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]

messages = [user("Go, " + advice("how?"))]
for _ in range(3):
    answer = ask(messages)
    messages += [dict(role="assistant", content=answer), user(advice("and?"))]
end()
"""


def serving(folder: Path, helper: Helper, **options: Any) -> EnvServer:
    folder.mkdir(exist_ok=True)
    return asking(folder, ADVISED_TREE, models={"helper": {"url": helper.url}}, limits={"hold_s": 0.6}, **options)


def test_a_session_is_opened_anew_on_another_server(tmp_path: Path, helper: Helper) -> None:
    server, urls = serving(tmp_path, helper), list[str]()

    async def main(server: EnvServer) -> None:
        env = EnvClient(lambda: urls, "secret", timeout_s=60, retries=2)
        try:
            urls[:] = [server.url()]
            (task,) = await env.tasks(TaskSelection(split="train"))
            session = await env.open(task)
            for _ in range(2):
                session = await session.step("on")
            before = session.history
            server.stop()
            server = serving(tmp_path / "second", helper)
            try:
                urls[:] = [server.url()]
                asked = len(helper.asked)
                session.detach()  # it went with its server, whose address the client still has
                again = await session.step("on")
                assert again.history[:2] == before and again.last.done and len(helper.asked) == asked + 1
            finally:
                server.stop()
        finally:
            await env.aclose()

    try:
        asyncio.run(main(server))
    finally:
        server.stop()


class Speaker(SloppyExpert):
    """Says one of a few words."""

    def _answer(self, request: GenerateRequest, rng: random.Random) -> Completion:
        text = f"word {rng.randrange(9)}"
        ids = tuple(self.codec.turn(text))
        return Completion(text, ids, (-0.25,) * len(ids), FinishReason.STOP)


def standing(tree: Tree) -> list[Node]:
    return [node for node in tree.nodes[1:] if node.asked is not None and not node.asked.refused]


def test_a_tree_that_is_gone_on_with_stands_behind_the_same_opening(tmp_path: Path, helper: Helper) -> None:
    server = serving(tmp_path, helper, live=2)
    strategy = UCT(UCTConfig(iterations=4, max_depth=3, width=2))
    try:

        async def tasks() -> Any:
            env = EnvClient([server.url()], "secret")
            try:
                return await env.tasks(TaskSelection(split="train"))
            finally:
                await env.aclose()

        chosen = asyncio.run(tasks())
        helper.refuses = [200] * 6 + [503] * 40
        with pytest.raises(RunError, match="helper gave no answer"):
            grown(server, chosen, tmp_path / "trees", Grow(strategy), Speaker)
        helper.refuses, asked = [], len(helper.asked)
        (tree,) = grown(server, chosen, tmp_path / "trees", Grow(strategy), Speaker)
        assert tree.root.observation == "Go, word 1" and len(standing(tree)) == len(tree.nodes) - 1
        assert not any("how?" in json.dumps(body) for _, _, body in helper.asked[asked:])
        leaf = max(tree.nodes, key=lambda node: node.depth)
        (other,) = grown(
            server, chosen, tmp_path / "others", Grow(Sample(2, max_steps=3), Given(tree, leaf.parent)), Speaker
        )
        path = tree.path(leaf.parent)
        assert other.root.observation == tree.root.observation and len(standing(other)) == len(other.nodes) - 1
        assert [node.observation for node in other.nodes[1 : len(path) + 1]] == [node.observation for node in path]
    finally:
        server.stop()
