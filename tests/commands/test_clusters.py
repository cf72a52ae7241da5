"""The launch files of ``ray_jobs``: all of them are checked, and each check finds what it is there for.
Nothing of a cluster is started."""

import copy
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.commands.ray_up import check_cluster

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "ray_jobs"
RAY_UP = sorted((JOBS / "clusters").glob("*.yaml"))
KUBERAY = [JOBS / "kuberay" / "rayjob.yaml", JOBS / "kuberay" / "raycluster.yaml"]
KUBERNETES = [JOBS / "kuberay" / "storage.yaml", JOBS / "kuberay" / "token.yaml"]
SBATCH = JOBS / "slurm" / "agentr.sbatch"
SKYPILOT = JOBS / "skypilot.yaml"
LAUNCH = [*RAY_UP, *KUBERAY, *KUBERNETES, SBATCH, SKYPILOT]

#: What ShellCheck says and need not: variables that may hold spaces, which addresses do not; a tilde that ray up
#: replaces itself; a word that is a command too; a path that is the same now and later; text in single quotes that is
#: meant for another shell.
NOT_WRONG = "SC2016,SC2064,SC2086,SC2088,SC2209"

#: What may follow ``python -m``, and the sets of values that a cluster may be given.
MODULES = ("ray_jobs.experiment", "ray_jobs.smoke")
OVERLAYS = ("local", "gpu_node", "gpu_cluster", "cpu_cluster")
ROLES = {"head", "env", "rollout", "train"}

Edit = Callable[[dict[str, Any]], object]


