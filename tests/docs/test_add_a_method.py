"""The methods on the page `docs/add_a_method.md` work as they stand there: alone, each in a file beside its
configuration."""

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import ray.cloudpickle

import agentr
from agentr.cluster.connect import send_by_value
from agentr.collect.job import TreeJob
from agentr.errors import ConfigError
from agentr.methods import find_method, load, method_of
from agentr.rewards.group import group_of
from agentr.rows.advantages import advantages
from agentr.search.written import tree_of
from agentr.store.dataset import read_manifest, read_rows
from agentr.types import Loss

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "add_a_method.md"

#: A comparison of a minute or two.
SMALL = [
    *("--set", "warm_start.tasks=[{split: train, where: {depth: 1}, limit: 64}]", "--set", "warm_start.train.steps=60"),
    *("--set", "train=[{steps: 2, batch_size: 4, micro_batch_size: 4, max_length: 768}]"),
    *("--set", "collect.tasks={split: train, where: {depth: 1}, limit: 16}", "--set", "build.train_on_invalid=true"),
    *("--set", "eval.tasks={split: test, where: {depth: 1}, limit: 6}"),
]


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The first configuration of the page, beside the methods and the other configuration of the page."""
    files = re.findall(
        r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert {name for name, _ in files} == {"best_of_n.py", "best_of_n.yaml", "rloo.py", "rloo.yaml"}
    for name, text in files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / "best_of_n.yaml"


def test_the_example_is_a_method_like_any_other(example: Path) -> None:
    config = load(example)
    method = method_of(config.method)
    assert (method.name, method.loss, method.config.n) == ("best_of_n", Loss.IMITATE, 6)
    assert "sample" in method.describe()
    with pytest.raises(ConfigError, match=r"unknown key 'method\.nn'\. Did you mean 'method\.n'"):
        load(example, ["method.nn=3"])
    with pytest.raises(ConfigError, match=r"method\.n: 1 is refused"):
        load(example, ["method.n=1"])


def test_the_online_example_compares_as_its_paper_does(example: Path) -> None:
    method = method_of(load(example.with_name("rloo.yaml")).method)
    assert (method.name, method.loss, method.online) == ("rloo", Loss.REINFORCE, True)
    door = tree_of(["open: 1.0", "wait: 0.0", "look: 0.0", "leave: 0.5"])
    episodes = group_of(door).episodes
    found = advantages(
        episodes, [episode.earned for episode in episodes], method.config.advantages, method.config.trees
    )
    assert sorted(turns[0] for turns in found) == pytest.approx([0 - 1.5 / 3, 0 - 1.5 / 3, 0.5 - 1 / 3, 1 - 0.5 / 3])


def test_its_work_travels_to_processes_that_cannot_import_it(example: Path) -> None:
    """A strategy or a work of the user's own stands in a file that no other process has on its path."""
    source = example.with_name("own.py")
    source.write_text(example.with_name("best_of_n.py").read_text() + "\n\nclass Own(Sample):\n    kind = 'own'\n")
    own = sys.modules[find_method(str(source)).__module__].Own
    job = TreeJob(
        folder=example.parent,
        tasks=(),
        seed=0,
        policy="",
        work=method_of(load(example).method).exploration(1)["collect"],
    )
    send_by_value()
    sent = ray.cloudpickle.dumps((job, own(3)))
    code = (
        "import pickle, sys; job, own = pickle.loads(sys.stdin.buffer.read()); print(own.kind, own.episodes, "
        "job.work.strategy.episodes)"
    )
    answer = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=False, cwd=ROOT)
    assert answer.stdout.decode().split() == ["own", "3", "6"], answer.stderr.decode()
    assert pickle.loads(sent)[0] == job


def test_a_file_without_a_method_is_named(tmp_path: Path) -> None:
    (tmp_path / "none.py").write_text("x = 1\n")
    (tmp_path / "broken.py").write_text("import nowhere_at_all\n")
    for name, message in (("none", "says no METHOD"), ("broken", "cannot be loaded: ModuleNotFoundError")):
        (tmp_path / f"{name}.yaml").write_text(f"method: {{type: {name}.py}}\n")
        with pytest.raises(ConfigError, match=message):
            load(tmp_path / f"{name}.yaml")


@pytest.mark.cluster
@pytest.mark.by_hand
@pytest.mark.timeout(900)
def test_it_is_compared_with_a_method_that_ships(example: Path, tmp_path: Path) -> None:
    arguments = [
        "configs/compare/sft.yaml",
        str(example),
        "--base",
        "configs/compare/tasks/textcraft.yaml",
        "--out",
        str(tmp_path / "out"),
    ]
    command = [sys.executable, "-m", "agentr.cli", "compare", *arguments, *SMALL]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=840)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    result = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert sorted(result["points"]) == ["best_of_n", "sft"]
    assert [len(points) for points in result["points"].values()] == [2, 2], "a warm start and a round each"
    dataset = tmp_path / "out/best_of_n/seed-0/rounds/01/dataset"
    kinds = read_manifest(dataset)["kinds"]
    assert kinds["consistent"] > 0
    assert {row.provenance.kind for row in read_rows(dataset)} == set(kinds)


@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_the_online_example_trains(example: Path, tmp_path: Path) -> None:
    text = example.with_name("rloo.yaml").read_text()
    example.with_name("rloo.yaml").write_text(f"include: [{ROOT / 'configs/compare/tasks/textcraft.yaml'}]\n{text}")
    small = [word for word in SMALL if word != "--set" and not word.startswith(("train=", "build."))]
    command = [
        sys.executable,
        "-m",
        "agentr.cli",
        "run",
        str(example.with_name("rloo.yaml")),
        f"run.dir={tmp_path / 'run'}",
        *small,
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=840)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    trained = agentr.open(tmp_path / "run").rounds[1].train
    assert trained.summary.steps == 2
