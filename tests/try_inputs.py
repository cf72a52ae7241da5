"""Tries the inputs of a folder on agentr: ``python tests/try_inputs.py [FOLDER]``, by default those beside this file.

Each file ``KIND.jsonl`` holds inputs of a kind that users of other software reported, a line each, with what is right.
A line is printed for each: ``!!`` where a comparison fails, ``see`` where a person judges, and the number of failures
at the end. A folder may lack kinds. All that depends on agentr's names is in the functions of `KINDS`, one for a kind.
"""

import asyncio
import contextlib
import json
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response, WebSocket, WebSocketDisconnect

Case = dict[str, Any]
Cases = Sequence[Case]

INPUTS = Path(__file__).parent / "inputs"


@dataclass(frozen=True)
class Tried:
    """What became of an input.

    Attributes:
        fine: None where there is nothing to compare with.
        text: What came out, and what is right.
    """

    id: str
    fine: bool | None
    text: str

    @property
    def line(self) -> str:
        return f"{ {True: '  ', False: '!!', None: 'see'}[self.fine] } {self.id} {self.text}"


# what is read and graded ----------------------------------------------------------------------------------------------


def turns(cases: Cases) -> Iterator[Tried]:
    from agentr.tasks.formats import FORMATS

    for case in cases:
        got = FORMATS[case["format"]].parse(case["text"]).action
        fine = got == case["action"] or (got is None and case["note"].startswith("or no action"))
        yield Tried(case["id"], fine, f"{got!r} | right: {case['action']!r} {case['note']}")


def exact_match(cases: Cases) -> Iterator[Tried]:
    from env_servers.searchqa import answers

    for case in cases:
        got = answers.exact_match(case["answer"], [case["gold"]])
        yield Tried(case["id"], got == case["right"], f"gold {case['gold']!r} answer {case['answer']!r}: {got}")


def math_answers(cases: Cases) -> Iterator[Tried]:
    from env_servers.mathtool import MathTool

    with _written(
        "problems.jsonl", [{"problem": f"Q{n}", "answer": case["gold"]} for n, case in enumerate(cases)]
    ) as path:
        env = MathTool(test=str(path))
    for case, task in zip(cases, env.split("test"), strict=True):
        state, _ = env.reset(task.id)
        got = env.step(state, f"answer: {case['answer']}").reward == 1.0
        yield Tried(case["id"], got == case["right"], f"gold {case['gold']!r} answer {case['answer']!r}: {got}")


def sandbox(cases: Cases) -> Iterator[Tried]:
    from env_servers.mathtool import MathTool

    env = MathTool()
    for case in cases:
        state, _ = env.reset(env.split("test")[0].id)
        yield Tried(
            case["id"], None, f"{env.step(state, 'python: ' + case['code']).observation!r} | right: {case['right']}"
        )


def question_files(cases: Cases) -> Iterator[Tried]:
    from env_servers.searchqa.files import load_questions

    for case in cases:
        try:
            with _written(case["file"], case["rows"]) as path:
                got = [list(question.answers) for question in load_questions({"test": str(path)})]
        except ValueError as error:
            yield Tried(case["id"], None if "refused" in case["note"] else False, f"refused: {error}")
        else:
            fine = sorted(got[0]) == sorted(case["golds"])
            yield Tried(case["id"], fine, f"{got} | right: {case['golds']} ({case['note']})")


def problem_files(cases: Cases) -> Iterator[Tried]:
    from env_servers.mathtool import files

    for case in cases:
        got: Any
        try:
            with _written(case["file"], case["rows"]) as path:
                got = [problem.answer for problem in files.read(path).values()]
        except ValueError as error:
            got = f"refused: {error}"
        yield Tried(case["id"], got == case["answers"], f"{got} | right: {case['answers']}")


def imports(cases: Cases) -> Iterator[Tried]:
    from agentr.rows.imports import import_file

    codec = _codec()
    for case in cases:
        path = Path(tempfile.mkdtemp()) / "entries.json"
        path.write_text(json.dumps(case["data"]), encoding="utf-8")
        try:
            rows, dropped = import_file(path, "auto", codec, 2000)
        except Exception as error:  # noqa: BLE001 - it is what is shown
            yield Tried(case["id"], None, f"{type(error).__name__}: {str(error)[:160]} | right: {case['right']}")
            continue
        masks: list[Any] = [(getattr(row, "input_ids", None), getattr(row, "loss_mask", None)) for row in rows]
        trained = [
            "a pair" if ids is None else codec.decode([i for i, m in zip(ids, mask, strict=True) if m], special=True)
            for ids, mask in masks
        ]
        yield Tried(case["id"], None, f"trained: {trained} left out: {dict(dropped)} | right: {case['right']}")


# servers of others ----------------------------------------------------------------------------------------------------


def api_answers(cases: Cases) -> Iterator[Tried]:
    from agentr.backoff import Backoff
    from agentr.config.policy import OpenAIConfig, PolicyConfig
    from agentr.policy.base import GenerateRequest
    from agentr.policy.openai_api import OpenAIPolicy
    from agentr.types import Message, Sampling

    app, plain, tooled, now = FastAPI(), _codec(), _codec(tools=True), Case()

    @app.post("/v1/chat/completions")
    async def complete() -> Response:
        return Response(json.dumps(now["body"]), status_code=now["status"], media_type="application/json")

    async def ask(case: Case, url: str) -> str:
        codec = tooled if case["tools"] else plain
        config = PolicyConfig(timeout_s=5.0, retries=1, openai=OpenAIConfig(base_url=f"{url}/v1", model="m"))
        policy = OpenAIPolicy(config, codec, {"OPENAI_API_KEY": "a key"}, backoff=Backoff(first_s=0.01))
        sampling, said = Sampling(max_tokens=32, seed=1), (Message("user", "Go."),)
        try:
            (got,) = await policy.generate(GenerateRequest((1, 2, 3), 1, sampling, messages=said, codec=codec))
            more = f" parsed {codec.calls.parse(got.text)}" if codec.calls else ""
            return f"{got.text!r} {got.finish}{more}"
        except Exception as error:  # noqa: BLE001 - it is what is shown
            return f"{type(error).__name__}: {str(error)[:260]}"
        finally:
            await policy.close()

    with _serving(app) as url:
        for case in cases:
            now.update(case)
            yield Tried(case["id"], None, f"{asyncio.run(ask(case, url))} | right: {case['right']}")