def test_every_launch_file_is_checked() -> None:
    files = {path for path in JOBS.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert files == {*LAUNCH, JOBS / "README.md"}


# ray up


@pytest.mark.parametrize("path", RAY_UP, ids=lambda path: path.stem)
def test_a_ray_up_file_is_right(path: Path) -> None:
    assert check_cluster(path) == []


def _type(name: str, **keys: Any) -> Edit:
    return lambda config: config["available_node_types"][name].update(keys)


def _label(name: str, **labels: str) -> Edit:
    return lambda config: config["available_node_types"][name]["labels"].update(
        {key.replace("__", "/"): v for key, v in labels.items()}
    )


def _replace(where: str, old: str, new: str) -> Edit:
    """Changes text in a list of strings, or in a text."""

    def edit(config: dict[str, Any]) -> None:
        *path, last = where.split(".")
        for key in path:
            config = config[key]
        before = config[last]
        config[last] = (
            [part.replace(old, new) for part in before] if isinstance(before, list) else before.replace(old, new)
        )
        assert config[last] != before

    return edit


def _without_train(config: dict[str, Any]) -> None:
    del config["available_node_types"]["train"]


BROKEN_RAY_UP: list[tuple[str, str, Edit, list[str]]] = [
    ("aws", "unknown key", lambda c: c.update(max_worker=3), ["Ray refuses.*max_worker"]),
    (
        "aws",
        "unknown key of a type",
        _type("env", min_worker=1),
        ["Ray refuses it: available_node_types.env.*min_worker"],
    ),
    (
        "aws",
        "wrong type",
        _type("env", min_workers="one"),
        ["available_node_types.env.min_workers: 'one' is not of type 'integer'"],
    ),
    ("aws", "no such head", lambda c: c.update(head_node_type="first"), ["Ray refuses.*head_node_type"]),
    ("aws", "no provider", lambda c: c.pop("provider"), ["Ray refuses.*'provider' is missing"]),
    ("aws", "unknown provider", lambda c: c["provider"].update(type="cloud"), ["Ray refuses.*Unsupported"]),
    (
        "aws",
        "image without a container's name",
        lambda c: c["docker"].pop("container_name"),
        ["Ray refuses.*container"],
    ),
    (
        "aws",
        "more at least than at most",
        _type("env", min_workers=5),
        ["env: min_workers 5 is more than max_workers 4"],
    ),
    ("aws", "whole too low", lambda c: c.update(max_workers=9), ["max_workers of the whole is 9, less than the 13"]),
    (
        "aws",
        "no such role",
        _label("rollout", **{"agentr-role": "rolout"}),
        ["rollout: its label.*'rolout'", "the role rollout"],
    ),
    ("aws", "no labels", _type("env", labels={}), ["env: its label agentr-role is None", "the role env"]),
    ("aws", "misspelt label", _label("env", agentr_role="env"), ["no label agentr_role"]),
    ("aws", "a role is missing", _without_train, ["the role train"]),
    ("aws", "a role that never comes", _type("train", max_workers=0), ["the role train"]),
    (
        "aws",
        "two heads",
        _label("env", **{"agentr-role": "head"}),
        ["env: the role head is the head's", "the role env"],
    ),
    ("aws", "the head works", _type("head", resources={"CPU": 4}), ["head needs resources {CPU: 0}"]),
    ("aws", "the head works, unsaid", _type("head", resources={}), ["head needs resources {CPU: 0}"]),
    (
        "aws",
        "spot without a label",
        lambda c: c["available_node_types"]["rollout"]["labels"].pop("ray.io/market-type"),
        ["are spot, its"],
    ),
    ("aws", "no such market", _label("env", ray__io="x", **{"ray.io/market-type": "cheap"}), ["'cheap'"]),
    (
        "gcp",
        "a label of spot without spot",
        _label("train", **{"ray.io/market-type": "spot"}),
        ["train: its machines are on-demand"],
    ),
    (
        "gcp",
        "the older word for spot",
        lambda c: c["available_node_types"]["train"]["node_config"].update(scheduling=[{"preemptible": True}]),
        ["train: its machines are spot"],
    ),
    (
        "gcp",
        "no token",
        lambda c: c.update(file_mounts={}),
        ["brings no token to /run/secrets/ray_token, where head", "where worker"],
    ),
    (
        "gcp",
        "token elsewhere",
        lambda c: c.update(file_mounts={"~/.ray/auth_token": "x"}),
        ["where head nodes", "where worker nodes"],
    ),
    (
        "gcp",
        "without authentication",
        _replace("docker.run_options", "=token", "=disabled"),
        ["head_start.*=token", "worker_start.*=token"],
    ),
    (
        "gcp",
        "a token in the file",
        _replace("docker.run_options", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN=0123 RAY_AUTH_MODE"),
        ["holds a token"],
    ),
    (
        "gcp",
        "no such option",
        _replace("worker_start_ray_commands", "--address", "--adress"),
        ["worker_start.*No such option '--adress'"],
    ),
    (
        "gcp",
        "Ray is not started",
        lambda c: c.update(head_start_ray_commands=["ray stop"]),
        ["head_start_ray_commands: there is no"],
    ),
    ("own_machines", "no machines", lambda c: c["provider"].pop("worker_ips"), ["Ray refuses.*worker_ips"]),
    (
        "own_machines",
        "a machine without a role",
        lambda c: c["provider"]["worker_ips"].append("10.0.0.1"),
        ["machine 10.0.0.1 of"],
    ),
    (
        "own_machines",
        "no such role",
        _replace("worker_start_ray_commands", "role=train", "role=trainer"),
        ["'trainer'", "the role train"],
    ),
    (
        "own_machines",
        "the head works",
        _replace("head_start_ray_commands", " --num-cpus=0", ""),
        ["the head needs --num-cpus=0"],
    ),
    (
        "own_machines",
        "the head has no label",
        _replace("head_start_ray_commands", "=agentr-role=head", "=a=b"),
        ["agentr-role=head"],
    ),
    ("own_machines", "no token", lambda c: c.pop("file_mounts"), ["~/.ray/auth_token, where head", "where worker"]),
]


@pytest.mark.parametrize(
    ("name", "edit", "wanted"),
    [(n, e, w) for n, _, e, w in BROKEN_RAY_UP],
    ids=[f"{n}: {i}" for n, i, *_ in BROKEN_RAY_UP],
)
def test_what_is_wrong_with_a_ray_up_file_is_said(name: str, edit: Edit, wanted: list[str], tmp_path: Path) -> None:
    config = yaml.safe_load((JOBS / "clusters" / f"{name}.yaml").read_text())
    edit(config)
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(config))
    _found(check_cluster(path), wanted)


def _found(problems: Sequence[str], wanted: Sequence[str]) -> None:
    """Each problem is one that is wanted, and the other way round."""
    assert len(problems) == len(wanted), problems
    for expression in wanted:
        assert any(re.search(expression, problem) for problem in problems), (expression, problems)


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "\ufffe"])
def test_a_file_that_is_no_cluster_is_said_to_be_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text, encoding="utf-16" if text == "\ufffe" else "utf-8")
    assert len(check_cluster(path)) == 1
    assert len(check_cluster(tmp_path / "none.yaml")) == 1


@pytest.mark.parametrize("path", RAY_UP, ids=lambda path: path.stem)
def test_commands_of_ray_up_files_are_correct_shell(path: Path) -> None:
    config = yaml.safe_load(path.read_text())
    for key, commands in config.items():
        if key.endswith("_commands"):
            for command in commands:
                # As ray up runs them: one after another in brackets, with the head's address.
                assert shell_problems(f'export RAY_HEAD_IP=10.0.0.1; (:; {command})\necho "$?"') == [], key


# Shell


def shell_problems(script: str) -> list[str]:
    """What Bash and ShellCheck say against a script."""
    parsed = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    if parsed.returncode:
        return parsed.stderr.splitlines()
    shellcheck = Path(sys.executable).with_name("shellcheck")
    checked = subprocess.run(
        [shellcheck, "--shell=bash", f"--exclude={NOT_WRONG}", "--format=json", "-"],
        input=script,
        text=True,
        capture_output=True,
        check=False,
    )
    return [f"SC{found['code']}: {found['message']}" for found in json.loads(checked.stdout)]


# KubeRay


def strict(schema: Any) -> Any:
    """The schema, with every key forbidden that it does not know. (Kubernetes drops those without a word.)"""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(part) for key, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        closed.setdefault("additionalProperties", False)
    return closed


