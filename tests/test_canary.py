"""A canary in each secret, on paths of failure with real servers that say back what they were sent: it is found nowhere
afterwards."""

import base64
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agentr.secrets import SecretKind

pytestmark = pytest.mark.slow

CANARY = 'sk-"zeisig"/in+a=mine&x'
#: What a process does with an error: all the places that one is written to.
PROGRAM = """
import asyncio, logging, sys, traceback
from pathlib import Path
from agentr.logs import recording
from agentr.observe.progress import Reporter
from agentr.secrets import clean_output
from agentr.store.files import append_line

clean_output()
run = Path("run")
run.mkdir()
with recording(run / "driver.jsonl", "driver"), Reporter().logged(run / "driver.log"):
    try:
        {code}
    except Exception as error:
        logging.getLogger("agentr").exception("it failed")
        append_line(run / "events.jsonl", {{"error": str(error), "kind": [repr(error)]}})
        Reporter().message(str(error), "red")
        traceback.print_exc()
"""
API = """
        from agentr.config.policy import OpenAIConfig, PolicyConfig
        from agentr.policy.base import GenerateRequest
        from agentr.policy.chat import ChatCodec
        from agentr.policy.openai_api import OpenAIPolicy
        from agentr.types import Message, Sampling
        from tests.support import tiny_tokenizer
        policy = OpenAIPolicy(PolicyConfig(retries=0, openai=OpenAIConfig(base_url={url!r}, model="m")), \
ChatCodec(tiny_tokenizer()))
        asyncio.run(policy.generate(GenerateRequest((1,), 1, Sampling(), messages=(Message("user", "Go."),))))
"""
ENVIRONMENT = """
        from agentr.config.schema import EnvConfig, EnvProtocol
        from agentr.config.secrets import env_token
        from agentr.envs.connect import connect
        config = EnvConfig(name="textcraft", url={url!r}, token_env="AGENTR_ENV_TOKEN", retries=0, \
protocol=EnvProtocol.{protocol})
        async def main():
            await connect(config, [config.url], env_token(config)).spec()
        asyncio.run(main())
"""
STORE = """
        from agentr.store.bucket import Bucket
        asyncio.run(Bucket("s3://bucket/run").read("manifest.json"))
"""
RAY = """
        from agentr.commands.submit import Cluster
        Cluster({url!r}).jobs()
"""
#: Files of W&B's own are begun in the run directory; then the process fails by an error that says the key.
OFFLINE = """
        import os
        from agentr.track.points import Point
        from agentr.track.to_wandb import WeightsAndBiases
        from agentr.track.tracker import About, require
        require(["wandb"])
        tracker = WeightsAndBiases()
        tracker.start(About("1", "name", {{}}, run))
        tracker.log(Point(1, 0.0, "train/main/step", 1, {{"train/main/loss": 0.5}}, "rounds/01/train", ""))
        tracker.finish()
        raise RuntimeError(f"refused: {{os.environ['WANDB_API_KEY']}}")
"""
TRACKER = """
        from agentr.track.to_mlflow import MLflow
        from agentr.track.tracker import About, require
        require(["mlflow"])
        MLflow().start(About("1", "name", {{}}, run))
"""
#: What a canary's variable is, the code that fails, and variables beside it; a row for each kind.
ROWS: dict[SecretKind, list[tuple[str, str, dict[str, str]]]] = {
    SecretKind.API: [
        ("OPENAI_API_KEY", API.replace("{url!r}", "'{url}/v1'"), {}),
        ("OPENAI_API_KEY", API.replace("{url!r}", "'http://127.0.0.1:9'"), {}),
    ],
    SecretKind.ENVIRONMENT: [
        ("AGENTR_ENV_TOKEN", ENVIRONMENT.replace("{protocol}", name), {}) for name in ("agentr", "openenv")
    ],
    SecretKind.STORE: [
        (
            "AWS_SESSION_TOKEN",
            STORE,
            {"AWS_ENDPOINT_URL": "{url}", "AWS_ACCESS_KEY_ID": "me-myself", "AWS_SECRET_ACCESS_KEY": "secret-it-is"},
        )
    ],
    SecretKind.RAY: [("RAY_AUTH_TOKEN", RAY, {})],
    SecretKind.TRACKER: [
        row
        for package, row in {
            "mlflow": (
                "MLFLOW_TRACKING_TOKEN",
                TRACKER,
                {"MLFLOW_TRACKING_URI": "{url}", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"},
            ),
            "wandb": ("WANDB_API_KEY", OFFLINE, {"WANDB_MODE": "offline"}),
        }.items()
        if importlib.util.find_spec(package)
    ],
    SecretKind.PROXY: [
        ("HTTP_PROXY", API.replace("{url!r}", "'http://api.example/v1'"), {"OPENAI_API_KEY": "sk-another-one"})
    ],
    SecretKind.PAGES: [("AGENTR_UI_TOKEN", "", {})],
}
FORMS = ("{}", "{}\n", " {}\r\n")


@contextmanager
def echoing(status: int) -> Iterator[str]:
    """A server that answers with a status, and what it was sent in its body and headers."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            heads = [f"{name}: {value}" for name, value in self.headers.items()]
            sent = " ".join(heads)
            plain = {
                "said": heads,
                "quoted": urllib.parse.quote(sent),
                "again": json.dumps(heads),
                "base64": base64.b64encode(sent.encode()).decode(),
            }
            body = json.dumps(
                {"error": {"message": json.dumps(plain)}, "error_code": "x", "message": sent, "hint": sent}
            ).encode()
            self.send_response(status, "Refused")
            self.send_header("Location", f"http://me:{urllib.parse.quote(CANARY, safe='')}@127.0.0.1:9/")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_HEAD = answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def forms() -> list[bytes]:
    """The ways in which the canary may be found."""
    inner = base64.b64encode(CANARY.encode()).decode()[:-4]
    made = {
        CANARY,
        CANARY[:-4],
        urllib.parse.quote(CANARY),
        urllib.parse.quote(CANARY, safe=""),
        urllib.parse.quote_plus(CANARY),
        inner,
    }
    made |= {json.dumps(CANARY)[1:-1], json.dumps(json.dumps(CANARY))[3:-3], repr(CANARY)[1:-1], "zeisig"}
    return [form.encode() for form in made] + [base64.b64encode(b"x" * n + CANARY.encode())[6:24] for n in range(3)]


def searched(place: Path, shown: bytes) -> list[str]:
    """Where the canary is."""
    found = [
        path
        for path in place.rglob("*")
        if path.is_file() and path.name != "program.py" and any(form in path.read_bytes() for form in forms())
    ]
    return [*map(str, found), *(["the terminal"] if any(form in shown for form in forms()) else [])]


def environ(place: Path, **more: str) -> dict[str, str]:
    (place / "temp").mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    root = str(Path(__file__).parents[1])
    return {
        **kept,
        "HOME": str(place),
        "TMPDIR": str(place / "temp"),
        "PYTHONPATH": root,
        "HF_HUB_OFFLINE": "1",
        **more,
    }


def run(place: Path, code: str, given: dict[str, str]) -> bytes:
    """What a process that fails shows."""
    (place / "program.py").write_text(PROGRAM.format(code=code.strip()))
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=place, env=given, capture_output=True, timeout=120, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("form", FORMS, ids=["as given", "with a line break", "with blanks"])
@pytest.mark.parametrize("kind", list(SecretKind))
def test_a_canary_is_found_nowhere(kind: SecretKind, form: str, tmp_path: Path) -> None:
    if not ROWS[kind]:
        pytest.skip("no tracker is installed")
    for number, (variable, code, more) in enumerate(ROWS[kind]):
        for status in (401, 302, 500) if kind is SecretKind.API and not number else (401,):
            place = tmp_path / f"{number}-{status}"
            place.mkdir()
            with echoing(status) as url:
                value = form.format(
                    f"http://me:{urllib.parse.quote(CANARY, safe='')}@{url[7:]}" if kind is SecretKind.PROXY else CANARY
                )
                given = environ(
                    place, **{variable: value}, **{name: text.format(url=url) for name, text in more.items()}
                )
                if kind is SecretKind.PAGES:
                    shown = pages(place, given)
                else:
                    (place / "program.py").write_text(PROGRAM.format(code=code.format(url=url).strip()))
                    done = subprocess.run(
                        [sys.executable, "program.py"],
                        cwd=place,
                        env=given,
                        capture_output=True,
                        timeout=120,
                        check=False,
                    )
                    shown = done.stdout + done.stderr
                    assert (place / "run/events.jsonl").exists(), shown.decode()
                    assert b"SyntaxError" not in shown and b"ImportError" not in shown, shown.decode()
            assert not searched(place, shown), shown.decode()


#: A run that plays held-out episodes first, by an API.
EXPERIMENT = """
run: {dir: run, name: canary, rounds: 1, control: false}
method: {type: rft}
model: {source: nano, max_model_len: 1024}
warm_start: {enabled: false}
policy: {backend: openai, retries: 0, openai: {base_url: "URL/v1", model: m}}
env: {name: textcraft, retries: 0}
collect: {tasks: {limit: 2}, infra_retries: 0}
eval: {tasks: {split: test, limit: 2}}
cluster: {dashboard: false, cpus: 2}
"""


@pytest.mark.cluster
@pytest.mark.timeout(900)
@pytest.mark.parametrize("what", ["the API", "the environment's server"])
def test_a_run_on_ray_that_fails_with_each_secret_set_leaves_none_of_them(what: str) -> None:
    """In none of its processes' logs, Ray's own among them, which are kept after a failure; nor in the run directory or
    on the terminal."""
    place = Path(tempfile.mkdtemp(prefix="c", dir="/tmp"))  # Ray's sockets need a short path
    trackers = [name for name in ("wandb", "mlflow") if importlib.util.find_spec(name)]
    names = {name for kind in SecretKind for name, *_ in ROWS[kind]} - {"HTTP_PROXY", "AGENTR_UI_TOKEN"}
    names |= {"WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "RAY_AUTH_TOKEN"}
    try:
        with echoing(401) as url:
            proxy = f"http://me:{urllib.parse.quote(CANARY, safe='')}@{url[7:]}"
            (place / "config.yaml").write_text(EXPERIMENT.replace("URL", url))
            more = ["env.url=" + url] if what != "the API" else []
            given = environ(
                place,
                **dict.fromkeys(names, CANARY),
                HTTP_PROXY=proxy,
                HTTPS_PROXY=proxy,
                NO_PROXY="127.0.0.1,localhost",
                RAY_TMPDIR=str(place),
                WANDB_MODE="offline",
            )
            command = [
                sys.executable,
                "-m",
                "agentr.cli",
                "run",
                "config.yaml",
                f"tracking=[{','.join(trackers)}]",
                *more,
            ]
            done = subprocess.run(command, cwd=place, env=given, capture_output=True, timeout=600, check=False)
        shown = done.stdout + done.stderr
        assert done.returncode in (1, 2) and b"401" in shown, shown.decode()
        assert any(place.glob("ray/session_*/logs/raylet.out")) and (place / "run/logs/driver.log").exists(), (
            shown.decode()
        )
        assert what != "the API" or any(place.glob("run/logs/coordinator-*.jsonl")), (
            "it failed in a process that Ray started"
        )
        assert all(any(place.glob(f"run/tracking/{name}/**/*")) for name in trackers), shown.decode()
        assert not searched(place, shown), shown.decode()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def pages(place: Path, given: dict[str, str]) -> bytes:
    """What the pages' server shows, asked with a wrong token and with the right one for what there is not."""
    command = [sys.executable, "-m", "agentr.cli", "ui", str(place), "--port", "0"]
    server = subprocess.Popen(command, cwd=place, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert server.stdout is not None
    shown = b""
    while b"http://" not in shown and (line := server.stdout.readline()):
        shown += line
    assert b"?token=(AGENTR_UI_TOKEN)" in shown, shown
    url = shown.decode().split("http://")[1].split("/")[0]
    for asked, status in (("?token=wrong", 401), (f"api/none?token={urllib.parse.quote(CANARY, safe='')}", 404)):
        with pytest.raises(urllib.error.HTTPError, match=str(status)) as refused:
            urllib.request.urlopen(f"http://{url}/{asked}", timeout=20)
        shown += refused.value.read()
    server.terminate()
    return shown + server.communicate(timeout=20)[0]


@pytest.mark.parametrize("kind", [kind for kind in SecretKind if kind is not SecretKind.PAGES])
def test_a_secret_with_a_line_break_inside_is_refused_by_name(kind: SecretKind, tmp_path: Path) -> None:
    if not ROWS[kind]:
        pytest.skip("no tracker is installed")
    variable, code, more = ROWS[kind][0]
    value = "http://me:sk-one-zeisig\nX-Evil@127.0.0.1:9" if kind is SecretKind.PROXY else "sk-one-zeisig\nX-Evil: 1"
    given = environ(
        tmp_path, **{variable: value}, **{name: text.format(url="http://127.0.0.1:9") for name, text in more.items()}
    )
    shown = run(tmp_path, code.format(url="http://127.0.0.1:9"), given).decode()
    assert f"the value of {variable} has a line break or another control character in it" in shown
    assert not searched(tmp_path, shown.encode())


def test_no_module_reads_a_secret_from_the_environment_by_itself() -> None:
    """What a module asks the environment for by a name, or a part of the configuration that names one, is read by
    `Secret`."""
    import ast

    from agentr.secrets import NAMES

    root, found = Path(__file__).parents[1], []
    for path in [*root.glob("agentr/**/*.py"), *root.glob("ray_jobs/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in ("os.environ.get", "os.getenv")
                and path.name != "secrets.py"
            ):
                asked = ast.unparse(node.args[0]).strip("'\"")
                if NAMES.search(asked) or asked.endswith(("TOKEN_ENV", "_env")):
                    found.append(f"{path.relative_to(root)}: {asked}")
    assert not found