def foreign_steps(cases: Cases) -> Iterator[Tried]:
    from agentr.backoff import Backoff
    from agentr.config.schema import EnvConfig, EnvProtocol
    from agentr.envs import pool
    from agentr.envs.connect import connect
    from agentr.errors import InfraError
    from agentr.types import Task

    app, now = FastAPI(), Case()
    opening = {"id": 0, "observation": "Crafting commands:\n\nGoal: craft bread.", "done": False, "reward": 0}
    openenv = {"type": "object", "properties": {}}
    acts = {"properties": {"message": {"type": "string"}}}
    app.post("/create")(lambda: opening)
    app.post("/reset")(lambda: opening)
    app.post("/step")(lambda: Response(now["step"], media_type="application/json"))
    app.post("/close")(lambda: True)
    app.get("/metadata")(lambda: {"name": "odd", "description": "Odd.", "version": "1"})
    app.get("/schema")(
        lambda: {"action": acts, "observation": {"properties": {"text": {"type": "string"}}}, "state": openenv}
    )

    @app.websocket("/ws")
    async def openenv_session(connection: WebSocket) -> None:
        await connection.accept()
        with contextlib.suppress(WebSocketDisconnect):
            while (kind := json.loads(await connection.receive_text())["type"]) != "close":
                seen = (
                    json.loads(now["step"])
                    if kind == "step"
                    else {"observation": "A room.", "reward": 0, "done": False}
                )
                data = {"observation": {"text": seen["observation"]}, "reward": seen["reward"], "done": seen["done"]}
                await connection.send_text(json.dumps({"type": "observation", "data": data}))
            await connection.close()

    async def step(protocol: str, url: str) -> tuple[str, bool | None]:
        name, task = ("textcraft", "agentgym/0") if protocol == "agentgym" else ("odd", "train/1")
        client = connect(
            EnvConfig(name=name, url=url, protocol=EnvProtocol(protocol), retries=1, timeout_s=5.0), [url], ""
        )
        try:
            await client.spec()
            session = await client.open(Task(name, task, "train"))
            text = (await session.expand(["look"]))[0].last.observation
            text.encode()
            return f"observed {text!r}", None
        except Exception as error:  # noqa: BLE001 - it is what is shown
            where = f"{type(error).__module__}.{type(error).__name__}"
            return f"{where}: {' '.join(str(error).split())[:150]}", isinstance(error, InfraError)
        finally:
            await client.aclose()

    patient, pool.BACKOFF = pool.BACKOFF, Backoff(first_s=0.01, longest_s=0.05)
    try:
        with _serving(app) as url:
            for case in cases:
                now.update(case)
                for protocol in case["protocols"]:
                    text, fine = asyncio.run(step(protocol, url))
                    yield Tried(f"{case['id']} {protocol}", fine, f"{text} | right: {case['right']}")
    finally:
        pool.BACKOFF = patient


def others(cases: Cases) -> Iterator[Tried]:
    for case in cases:
        yield Tried(case["id"], None, f"by hand: {case['do']} | right: {case['right']}")


KINDS: dict[str, Callable[[Cases], Iterator[Tried]]] = {
    function.__name__: function
    for function in (
        turns,
        exact_match,
        question_files,
        problem_files,
        math_answers,
        sandbox,
        imports,
        api_answers,
        foreign_steps,
        others,
    )
}


def tried(folder: Path, kind: str) -> Iterator[Tried]:
    """Tries the inputs of a kind; yields nothing where the folder has none."""
    file = folder / f"{kind}.jsonl"
    if file.exists():
        yield from KINDS[kind]([json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line])


def main(folder: Path) -> int:
    """Prints a line for each input of a folder; returns how many are not right, of those that are compared."""
    wrong = 0
    for kind in KINDS:
        for each in tried(folder, kind):
            wrong += each.fine is False
            print(each.line, flush=True)
    print(wrong, "not right, of those that are compared")
    return wrong


# ----------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _written(name: str, rows: Sequence[Any]) -> Iterator[Path]:
    """A file of rows, of the kind that its name says."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        if path.suffix == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.Table.from_pylist(list(rows)), path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        yield path


def _codec(tools: bool = False) -> Any:
    """The codec of the model that agentr ships; with ``tools``, of one that acts by tool calls."""
    from agentr.config.model import ModelConfig
    from agentr.config.turns import TurnFormat, TurnsConfig
    from agentr.models.load import load_codec, resolve
    from agentr.tasks.tools import ACT

    model = ModelConfig(max_model_len=1024, chat_template="hermes" if tools else "")
    codec = load_codec(resolve(model, Path(tempfile.mkdtemp())), model)
    return codec.offering([ACT], TurnsConfig(format=TurnFormat.tool_calls)) if tools else codec


@contextlib.contextmanager
def _serving(app: Any) -> Iterator[str]:
    """The address at which a web application is served for the time of a block."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else INPUTS) > 0)