@pytest.fixture(scope="module")
def schemas(shared_data: Path) -> dict[str, Any]:
    """KubeRay's schemas of version v1, by kind."""
    found = [
        json.loads((shared_data / "kuberay" / f"{name}.v1.json").read_text()) for name in ("rayjobs", "rayclusters")
    ]
    return {each["kind"]: strict(each["schema"]) for each in found}


def kuberay_problems(manifest: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """What speaks against a manifest: the schema, the operator's rules as far as they concern these files, and what a
    run needs."""
    errors = jsonschema.Draft202012Validator(schemas[manifest["kind"]]).iter_errors(manifest)
    if problems := [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]:
        return problems
    spec = manifest["spec"]
    cluster = spec["rayClusterSpec"] if manifest["kind"] == "RayJob" else spec
    if manifest["kind"] == "RayJob":
        problems += _job_problems(spec, autoscaling=cluster.get("enableInTreeAutoscaling", False))
    return [*problems, *_cluster_problems(cluster)]


def _job_problems(job: dict[str, Any], autoscaling: bool) -> Iterator[str]:
    if job.get("backoffLimit", 0) < 1:
        yield "a run whose head is lost is not continued: backoffLimit"
    if "activeDeadlineSeconds" not in job:
        yield "a job that lost its head may seem to run for ever: activeDeadlineSeconds"
    strategy = job.get("deletionStrategy", {})
    rules = strategy.get("deletionRules")
    if rules is None:
        yield "nothing deletes the cluster: deletionRules"
        return
    if strategy.keys() & {"onSuccess", "onFailure"}:
        yield "deletionRules beside onSuccess or onFailure"
    if job.get("shutdownAfterJobFinishes"):
        yield "deletionRules beside shutdownAfterJobFinishes"
    order = ["DeleteWorkers", "DeleteCluster", "DeleteSelf"]
    seen: dict[str, dict[str, int]] = {}
    for rule in rules:
        condition, policy = rule["condition"], rule["policy"]
        if len(condition.keys() & {"jobStatus", "jobDeploymentStatus"}) != 1:
            yield f"{policy}: jobStatus or jobDeploymentStatus, one of both"
            continue
        if policy == "DeleteWorkers" and autoscaling:
            yield "DeleteWorkers does not go with autoscaling"
        ttl = seen.setdefault(str(condition.get("jobStatus")), {})
        if policy in ttl:
            yield f"{policy} twice for one status"
        ttl[policy] = condition.get("ttlSeconds", 0)
    for ttl in seen.values():
        times = [ttl[policy] for policy in order if policy in ttl]
        if times != sorted(times):
            yield "the cluster must be deleted before the job"


def _cluster_problems(cluster: dict[str, Any]) -> Iterator[str]:
    head, groups = cluster["headGroupSpec"], cluster.get("workerGroupSpecs", [])
    if cluster.get("authOptions", {}).get("mode") != "token" or not cluster["authOptions"].get("secretName"):
        yield "no token: authOptions"
    elif tuple(map(int, cluster.get("rayVersion", "0.0").split(".")[:2])) < (2, 52):
        yield "a token needs rayVersion 2.52 or later"
    if cluster.get("autoscalerOptions", {}).get("version") != "v2":
        yield "only version v2 of the autoscaler knows labels"
    if head.get("rayStartParams", {}).get("num-cpus") != "0":
        yield "the head works: num-cpus"
    found = {
        head.get("labels", {}).get("agentr-role"),
        *(group.get("labels", {}).get("agentr-role") for group in groups),
    }
    if found != ROLES:
        yield f"roles are {found}"
    for group in [head, *groups]:
        name = group.get("groupName", "head")
        pod = group["template"]["spec"]
        if "labels" in group.get("rayStartParams", {}):
            yield f"{name}: labels in rayStartParams"
        if group.get("minReplicas", 0) > group.get("maxReplicas", 0):
            yield f"{name}: minReplicas is more than maxReplicas"
        if pod.get("restartPolicy", "Never") != "Never":
            yield f"{name}: restartPolicy does not go with version v2 of the autoscaler"
        spot = group.get("labels", {}).get("ray.io/market-type") == "spot"
        if spot != ("cloud.google.com/gke-spot" in pod.get("nodeSelector", {})):
            yield f"{name}: its label and its nodeSelector disagree on spot"
        yield from (f"{name}: {problem}" for problem in _pod_problems(pod))


def _pod_problems(pod: dict[str, Any]) -> Iterator[str]:
    user = pod.get("securityContext", {})
    if not user.get("runAsNonRoot") or user.get("runAsUser") != 10001:
        yield "it does not run as user 10001"
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    (container,) = pod["containers"]
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container.get("volumeMounts", [])}
    if "persistentVolumeClaim" not in mounts.get("/shared", {}):
        yield "it has no /shared"
    if mounts.get("/dev/shm", {}).get("emptyDir", {}).get("medium") != "Memory":
        yield "it has no memory at /dev/shm"
    resources = container.get("resources", {})
    if "memory" not in resources.get("limits", {}) or "cpu" not in resources.get("requests", {}):
        yield "it says no resources"


