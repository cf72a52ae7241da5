"""The files of ``docker/``, without a build: that takes minutes, and ``docker/build_and_smoke.sh`` does it."""

import fnmatch
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
ENTRYPOINT = DOCKER / "entrypoint.sh"
COMPOSE = DOCKER / "compose.yaml"
DOCKERFILES = ("cpu", "gpu")
SCRIPTS = sorted(DOCKER.glob("*.sh"))
#: What a linter must find after a change: its code, what is replaced, and by what.
BROKEN_DOCKERFILES = {
    "root": ("DL3002", "USER 10001:10001", "USER root"),
    "latest": ("DL3007", "FROM ${BASE} AS runtime", "FROM debian:latest AS runtime"),
    "lists of apt kept": ("DL3009", " && rm -rf /var/lib/apt/lists/* \\\n", ""),
    "not pinned": ("DL3013", '"uv==${UV_VERSION}"', "uv"),
    "shell form": ("DL3025", 'CMD ["agentr", "--help"]', "CMD agentr --help"),
}


def tool(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs a tool of the virtual environment."""
    command = [str(Path(sys.executable).parent / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


# Dockerfiles ----------------------------------------------------------------------------------------------------------


def dockerfile(kind: str) -> str:
    return (DOCKER / f"{kind}.Dockerfile").read_text(encoding="utf-8")


def stages(kind: str) -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, as (word, rest); what comes before the first stage is the stage ``""``."""
    lines = [line for line in dockerfile(kind).splitlines() if not line.startswith("#")]
    found: dict[str, list[tuple[str, str]]] = {"": []}
    stage = ""
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            stage = rest.rpartition(" AS ")[2]
            found[stage] = []
        if word:
            found[stage].append((word, " ".join(rest.split())))
    return found


def sources(kind: str) -> list[str]:
    """What the image takes from the repository."""
    copies = [rest for stage in stages(kind).values() for word, rest in stage if word in ("COPY", "ADD")]
    return [source for rest in copies if not rest.startswith("--from=") for source in rest.split()[:-1]]


@pytest.mark.parametrize("kind", DOCKERFILES)
def test_dockerfiles_are_without_findings(kind: str) -> None:
    found = tool("hadolint", "--no-color", DOCKER / f"{kind}.Dockerfile")
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("kind", DOCKERFILES)
@pytest.mark.parametrize("fault", BROKEN_DOCKERFILES)
def test_a_broken_dockerfile_is_found(tmp_path: Path, kind: str, fault: str) -> None:
    code, before, after = BROKEN_DOCKERFILES[fault]
    assert before in dockerfile(kind)
    broken = tmp_path / "Dockerfile"
    broken.write_text(dockerfile(kind).replace(before, after))
    found = tool("hadolint", "--no-color", broken)
    assert found.returncode == 1
    assert code in {line.split()[1] for line in found.stdout.splitlines()}


@pytest.mark.parametrize("kind", DOCKERFILES)
def test_everything_installed_is_locked(kind: str) -> None:
    commands = {stage: " ".join(rest for word, rest in lines if word == "RUN") for stage, lines in stages(kind).items()}
    assert f"locks/install.sh /opt/agentr/venv {kind} " in commands["packages"]
    assert (
        re.findall(
            r"pip install (?!--python \"/opt/envs/\$name/bin/python\" --no-deps .*\.lock\")(.*)", commands["envs"]
        )
        == []
    )
    assert "pip install" not in commands["runtime"] + commands["code"]
    locked = pins(ROOT / "locks" / f"{kind}.lock")
    removed = re.search(r"pip uninstall --python \S+ (.*)", commands["packages"])
    assert removed and set(removed[1].split()) <= set(locked)
    baked = next(rest for word, rest in stages(kind)["envs"] if word == "ARG" and rest.startswith("ENVS="))
    names = {path.stem for path in (DOCKER / "envs").glob("*.lock")}
    assert (
        set(baked.removeprefix("ENVS=").strip('"').split())
        == names
        == {path.stem for path in (DOCKER / "envs").glob("*.in")}
    )


@pytest.mark.parametrize("kind", DOCKERFILES)
def test_the_image_is_nobody_s_with_privileges_and_holds_no_token(kind: str) -> None:
    last = stages(kind)["runtime"]
    variables = dict(item.split("=", 1) for word, rest in last if word == "ENV" for item in rest.split())
    assert variables["RAY_USAGE_STATS_ENABLED"] == "0"
    assert variables["RAY_AUTH_MODE"] == "token"
    assert variables["PATH"].startswith("/opt/agentr/venv/bin:")
    assert not [
        rest
        for stage in stages(kind).values()
        for word, rest in stage
        if word in ("ENV", "ARG") and re.search("TOKEN|SECRET", rest)
    ]
    words = [word for word, _ in last]
    assert {"USER", "HEALTHCHECK", "ENTRYPOINT"} <= set(words)
    assert ("USER", "10001:10001") in last
    assert not {"COPY", "RUN", "ADD", "USER"} & set(words[words.index("USER") + 1 :])


@pytest.mark.parametrize("kind", DOCKERFILES)
def test_a_change_of_code_makes_only_the_last_layer_anew(kind: str) -> None:
    last = stages(kind)["runtime"]
    layers = [(word, rest) for word, rest in last if word in ("COPY", "ADD", "RUN")]
    assert layers[-1] == ("COPY", "--from=code /opt/agentr/src/ ./")
    for stage in ("tools", "envs", "packages"):
        copied = " ".join(rest for word, rest in stages(kind)[stage] if word == "COPY")
        assert not re.search(r"\b(agentr|env_servers|ray_jobs|configs)/", copied)


def test_both_images_have_the_same_stages_and_interface() -> None:
    cpu, gpu = (stages(kind) for kind in DOCKERFILES)
    assert list(cpu) == list(gpu) == ["", "tools", "envs", "packages", "code", "runtime"]
    assert cpu["envs"] == gpu["envs"]
    for word in ("ENV", "WORKDIR", "USER", "HEALTHCHECK", "ENTRYPOINT", "CMD"):
        assert [rest for found, rest in cpu["runtime"] if found == word] == [
            rest for found, rest in gpu["runtime"] if found == word
        ]
    assert ("ARG", "BASE=python:3.11-slim-bookworm") in cpu[""]
    assert ("ARG", "PYTHON=python:3.11-slim-bookworm") in gpu[""]
    assert [rest for _, rest in gpu[""] if rest.startswith("BASE=nvidia/cuda:13.")]


def pins(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", lock.read_text(encoding="utf-8"), re.MULTILINE))


def test_an_environment_server_s_packages_are_those_of_the_lock() -> None:
    server, project = pins(DOCKER / "envs" / "sciworld.lock"), pins(ROOT / "locks" / "cpu.lock")
    assert server
    assert {name: version for name, version in server.items() if project.get(name) != version} == {}


# What goes into a build -----------------------------------------------------------------------------------------------


def ignored(path: str) -> bool:
    """Whether ``.dockerignore`` keeps a path out: the last pattern decides that matches it or a folder above it."""
    parts = path.split("/")
    above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    out = False
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.lstrip("!")
        if pattern and not pattern.startswith("#") and any(_matches(name, pattern) for name in above):
            out = not line.startswith("!")
    return out


def _matches(name: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch.fnmatchcase(name.rpartition("/")[2], pattern.removeprefix("**/"))
    return name.count("/") == pattern.count("/") and fnmatch.fnmatchcase(name, pattern)


@pytest.mark.parametrize("kind", DOCKERFILES)
def test_what_is_copied_exists_and_is_let_in(kind: str) -> None:
    assert sources(kind)
    for source in sources(kind):
        assert (ROOT / source).exists()
        assert not ignored(source.rstrip("/"))
    assert not ignored("agentr/cli.py") and not ignored("agentr/models/weights/nano/model.safetensors")


@pytest.mark.parametrize(
    "path",
    """runs/demo/manifest.json .venv/bin/python .git/config docker/secrets/ray_token docker/compose.yaml .env
    configs/.env key.pem tests/conftest.py docs/log.md shared/data/x agentr.egg-info/PKG-INFO
    agentr/__pycache__/cli.cpython-311.pyc""".split(),
)
def test_what_does_not_belong_into_an_image_stays_out(path: str) -> None:
    assert ignored(path)


def test_the_token_is_not_committed() -> None:
    assert "/secrets/" in (DOCKER / ".gitignore").read_text(encoding="utf-8").split()


# The entrypoint -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_scripts_are_without_findings(script: Path) -> None:
    found = tool("shellcheck", script)
    assert found.returncode == 0, found.stdout
    assert script.stat().st_mode & stat.S_IXUSR


def test_a_broken_script_is_found(tmp_path: Path) -> None:
    broken = tmp_path / "entrypoint.sh"
    broken.write_text(ENTRYPOINT.read_text(encoding="utf-8").replace('exec "$@"', "exec $@"))
    found = tool("shellcheck", broken)
    assert found.returncode == 1
    assert "SC2068" in found.stdout


@pytest.fixture
def enter(tmp_path: Path) -> Any:
    """Runs the entrypoint with a ``ray`` that prints its arguments, and with a token unless told otherwise."""
    ray = tmp_path / "ray"
    ray.write_text('#!/bin/sh\necho "ray $* RAY_ADDRESS=${RAY_ADDRESS-unset}"\n')
    ray.chmod(0o755)
    token = tmp_path / "token"
    token.write_text("secret")

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        given = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path), "AGENTR_NODE_IP": "127.9.0.1"}
        given |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)} | environment
        return subprocess.run(
            [str(ENTRYPOINT), *arguments], env=given, capture_output=True, text=True, timeout=30, check=False
        )

    return run


