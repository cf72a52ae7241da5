"""Every file of a run in turn is flipped, cut or deleted: it is named, and what was made anew is what was there."""

import re
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import zstandard

import agentr
from agentr.commands.doctor import Remedy, examine, relocate, repair, stale_stages
from agentr.commands.pack import pack, unpack
from agentr.config.identity import Identity
from agentr.errors import AgentrError, ConfigError, DataError, RunError
from agentr.methods import load
from agentr.rounds.prune import prunable, prune
from agentr.search.stored import to_json
from agentr.store.files import write_json
from agentr.store.forest import Forest
from agentr.store.run import RunStore
from agentr.store.seal import SEAL, hash_folder, read_checked, write_checked
from agentr.store.summaries import EvalSummary, ModelSummary, TrainSummary
from agentr.types import Outcome
from tests.runs import TINY, dataset, round_of
from tests.tiny import IMITATE
from tests.trees import door, episode

TREES = [door(), *(episode(f"t{n}", ["open", "wait"], 0.0, Outcome.FAILURE, n) for n in range(3))]


def make(root: Path, method: Sequence[str] = TINY) -> None:
    """Makes a run, or what is missing in it, as a driver would."""
    round_ = round_of(root, method, collect=TREES, revise=[door()])
    store = round_.experiment.store

    def train(folder: Path) -> TrainSummary:
        store.stages.use("rounds/01/dataset")
        (folder / "model").mkdir(exist_ok=True)
        for name in ("model.safetensors", "config.json", "tokenizer.json"):
            (folder / "model" / name).write_bytes(
                f"{name} of {len(list(agentr.open(root).rounds[1].dataset.rows))} rows".encode() * 50
            )
        write_json(folder / "result.json", {"steps": 3})
        return TrainSummary(checkpoint="rounds/01/train/model", steps=3)

    def measure(folder: Path) -> EvalSummary:
        store.stages.use("rounds/01/train")
        write_json(folder / "evaluation.json", {"success": 0.5})
        return EvalSummary(success=0.5, tasks=4)

    try:
        dataset(round_)
        store.stages.run("rounds/01/train", TrainSummary, train)
        store.stages.run("rounds/01/eval", EvalSummary, measure)
    finally:
        store.close()


def contents(root: Path) -> dict[str, Any]:
    run = agentr.open(root)
    found: dict[str, Any] = {name: (record.content, record.state) for name, record in run.records().items()}
    found["trees"] = [to_json(tree) for name in ("collect", "revise") for tree in run.rounds[1][name]]
    found["rows"] = list(run.rounds[1].dataset.rows)
    found["weights"] = run.rounds[1].train.model.joinpath("model.safetensors").read_bytes()
    return found


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound") / "run"
    make(root)
    return root


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def delete(path: Path) -> None:
    path.unlink()