@pytest.mark.parametrize("path", KUBERAY, ids=lambda path: path.stem)
def test_a_kuberay_file_is_right(path: Path, schemas: dict[str, Any]) -> None:
    assert kuberay_problems(yaml.safe_load(path.read_text()), schemas) == []


def test_the_job_has_the_same_cluster() -> None:
    job, cluster = (yaml.safe_load(path.read_text())["spec"] for path in KUBERAY)
    assert job["rayClusterSpec"] == cluster


def _rules(*rules: dict[str, Any]) -> Edit:
    return lambda job: job["spec"]["deletionStrategy"].update(deletionRules=list(rules))


def _head(job: dict[str, Any]) -> dict[str, Any]:
    return job["spec"]["rayClusterSpec"]["headGroupSpec"]


def _group(job: dict[str, Any], number: int = 1) -> dict[str, Any]:
    return job["spec"]["rayClusterSpec"]["workerGroupSpecs"][number]


def _after(status: str, seconds: int) -> dict[str, Any]:
    return {"jobStatus": status, "ttlSeconds": seconds}


BROKEN_JOBS: list[tuple[str, Edit, str]] = [
    ("unknown key", lambda j: j["spec"].update(backofLimit=1), "'backofLimit' was unexpected"),
    (
        "unknown key of a container",
        lambda j: _group(j)["template"]["spec"]["containers"][0].update(img="x"),
        "'img' was unexpected",
    ),
    ("wrong type", lambda j: j["spec"].update(backoffLimit="5"), "backoffLimit: '5' is not of type 'integer'"),
    ("missing key", lambda j: _group(j).pop("groupName"), "'groupName' is a required property"),
    ("no such policy", _rules({"policy": "DeleteAll", "condition": _after("FAILED", 1)}), "'DeleteAll' is not one of"),
    (
        "no such mode",
        lambda j: j["spec"]["rayClusterSpec"]["authOptions"].update(mode="password"),
        "'password' is not one of",
    ),
    (
        "two ways of deletion",
        lambda j: j["spec"]["deletionStrategy"].update(onSuccess={"policy": "DeleteNone"}),
        "beside onSuccess",
    ),
    (
        "two times of deletion",
        lambda j: j["spec"].update(shutdownAfterJobFinishes=True),
        "beside shutdownAfterJobFinishes",
    ),
    ("nothing is deleted", lambda j: j["spec"].pop("deletionStrategy"), "nothing deletes the cluster"),
    ("deletion without a condition", _rules({"policy": "DeleteSelf", "condition": {"ttlSeconds": 1}}), "one of both"),
    (
        "workers and autoscaling",
        _rules({"policy": "DeleteWorkers", "condition": _after("FAILED", 1)}),
        "does not go with autoscaling",
    ),
    ("deletion twice", _rules(*[{"policy": "DeleteSelf", "condition": _after("FAILED", 1)}] * 2), "DeleteSelf twice"),
    (
        "the job before its cluster",
        _rules(
            {"policy": "DeleteSelf", "condition": _after("FAILED", 1)},
            {"policy": "DeleteCluster", "condition": _after("FAILED", 2)},
        ),
        "before the job",
    ),
    ("not continued", lambda j: j["spec"].pop("backoffLimit"), "not continued"),
    ("no deadline", lambda j: j["spec"].pop("activeDeadlineSeconds"), "for ever"),
    ("no token", lambda j: j["spec"]["rayClusterSpec"].pop("authOptions"), "no token"),
    ("a Ray without tokens", lambda j: j["spec"]["rayClusterSpec"].update(rayVersion="2.9.0"), "2.52 or later"),
    (
        "a scaler without labels",
        lambda j: j["spec"]["rayClusterSpec"]["autoscalerOptions"].pop("version"),
        "knows labels",
    ),
    ("the head works", lambda j: _head(j)["rayStartParams"].update({"num-cpus": "4"}), "the head works"),
    ("no such role", lambda j: _group(j)["labels"].update({"agentr-role": "rolout"}), "roles are .*rolout"),
    ("a role is missing", lambda j: j["spec"]["rayClusterSpec"]["workerGroupSpecs"].pop(), "roles are"),
    (
        "labels at the wrong place",
        lambda j: _group(j)["rayStartParams"].update(labels="a=b"),
        "labels in rayStartParams",
    ),
    ("more at least than at most", lambda j: _group(j).update(minReplicas=9), "rollout: minReplicas"),
    ("restarted pods", lambda j: _group(j)["template"]["spec"].update(restartPolicy="Always"), "restartPolicy"),
    ("spot that does not say so", lambda j: _group(j)["labels"].pop("ray.io/market-type"), "disagree on spot"),
    ("as root", lambda j: _head(j)["template"]["spec"].pop("securityContext"), "head: it does not run as user 10001"),
    (
        "without storage",
        lambda j: _group(j)["template"]["spec"]["containers"][0]["volumeMounts"].pop(0),
        "it has no /shared",
    ),
    ("without shared memory", lambda j: _group(j)["template"]["spec"]["volumes"][1].update(emptyDir={}), "/dev/shm"),
    ("without resources", lambda j: _group(j)["template"]["spec"]["containers"][0].pop("resources"), "no resources"),
]