@pytest.fixture
def listener() -> Iterator[str]:
    """The address of something that listens, as a head would."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_the_head_offers_no_cpu_and_listens_at_the_node_s_address(enter: Any) -> None:
    out = enter("head", "--object-store-memory=80000000", RAY_ADDRESS="head:6379").stdout
    assert out.startswith("ray start --block ")
    for option in (
        "--head",
        "--num-cpus 0",
        "--labels agentr-role=head",
        "--node-ip-address 127.9.0.1",
        "--dashboard-host 127.9.0.1",
    ):
        assert option in out
    assert out.rstrip().endswith("--object-store-memory=80000000 RAY_ADDRESS=unset")


@pytest.mark.parametrize("role", ["", "env", "rollout", "train"])
def test_a_worker_joins_the_head_with_the_label_of_its_role(enter: Any, listener: str, role: str) -> None:
    out = enter("worker", "--num-cpus=2", RAY_ADDRESS=listener, AGENTR_ROLE=role).stdout
    assert f"--address {listener} " in out
    assert "--head" not in out
    assert re.findall(r"--labels (\S+)", out) == ([f"agentr-role={role}"] if role else [])


@pytest.mark.parametrize(
    ("arguments", "environment", "error"),
    [
        (["head"], {"RAY_AUTH_MODE": "disabled"}, "need token authentication"),
        (["head"], {"RAY_AUTH_TOKEN_PATH": ""}, "no token: mount a file"),
        (["head"], {"RAY_AUTH_TOKEN_PATH": "/nowhere"}, "/nowhere is not there"),
        (["head"], {"RAY_AUTH_TOKEN_PATH": "/dev/null"}, "/dev/null is empty"),
        (["head"], {"AGENTR_ROLE": "train"}, "a worker's, not the head's"),
        (["worker"], {}, "needs the head's HOST:PORT"),
        (["worker"], {"RAY_ADDRESS": "head"}, "needs the head's HOST:PORT"),
        (["worker"], {"RAY_ADDRESS": "h:1", "AGENTR_ROLE": "head"}, "a worker's role is env, rollout or train"),
        (["worker"], {"RAY_ADDRESS": "h:1", "RAY_AUTH_TOKEN_PATH": ""}, "no token"),
        (
            ["worker"],
            {"RAY_ADDRESS": "127.9.0.9:1", "AGENTR_HEAD_WAIT_S": "0"},
            "127.9.0.9:1 did not listen within 0 s",
        ),
        ([], {}, "nothing to run"),
    ],
)
def test_what_cannot_start_says_why(enter: Any, arguments: list[str], environment: dict[str, str], error: str) -> None:
    done = enter(*arguments, **environment)
    assert done.returncode == 1
    assert error in done.stderr
    assert done.stdout == ""


def test_a_token_in_the_environment_will_do(enter: Any) -> None:
    assert enter("head", RAY_AUTH_TOKEN_PATH="", RAY_AUTH_TOKEN="secret").returncode == 0


def test_any_other_command_runs_as_it_stands(enter: Any) -> None:
    assert enter("printf", "%s|", "a b", "$HOME", RAY_AUTH_MODE="").stdout == "a b|$HOME|"


@pytest.mark.skipif(shutil.which("wget") is None, reason="the image's health check needs wget")
def test_the_health_of_a_container_is_that_of_its_node(enter: Any) -> None:
    assert enter("health").returncode == 0, "a container that is no node is as healthy as its command"
    answers = {"/api/local_raylet_healthz": b"success", "/api/gcs_healthz": b"success"}

    class Node(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answers[self.path])

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Node) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = str(server.server_port)
        enter("head", AGENTR_NODE_IP="127.0.0.1", AGENTR_AGENT_PORT=port, AGENTR_DASHBOARD_PORT=port)
        assert enter("health").returncode == 0
        answers["/api/gcs_healthz"] = b"no"
        assert "gcs_healthz does not answer with success" in enter("health").stderr
        server.shutdown()
    assert enter("health").returncode == 1


# The compose file -----------------------------------------------------------------------------------------------------


def compose() -> dict[str, Any]:
    return yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))


def compose_problems(file: dict[str, Any]) -> list[str]:
    """What the schema of compose files cannot know."""
    problems = []
    for name, service in file["services"].items():
        image = re.sub(r"\$\{\w+:-(.*)\}", r"\1", service["image"])
        if ":" not in image or image.endswith(":latest"):
            problems.append(f"{name}: image {image} has no version")
        problems += [
            f"{name}: port {port} is not on loopback"
            for port in service.get("ports", [])
            if not port.startswith("127.0.0.1:")
        ]
        problems += [
            f"{name}: no secret {secret}" for secret in service.get("secrets", []) if secret not in file["secrets"]
        ]
        problems += [
            f"{name}: waits for {other}" for other in service.get("depends_on", {}) if other not in file["services"]
        ]
        problems += [
            f"{name}: privileged" for key in ("privileged", "cap_add", "network_mode", "pid") if service.get(key)
        ]
        problems += [f"{name}: no {key}" for key in ("healthcheck", "restart") if key not in service]
        for volume in service["volumes"]:
            source = volume.split(":")[0] if isinstance(volume, str) else None
            if source is not None and source not in file["volumes"]:
                problems.append(f"{name}: no volume {source}")
            if source is None and not (DOCKER / volume["source"]).exists():
                problems.append(f"{name}: there is no {volume['source']}")
        problems += [f"{name}: {key} is a token" for key in service.get("environment", {}) if key.endswith("TOKEN")]
    return problems


def test_the_compose_file_fits_the_specification(tmp_path: Path) -> None:
    fits = tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)
    assert fits.returncode == 0, fits.stdout
    broken = tmp_path / "compose.yaml"
    broken.write_text(COMPOSE.read_text(encoding="utf-8").replace("stop_grace_period", "stop_grace_time"))
    assert tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", broken).returncode == 1


def test_the_compose_file_is_sound() -> None:
    assert compose_problems(compose()) == []


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("127.0.0.1:8265:8265", "8265:8265", "head: port 8265:8265 is not on loopback"),
        ("prom/prometheus:v3.5.0", "prom/prometheus", "prometheus: image prom/prometheus has no version"),
        ("  ray_token:\n", "  other:\n", "head: no secret ray_token"),
        ("shared:/shared", "elsewhere:/shared", "train: no volume elsewhere"),
        ("cap_drop: [ALL]", "privileged: true", "env: privileged"),
        ("./prometheus/alerts.yml", "./prometheus/alarms.yml", "prometheus: there is no ./prometheus/alarms.yml"),
    ],
)
def test_an_unsound_compose_file_is_found(before: str, after: str, problem: str) -> None:
    text = COMPOSE.read_text(encoding="utf-8")
    assert before in text
    assert problem in compose_problems(yaml.safe_load(text.replace(before, after)))


def test_compose_starts_a_node_of_each_role_on_one_image_and_folder(enter: Any, listener: str) -> None:
    services = {
        name: service for name, service in compose()["services"].items() if name not in ("prometheus", "grafana")
    }
    assert {name: service["environment"]["AGENTR_ROLE"] for name, service in services.items()} == {
        name: name for name in services
    }
    assert set(services) == {"head", "env", "rollout", "train"}
    for name, service in services.items():
        assert service["image"] == services["head"]["image"]
        assert service["volumes"] == ["shared:/shared"]
        assert service["environment"]["RAY_AUTH_TOKEN_PATH"] == "/run/secrets/ray_token"
        started = enter(*service["command"], RAY_ADDRESS=listener, AGENTR_ROLE=service["environment"]["AGENTR_ROLE"])
        assert f"--labels agentr-role={name}" in started.stdout, started.stderr
    build = services["head"]["build"]
    assert (DOCKER / build["context"] / build["dockerfile"]).is_file()


def test_grafana_is_given_prometheus_and_the_dashboard() -> None:
    services = compose()["services"]
    provided = DOCKER / "grafana/provisioning"
    (source,) = yaml.safe_load((provided / "datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090" and source["type"] == "prometheus"
    (dashboards,) = yaml.safe_load((provided / "dashboards/agentr.yml").read_text())["providers"]
    mounted = {volume["target"]: volume["source"] for volume in services["grafana"]["volumes"]}
    assert mounted[f"{dashboards['options']['path']}/agentr.json"] == "./grafana/agentr.json"
    assert mounted["/etc/grafana/provisioning"] == "./grafana/provisioning"
    rules = {volume["target"] for volume in services["prometheus"]["volumes"] if isinstance(volume, dict)}
    assert rules == {"/etc/prometheus/prometheus.yml", "/etc/prometheus/alerts.yml"}
    assert yaml.safe_load((DOCKER / "prometheus/prometheus.yml").read_text())["rule_files"] == ["alerts.yml"]