#: Files that nobody needs, or that are only written behind.
FREE = ("000001.json", "000002.json", "events.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip, cut, delete], ids=lambda damage: damage.__name__)
def test_every_file_in_turn(sound: Path, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    expected = contents(sound)
    files = [path.relative_to(sound) for path in sorted(sound.rglob("*")) if path.is_file() and path.name not in FREE]
    assert len(files) > 20
    for number, name in enumerate(files):
        root = Path(copytree(sound, tmp_path / str(number)))
        damage(root / name)
        found = list(examine(root))
        assert len(found) == 1 and name.name in " ".join(found[0].problems), f"{damage.__name__} {name}: {found}"
        assert found[0].remedy is not Remedy.NONE
        run = agentr.open(root)  # everything else is still readable
        for stage in run.stages().values():
            assert stage.name == found[0].stage or stage.verify() == []
        assert repair(root, found)
        make(root)
        assert list(examine(root)) == [] and list(stale_stages(root)) == [], name
        assert contents(root) == expected, f"{damage.__name__} {name}"


@pytest.mark.parametrize(
    "name", ["events.jsonl", "rounds/02/rollouts/steps.jsonl", "rounds/02/collect/work-000001.0001/failures.jsonl"]
)
@pytest.mark.parametrize(
    ("left", "said"),
    [(b'{"step": 2, "sa', "ends in half a line, of 15 bytes"), (b'{"step": 2, {"step": 3}\n', "is damaged")],
)
def test_files_that_grow_by_lines_are_looked_at_and_mended(
    sound: Path, tmp_path: Path, name: str, left: bytes, said: str
) -> None:
    root = Path(copytree(sound, tmp_path / "run"))
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = (path.read_bytes() if path.exists() else b"") + b'{"step": 1}\n'
    path.write_bytes(whole + left)
    (finding,) = examine(root)
    assert name in finding.problems[0] and said in finding.problems[0] and finding.remedy is Remedy.LINES
    (done,) = repair(root, [finding])
    assert name in done and path.read_bytes() == whole and list(examine(root)) == []
    assert whole + left in [kept.read_bytes() for kept in (root / "damaged").iterdir()]


def test_what_depends_on_damage_stops_with_the_command_that_mends_it(sound: Path, tmp_path: Path) -> None:
    root = Path(copytree(sound, tmp_path / "run"))
    flip(root / "rounds/01/dataset/rows.parquet")
    store = RunStore(root)
    store.open(Identity.of(load(None, TINY)))
    with pytest.raises(
        DataError,
        match=r"stage rounds/01/dataset of .* is damaged: .*rows\.parquet: has another hash.*doctor .*--repair",
    ):
        store.stages.run(
            "rounds/02/train", TrainSummary, lambda folder: store.stages.use("rounds/01/dataset") or TrainSummary()
        )
    store.close()
    (finding,) = examine(root)
    assert finding.depends == ("rounds/01/train", "rounds/01/eval")
    (done,) = repair(root, [finding])
    assert (root / "damaged").is_dir() and "set aside" in done


def test_a_damaged_part_costs_only_its_own_trees(tmp_path: Path) -> None:
    """Trees that can be read are kept; nothing is grown twice."""
    make(tmp_path / "run")
    flip(tmp_path / "run/rounds/01/collect/summary.parquet")
    (done,) = repair(tmp_path / "run", list(examine(tmp_path / "run")))
    assert "4 of its trees can be read and were kept" in done
    assert sorted(path.name for path in (Forest(tmp_path / "run/rounds/01/collect").work / "finished").iterdir()) == [
        f"{tree.task.key}.json.zst" for tree in sorted(TREES, key=lambda tree: tree.task.key)
    ]


def test_a_stage_whose_input_is_another_is_stale(sound: Path, tmp_path: Path) -> None:
    root = Path(copytree(sound, tmp_path / "run"))
    seal = read_checked(root / "rounds/01/dataset" / SEAL)
    write_checked(root / "rounds/01/dataset" / SEAL, {**seal, "content": "another"})
    (finding,) = stale_stages(root)
    assert (finding.stage, finding.problems) == (
        "rounds/01/train",
        ("rounds/01/dataset was made anew since, and is another",),
    )
    said: list[str] = []
    store = RunStore(root, said.append)
    store.open(Identity.of(load(None, TINY)))
    store.stages.run("rounds/01/train", TrainSummary, lambda folder: pytest.fail("it stays as it is"))
    store.stages.run("rounds/01/eval", EvalSummary, lambda folder: pytest.fail("it stays as it is"), {"episodes": 3})
    store.close()
    assert "round 1: train is stale: rounds/01/dataset was made anew" in said[0]
    assert "round 1: eval is stale: episodes: None -> 3. It stays as it is" in said[1]


def test_a_run_of_a_later_version_is_not_touched(sound: Path, tmp_path: Path) -> None:
    root = Path(copytree(sound, tmp_path / "run"))
    index = read_checked(root / "manifest.json")
    write_checked(root / "manifest.json", {**index, "format": 9, "agentr": "4.2"})
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    for use in (
        lambda: agentr.open(root).records(),
        lambda: RunStore(root).open(Identity.of(load(None, TINY))),
        lambda: list(examine(root)),
    ):
        with pytest.raises(DataError, match=r"format 9; this version of agentr reads format 3.*agentr 4\.2 or later"):
            use()
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_a_repair_waits_for_the_driver(sound: Path, tmp_path: Path) -> None:
    root = Path(copytree(sound, tmp_path / "run"))
    store = RunStore(root)
    store.open(Identity.of(load(None, TINY)))
    with pytest.raises(RunError, match="another driver works on"):
        repair(root, list(examine(root)))
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(RunError, match="another driver works on"):
        RunStore(tmp_path / "link").open(Identity.of(load(None, TINY)))
    store.close()


# archives, pruning, a model outside -----------------------------------------------------------------------------------


def test_a_run_is_packed_and_unpacked_elsewhere(sound: Path, tmp_path: Path) -> None:
    root = Path(copytree(sound, tmp_path / "run"))
    (root / "rounds/01/train/checkpoints/checkpoint-3").mkdir(parents=True)
    (root / "rounds/01/train/checkpoints/checkpoint-3/optimiser.pt").write_bytes(b"x" * 10_000)
    (root / "logs").mkdir()
    (root / "logs/driver.log").write_text("x")
    (root / "best").unlink(missing_ok=True)
    (root / "best").symlink_to("rounds/01/train/model")
    files, size = pack(root, tmp_path / "a.tar.zst")
    assert files > 20 and size == (tmp_path / "a.tar.zst").stat().st_size
    there = unpack(tmp_path / "a.tar.zst", tmp_path / "elsewhere")
    assert there == tmp_path / "elsewhere/experiment"
    assert list(examine(there)) == [] and contents(there) == contents(sound)
    assert not (there / "logs").exists() and not (there / "rounds/01/train/checkpoints").exists()
    assert (there / "best").resolve() == there / "rounds/01/train/model"
    with pytest.raises(ConfigError, match="is already there"):
        unpack(tmp_path / "a.tar.zst", tmp_path / "elsewhere")
    (tmp_path / "b.tar.zst").write_bytes((tmp_path / "a.tar.zst").read_bytes()[:-500])
    with pytest.raises(DataError, match="is no archive of a run, or damaged"):
        unpack(tmp_path / "b.tar.zst", tmp_path / "third")
    assert not list((tmp_path / "third").iterdir()), "nothing of a damaged archive stays"


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


@pytest.mark.parametrize(
    "members",
    [
        [member("../outside")],
        [member("run/../../outside")],
        [member("/outside")],
        [member("run/link", tarfile.SYMTYPE, "/"), member("run/link/outside")],
        [member("run/link", tarfile.SYMTYPE, "../.."), member("run/link/outside")],
        [member("run/in", tarfile.SYMTYPE, "."), member("run/out", tarfile.SYMTYPE, "in/../../..")],
        [member("run/hard", tarfile.LNKTYPE, "run/config.yaml")],
        [member("run/pipe", tarfile.FIFOTYPE)],
        [member("run/device", tarfile.CHRTYPE)],
        [member("run/link", tarfile.SYMTYPE, "target"), member("run/link")],
        [member("run/config.yaml"), member("run/config.yaml")],
        [member("run/config.yaml"), member("run/config.yaml/below")],
    ],
)
def test_an_archive_that_reaches_out_of_its_folder_is_refused(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    """Whatever the release of Python: 3.11.2 has no filters for archives."""
    path = tmp_path / "a.tar.zst"
    with (
        path.open("wb") as file,
        zstandard.ZstdCompressor().stream_writer(file) as data,
        tarfile.open(fileobj=data, mode="w|") as tar,
    ):
        for entry in members:
            tar.addfile(entry, None)
    with pytest.raises(DataError, match=re.escape(f"{path} is refused: its member")):
        unpack(path, tmp_path / "there")
    assert not list((tmp_path / "there").iterdir()), "nothing of it stays"
    assert sorted(tmp_path.iterdir()) == [path, tmp_path / "there"], "nothing is written outside"


def test_what_is_shared_names_no_machine_and_nobody(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    root = Path(copytree(sound, tmp_path / "run"))
    pack(root, tmp_path / "a.tar.zst", for_sharing=True)
    there = unpack(tmp_path / "a.tar.zst", tmp_path / "elsewhere")
    assert list(examine(there)) == [] and contents(there) == contents(sound)
    events = (there / "events.jsonl").read_text()
    assert '"host"' not in events and '"command"' not in events and '"event": "opened"' in events
    if len(socket.gethostname()) > 2:
        assert socket.gethostname() not in events
    method = Path(IMITATE.partition("=")[2])
    monkeypatch.chdir(method.parent)
    make(there, [f"method.type={method.name}", *TINY[1:]])


@pytest.mark.parametrize(("select", "best"), [("", 1), ("test", 2)])
def test_the_best_round_is_that_of_the_split_that_chooses(tmp_path: Path, select: str, best: int) -> None:
    """Rounds 1 and 2 are apart on both splits, the other way round; round 3 is the last."""
    store = RunStore(tmp_path)
    store.open(Identity.of(load(None, [*TINY, *([f"eval.select={select}"] if select else [])])))
    for number, reported, selected in ((1, 0.9, 0.1), (2, 0.2, 0.8), (3, 0.0, 0.0)):
        _trained(store, number, reported)
        if select:
            store.stages.run(
                f"rounds/{number:02d}/selection",
                EvalSummary,
                lambda folder, success=selected: EvalSummary(success=success),
            )
    store.close()
    run = agentr.open(tmp_path)
    assert {entry.stage for entry in prunable(run, "best")} == {f"rounds/{3 - best:02d}/train"}


def _trained(store: RunStore, number: int, success: float) -> None:
    """Seals a round's training, with weights, and its evaluation."""

    def train(folder: Path) -> TrainSummary:
        (folder / "model").mkdir()
        (folder / "model/model.safetensors").write_bytes(b"w" * 1000)
        (folder / "model/config.json").write_bytes(b"{}")
        return TrainSummary(checkpoint=f"rounds/{folder.parent.name}/train/model")

    store.stages.run(f"rounds/{number:02d}/train", TrainSummary, train)
    store.stages.run(f"rounds/{number:02d}/eval", EvalSummary, lambda folder: EvalSummary(success=success))


def test_weights_of_earlier_rounds_are_pruned(tmp_path: Path) -> None:
    root = tmp_path / "run"
    make(root)
    store = RunStore(root)
    store.open(Identity.of(load(None, TINY)))
    for number, success in ((2, 0.9), (3, 0.1), (4, 0.2)):
        _trained(store, number, success)
    store.close()
    run = agentr.open(root)
    assert [entry.path for entry in prunable(run, "all") if entry.what == "weights"] == []
    assert [entry.stage for entry in prunable(run, "last 2")] == ["rounds/01/train"], "round 2 is the best one"
    found = list(prunable(run, "best"))
    assert [(entry.path, entry.what) for entry in found] == [
        (f"rounds/0{n}/train/model/model.safetensors", "weights") for n in (1, 3)
    ]
    (root / "rounds/04/train/checkpoints/checkpoint-2").mkdir(parents=True)
    (root / "logs").mkdir(exist_ok=True)
    (root / "logs/engine.jsonl").touch()
    assert [(entry.path, entry.what) for entry in prunable(run, "all")] == [
        ("rounds/04/train/checkpoints/checkpoint-2", "optimiser states"),
        ("logs/engine.jsonl", "logs"),
    ]
    shutil.rmtree(root / "rounds/04/train/checkpoints")
    (root / "logs/engine.jsonl").unlink()
    with pytest.raises(ConfigError, match="'best of' does not name the checkpoints that are kept"):
        list(prunable(run, "best of"))
    prune(root, found)
    assert list(examine(root)) == [] and list(prunable(run, "best")) == []
    assert (root / "rounds/03/train/model/config.json").exists()
    store = RunStore(root)
    store.open(Identity.of(load(None, TINY)))
    with pytest.raises(RunError, match=r"weights of rounds/03/train were deleted.*--repair --stage rounds/03/train"):
        store.stages.run(
            "rounds/05/collect", TrainSummary, lambda folder: store.stages.use("rounds/03/train") or TrainSummary()
        )
    store.close()


def test_a_model_outside_is_found_again_by_its_hash(tmp_path: Path) -> None:
    model = tmp_path / "models" / "llama"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    store = RunStore(tmp_path / "run")
    store.open(Identity.of(load(None, [IMITATE])))
    store.stages.run(
        "model", ModelSummary, lambda folder: ModelSummary(path=str(model), folder_hash=hash_folder(model))
    )
    store.close()
    assert list(examine(tmp_path / "run")) == []
    model.rename(tmp_path / "moved")
    (finding,) = examine(tmp_path / "run")
    assert "name its new place ('agentr resume'" in finding.problems[0] and finding.remedy is Remedy.NONE
    (tmp_path / "another").mkdir()
    (tmp_path / "another/config.json").write_text("{ }")
    with pytest.raises(ConfigError, match="is not the model that"):
        relocate(tmp_path / "run", tmp_path / "another")
    relocate(tmp_path / "run", tmp_path / "moved")
    assert list(examine(tmp_path / "run")) == [] and agentr.open(tmp_path / "run").model == tmp_path / "moved"
    assert agentr.open(tmp_path / "run").config["model"]["path"] == str(tmp_path / "moved")


def test_errors_are_the_projects_own(tmp_path: Path) -> None:
    for use in (agentr.open, lambda path: list(examine(path)), lambda path: pack(path, tmp_path / "x")):
        with pytest.raises(AgentrError, match="holds no run"):
            use(tmp_path)