@pytest.mark.parametrize(("edit", "wanted"), [case[1:] for case in BROKEN_JOBS], ids=[case[0] for case in BROKEN_JOBS])
def test_what_is_wrong_with_a_kuberay_file_is_found(edit: Edit, wanted: str, schemas: dict[str, Any]) -> None:
    job = json.loads(json.dumps(yaml.safe_load(KUBERAY[0].read_text())))  # no parts in common
    edit(job)
    _found(kuberay_problems(job, schemas), [wanted])


def kubernetes_problems(manifest: dict[str, Any]) -> list[str]:
    """What speaks against the volume claim or the secret."""
    try:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return [error.message]
    problems = []
    if manifest["kind"] == "PersistentVolumeClaim" and manifest["spec"]["accessModes"] != ["ReadWriteMany"]:
        problems.append("only one node may write")
    if manifest["kind"] == "Secret" and manifest.get("stringData") != {"auth_token": "TOKEN"}:
        problems.append("a token in the repository, or under another name than KubeRay's")
    return problems


def test_storage_and_token_are_right_and_are_the_clusters() -> None:
    claim, secret = (yaml.safe_load(path.read_text()) for path in KUBERNETES)
    assert kubernetes_problems(claim) == kubernetes_problems(secret) == []
    cluster = yaml.safe_load(KUBERAY[1].read_text())["spec"]
    assert cluster["authOptions"]["secretName"] == secret["metadata"]["name"]
    claims = re.findall(r"claimName: ([\w-]+)", "".join(path.read_text() for path in KUBERAY))
    assert set(claims) == {claim["metadata"]["name"]}


@pytest.mark.parametrize(
    ("number", "edit", "wanted"),
    [
        (0, lambda claim: claim["spec"].update(storageClass="x"), "'storageClass' was unexpected"),
        (0, lambda claim: claim["spec"].update(accessModes="ReadWriteMany"), "is not of type 'array'"),
        (0, lambda claim: claim["spec"].update(accessModes=["ReadWriteOnce"]), "only one node"),
        (0, lambda claim: claim["spec"]["resources"].update(request={"storage": "1Ti"}), "'request' was unexpected"),
        (1, lambda secret: secret.update(stringdata={}), "'stringdata' was unexpected"),
        (1, lambda secret: secret["stringData"].update(auth_token=5), "5 is not of type"),
        (1, lambda secret: secret["stringData"].update(auth_token="0123456789abcdef"), "a token in the repository"),
        (1, lambda secret: secret.update(stringData={"token": "TOKEN"}), "under another name"),
    ],
)
def test_what_is_wrong_with_storage_or_token_is_found(number: int, edit: Edit, wanted: str) -> None:
    manifest = yaml.safe_load(KUBERNETES[number].read_text())
    edit(manifest)
    _found(kubernetes_problems(manifest), [wanted])


# SLURM


def sbatch_problems(text: str) -> list[str]:
    """What speaks against the batch script: Bash and ShellCheck, in what it runs on the nodes too, and what makes a run
    outlive a limit."""
    if problems := shell_problems(text):
        return problems
    on_node = re.search(r"^on_node='\n(.*?)^'$", text, re.DOTALL | re.MULTILINE)
    assert on_node
    problems = [f"on_node: {problem}" for problem in shell_problems(on_node[1])]
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    options = [line.split()[1] for line in lines[:first] if line.startswith("#SBATCH")]
    problems += [f"{wanted} is missing" for wanted in ("--requeue", "--open-mode=append") if wanted not in options]
    warning = next((int(option.rpartition("@")[2]) for option in options if option.startswith("--signal=B:USR1@")), 0)
    stop = re.search(r"^STOP_S=\$\{STOP_S:-(\d+)\}$", text, re.MULTILINE)
    if not stop or int(stop[1]) + 30 > warning:
        problems.append(f"the run and the cluster have {warning} s to stop")
    if re.search(r"^[^#\n]*\bray[\"']? stop\b", text.replace("`ray stop`", ""), re.MULTILINE):
        problems.append("ray stop ends the user's other jobs on the node")
    return problems


def test_the_batch_script_is_right() -> None:
    assert sbatch_problems(SBATCH.read_text()) == []


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("run='' head=", "if run='' head=", "syntax error"),
        ('[ -n "$ADDRESS" ] ||', "[ -n $ADRESS ] ||", "SC2070|SC2154"),
        ('rm -f "$RAY_AUTH_TOKEN_PATH"', 'rm -f "$RAY_AUTH_TOKEN_PATH" | cd /tmp', "SC2216"),
        ("  kind=$1 ray", "  for x in $(ls); do echo $x; done\n  kind=$1 ray", "on_node: SC2045"),
        ("    sleep 5\n  done\n'", "    sleep 5\n'", "on_node: .*syntax error"),
        ("#SBATCH --requeue\n", "", "--requeue is missing"),
        ("#SBATCH --open-mode=append\n", "#SBATCH --open-mode=truncate\n", "--open-mode=append is missing"),
        ("USR1@120", "USR1@60", "have 60 s to stop"),
        ("--signal=B:USR1@120", "--signal=USR1@120", "have 0 s to stop"),
        ("#SBATCH --job-name=agentr\n", "set -e\n#SBATCH --job-name=agentr\n", "--requeue is missing"),
        ("  scancel --signal=TERM", '  "$VENV/bin/ray" stop || scancel --signal=TERM', "ray stop ends"),
    ],
)
def test_what_is_wrong_with_a_batch_script_is_found(old: str, new: str, wanted: str) -> None:
    text = SBATCH.read_text()
    assert old in text
    problems = sbatch_problems(text.replace(old, new, 1))
    assert any(re.search(wanted, problem) for problem in problems), problems


#: Stand-ins for SLURM and for Ray: tasks of srun are processes here, a head listens on its port, and a run is a few
#: lines of shell.
STUBS = {
    "bin/scontrol": 'if [ "$1" = show ]; then tr , "\\n" <<< "$3"; else echo "$*" >> "$STUBS/scontrol"; fi',
    "bin/scancel": 'echo "$*" >> "$STUBS/scancel"; xargs -r kill < "$STUBS/tasks" 2> /dev/null || true',
    "bin/srun": """
while [[ $1 == --* ]]; do case $1 in --nodelist=*) nodes=${1#*=} ;; esac; shift; done
for node in ${nodes//,/ }; do SLURMD_NODENAME=$node SLURM_CPUS_ON_NODE=8 "$@" & echo $! >> "$STUBS/tasks"; done
wait""",
    "venv/bin/ray": """
echo "$SLURMD_NODENAME $*" >> "$STUBS/ray"
case "$*" in *"--head "*) [ -z "${HEAD_DIES:-}" ] || exit 1 ;; esac
exec PYTHON -c '
import re, signal, socket, sys
port = re.search("--head.* --port=([0-9]+)", " ".join(sys.argv))
if port:
    listening = socket.create_server(("127.0.0.1", int(port[1])))
signal.pause()' "$@" """,
    "venv/bin/python": """
[ "$1" = -m ] || exec echo "${THERE:-$(wc -l < "$STUBS/ray")}"
echo "$*" >> "$STUBS/run"
stat -c %a "$RAY_AUTH_TOKEN_PATH" >> "$STUBS/run"
eval "$RUN" """,
}


class Slurm:
    """Runs the batch script on the stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shared").mkdir()
        for name, script in STUBS.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/usr/bin/env bash\n{script}\n".replace("PYTHON", sys.executable))
            path.chmod(0o755)

    def start(self, nodes: str = "n1,n2,n3", *arguments: str, **environment: str) -> subprocess.Popen[str]:
        given = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "STUBS": str(self.folder),
            "VENV": str(self.folder / "venv"),
            "RUN_DIR": str(self.folder / "shared" / "run"),
            "ADDRESS": "127.0.0.1",
            "SLURM_JOB_ID": str(os.getpid()),
            "SLURM_JOB_NODELIST": nodes,
            "RUN": "exit 0",
            **environment,
        }
        with (self.folder / "log").open("w") as log:
            return subprocess.Popen(
                ["bash", SBATCH, *arguments],
                cwd=ROOT,
                env=given,
                text=True,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def ends(self, job: subprocess.Popen[str]) -> int:
        try:
            return job.wait(timeout=60)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def wait_for(self, name: str) -> None:
        deadline = time.monotonic() + 30
        while not self.lines(name):
            assert time.monotonic() < deadline, self.lines("log")
            time.sleep(0.05)


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    return Slurm(tmp_path)


def test_a_job_on_nodes_with_roles_ends_with_its_run_and_leaves_nothing(slurm: Slurm) -> None:
    job = slurm.start("c1,c2,g1,g2,x1", "run.seed=1", ROLES="1=env g*=rollout *=train", RUN="exit 3")
    assert slurm.ends(job) == 3
    assert slurm.lines("run") == [
        (
            f"-m ray_jobs.experiment --config configs/demo.yaml cluster=gpu_cluster run.dir={slurm.folder}/shared/run "
            "run.seed=1"
        ),
        "600",
    ]
    labels = {line.split()[0]: re.findall(r"--labels=agentr-role=(\w+)", line) for line in slurm.lines("ray")}
    assert labels == {"c1": ["head"], "c2": ["env"], "g1": ["rollout"], "g2": ["rollout"], "x1": ["train"]}
    (head,) = [line for line in slurm.lines("ray") if " --head " in line]
    assert "--num-cpus=0" in head
    assert all("--num-cpus=8" in line for line in slurm.lines("ray") if line != head)
    assert slurm.lines("scontrol") == []
    assert list((slurm.folder / "shared").iterdir()) == []
    assert not Path(f"/tmp/agentr-{os.getpid()}").exists()


def test_a_job_on_nodes_that_are_all_alike_has_no_labels(slurm: Slurm) -> None:
    assert slurm.ends(slurm.start("n1", JOB="smoke")) == 0
    assert slurm.lines("run")[0] == f"-m ray_jobs.smoke run.dir={slurm.folder}/shared/run"
    (head,) = slurm.lines("ray")
    assert "--num-cpus=8" in head
    assert "--labels" not in head


def test_near_the_time_limit_the_run_is_stopped_and_the_job_queued_again(slurm: Slurm) -> None:
    job = slurm.start(RUN='trap "exit 1" TERM; echo on >> "$STUBS/going"; sleep 60 & wait')
    slurm.wait_for("going")
    job.send_signal(signal.SIGUSR1)
    assert slurm.ends(job) == 0
    assert slurm.lines("scontrol") == [f"requeue {os.getpid()}"]
    assert list((slurm.folder / "shared").iterdir()) == []


def test_a_run_that_does_not_stop_is_killed(slurm: Slurm) -> None:
    job = slurm.start(RUN='trap "" TERM; echo on >> "$STUBS/going"; exec sleep 60', STOP_S="1")
    slurm.wait_for("going")
    job.send_signal(signal.SIGUSR1)
    assert slurm.ends(job) == 0
    assert slurm.lines("scontrol") == [f"requeue {os.getpid()}"]


def test_a_run_that_is_done_near_the_time_limit_is_not_queued_again(slurm: Slurm) -> None:
    job = slurm.start(RUN='trap "exit 0" TERM; echo on >> "$STUBS/going"; sleep 60 & wait')
    slurm.wait_for("going")
    job.send_signal(signal.SIGUSR1)
    assert slurm.ends(job) == 0
    assert slurm.lines("scontrol") == []


def test_a_time_limit_before_the_nodes_have_joined_queues_the_job_again(slurm: Slurm) -> None:
    job = slurm.start(THERE="1")
    slurm.wait_for("ray")
    job.send_signal(signal.SIGUSR1)
    assert slurm.ends(job) == 0
    assert slurm.lines("run") == []
    assert slurm.lines("scontrol") == [f"requeue {os.getpid()}"]


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"THERE": "2", "WAIT_S": "3"}, "2 of 3 nodes have joined"),
        ({"HEAD_DIES": "1"}, "the head ended"),
        ({"ROLES": "1=env"}, "ROLES gives n3 no role"),
        ({"ROLES": "*=environment"}, "environment is not WHICH=env"),
        ({"CONFIG": "configs/none.yaml"}, "there is no configs/none.yaml"),
        ({"RUN_DIR": "runs/x"}, "is no absolute path"),
        ({"VENV": "/none"}, "there is no /none/bin/ray"),
        ({"JOB": "training"}, "neither experiment nor smoke"),
    ],
    ids=lambda value: "" if isinstance(value, str) else ",".join(value),
)
def test_a_job_that_cannot_run_says_why_and_is_not_queued_again(
    slurm: Slurm, environment: dict[str, str], wanted: str
) -> None:
    job = slurm.start(**environment)
    assert slurm.ends(job) == 1
    assert wanted in "\n".join(slurm.lines("log"))
    assert slurm.lines("run") == slurm.lines("scontrol") == []


# SkyPilot

#: Its package would bring a hundred others; these are the keys of tasks and of their resources in version 0.14, without
#: its internal ones.
TASK_KEYS = set(
    "name workdir event_callback num_nodes resources file_mounts service pool setup run envs secrets managed_secrets "
    "inputs outputs file_mounts_mapping config volumes volume_mounts api_server_access".split()
)
RESOURCE_KEYS = set(
    "accelerator_args accelerators any_of autostop cloud cpus disk_size disk_tier ephemeral_storage image_id infra "
    "instance_type job_recovery labels local_disk max_hourly_cost memory network_tier ordered ports priority "
    "priority_class region use_spot volumes zone".split()
)


def skypilot_problems(task: dict[str, Any]) -> list[str]:
    """What speaks against the task."""
    problems = [f"unknown key {key}" for key in task.keys() - TASK_KEYS]
    problems += [f"unknown key resources.{key}" for key in task.get("resources", {}).keys() - RESOURCE_KEYS]
    for key, kind in {
        "num_nodes": int,
        "setup": str,
        "run": str,
        "volumes": dict,
        "envs": dict,
        "secrets": dict,
        "resources": dict,
    }.items():
        if not isinstance(task.get(key), kind):
            return [*problems, f"{key} is no {kind.__name__}"]
    problems += [f"envs.{name} is no text" for name, value in task["envs"].items() if not isinstance(value, str | None)]
    if task["secrets"] != {"RAY_AUTH_TOKEN": None}:
        problems.append("the token is not a secret, or it is in the file")
    if not isinstance(task["resources"].get("use_spot"), bool) or not task["resources"].get("job_recovery"):
        problems.append("machines that are taken away are not replaced")
    if "/shared" not in task["volumes"]:
        problems.append("the run is lost with its machines")
    for key in ("setup", "run"):
        problems += [f"{key}: {problem}" for problem in shell_problems(task[key])]
    if re.search(r"^[^#\n]*\bray stop\b", task["run"], re.MULTILINE):
        problems.append("ray stop ends SkyPilot's own Ray")
    if not re.search(r'\[ "\$SKYPILOT_NODE_RANK" -ne 0 \]', task["run"]) or "RAY_AUTH_MODE=token" not in task["run"]:
        problems.append("no machine is the head, or there is no token")
    return problems


def test_the_skypilot_file_is_right() -> None:
    assert skypilot_problems(yaml.safe_load(SKYPILOT.read_text())) == []


@pytest.mark.parametrize(
    ("edit", "wanted"),
    [
        (lambda t: t.update(nodes=2), "unknown key nodes"),
        (lambda t: t["resources"].update(spot=True), "unknown key resources.spot"),
        (lambda t: t.update(num_nodes="two"), "num_nodes is no int"),
        (lambda t: t["envs"].update(SEED=1), "envs.SEED is no text"),
        (lambda t: t["secrets"].update(RAY_AUTH_TOKEN="0123"), "it is in the file"),
        (lambda t: t["resources"].pop("job_recovery"), "not replaced"),
        (lambda t: t.update(volumes={}), "lost with its machines"),
        (_replace("run", "fi\n", "\n"), "run: .*syntax error"),
        (_replace("setup", '"$(id -un)"', "$(id -un)"), "setup: SC2046"),
        (_replace("run", "unset RAY_ADDRESS", "ray stop"), "SkyPilot's own Ray"),
        (_replace("run", "RAY_AUTH_MODE=token", "RAY_AUTH_MODE=disabled"), "there is no token"),
    ],
)
def test_what_is_wrong_with_a_skypilot_file_is_found(edit: Edit, wanted: str) -> None:
    task = copy.deepcopy(yaml.safe_load(SKYPILOT.read_text()))
    edit(task)
    problems = skypilot_problems(task)
    assert any(re.search(wanted, problem) for problem in problems), problems


# What the files say about themselves


def named_problems(text: str) -> list[str]:
    """Names of files, modules and values in a text that do not exist."""
    files = re.findall(r"\b(?:configs|ray_jobs|locks)/[\w./-]*\w", text)
    problems = [f"there is no {name}" for name in files if not (ROOT / name).exists()]
    modules = re.findall(r"-m (ray_jobs[\w.]*)", text)
    problems += [f"there is no module {name}" for name in modules if name not in MODULES]
    values = re.findall(r"\bcluster=(\w+)", text)
    return problems + [f"there is no cluster={name}" for name in values if name not in OVERLAYS]


@pytest.mark.parametrize("path", [*LAUNCH, JOBS / "README.md"], ids=lambda path: path.name)
def test_what_a_file_names_exists(path: Path) -> None:
    assert named_problems(path.read_text()) == []


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("configs/agent_r_llama3_8b.yaml", "configs/agent_r_llama4.yaml", "there is no configs/agent_r_llama4.yaml"),
        ("ray_jobs.experiment", "ray_jobs.experiments", "there is no module ray_jobs.experiments"),
        ("cluster=gpu_cluster", "cluster=gpus", "there is no cluster=gpus"),
        ("ray_jobs/kuberay/rayjob.yaml", "ray_jobs/rayjob.yaml", "there is no ray_jobs/rayjob.yaml"),
    ],
)
def test_what_a_file_names_and_does_not_exist_is_found(old: str, new: str, wanted: str) -> None:
    text = KUBERAY[0].read_text()
    assert old in text
    assert set(named_problems(text.replace(old, new))) == {wanted}


@pytest.mark.parametrize("path", LAUNCH, ids=lambda path: path.name)
def test_a_file_begins_with_its_commands(path: Path) -> None:
    header = re.match(r"(?:#.*\n)+", path.read_text())
    assert header
    commands = re.findall(r"^#   (\S.*)$", header[0], re.MULTILINE)
    known = r"^(?:export |\w+=\S+ )*(?:RAY_|ray |agentr |kubectl |sbatch |scancel |sky |[A-Z]+ {2,})"
    assert commands
    assert [command for command in commands if not re.match(known, command) and path != SBATCH] == []


@pytest.mark.parametrize(
    "path", [path for path in LAUNCH if "Change: " in path.read_text()], ids=lambda path: path.name
)
def test_what_is_to_be_changed_is_there(path: Path) -> None:
    text = path.read_text()
    header = re.match(r"(?:#.*\n)+", text)
    assert header
    change = header[0].split("Change: ")[1].split("\n#\n")[0]
    body = text[header.end() :]
    for word in set(re.findall(r"\b[A-Z][A-Z_]{3,}\b", change)) - {"NVIDIA", "FILE"}:
        assert re.search(rf"\b{word}\b", body), word


def test_links_of_the_page_lead_to_files() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", (JOBS / "README.md").read_text())
    assert links
    assert [link for link in links if not (JOBS / link).exists()] == []
