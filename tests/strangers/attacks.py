"""Runs of somebody who means harm: each attack changes a copy of a whole run."""

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
import zstandard

from agentr.store.seal import read_checked, write_checked

#: Stands in files beside the run, and in a variable; nothing that is shown or written may have it.
CANARY = "canary-5f1c77"
VARIABLE = "AGENTR_TESTS_CANARY"
COLLECT, REVISE, DATASET, TRAIN = "rounds/01/collect", "rounds/01/revise", "rounds/01/dataset", "rounds/01/train"

Attack = Callable[[Path, Path], None]
ATTACKS: dict[str, Attack] = {}


def attack(change: Attack) -> Attack:
    ATTACKS[change.__name__.replace("_", " ")] = change
    return change


def evil(folder: Path, outside: Path) -> Path:
    """A file of code that leaves a mark when it is run, and that is a method, a reward and an environment."""
    file = folder / "evil.py"
    file.write_text(
        f"from pathlib import Path\nPath({str(outside / 'MARK')!r}).touch()\nclass Env: pass\nRECIPE = Env\n"
    )
    return file


def outside_of(folder: Path) -> Path:
    """What lies beside a run, and is nobody's business: a secret, another run's weights, a template."""
    folder.mkdir()
    (folder / "secret.json").write_text(json.dumps({"key": CANARY}))
    (folder / "secret.jsonl").write_text(json.dumps({"time": "2026-01-01", "level": "info", "message": CANARY}) + "\n")
    (folder / "secret.yaml").write_text(f"run: {{name: {CANARY}}}\n")
    (folder / "secret.jinja").write_text(f"{{{{ '{CANARY}' }}}}")
    (folder / "mine").mkdir()
    (folder / "mine/model.safetensors").write_text(CANARY)
    return folder


def configured(run: Path, /, **changes: Any) -> None:
    """Changes sections of the configuration, in the file and in the manifest's copy."""
    file = run / "config.yaml"
    config = yaml.safe_load(file.read_text())
    for name, change in changes.items():
        config[name] = (
            {**config[name], **change} if isinstance(change, dict) and isinstance(config.get(name), dict) else change
        )
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    changed(run / "manifest.json", config=config)


def changed(file: Path, /, **values: Any) -> None:
    """Changes a file with a checksum, which holds afterwards."""
    write_checked(file, {**read_checked(file), **values})


def sealed(run: Path, stage: str, /, **values: Any) -> None:
    changed(run / stage / "stage.json", **values)


def listed(run: Path, stage: str, /, **values: Any) -> None:
    """Changes a stage in the manifest."""
    stages = read_checked(run / "manifest.json")["stages"]
    changed(
        run / "manifest.json", stages=[{**entry, **values} if entry["name"] == stage else entry for entry in stages]
    )


# code -----------------------------------------------------------------------------------------------------------------


@attack
def a_method_of_its_own(run: Path, outside: Path) -> None:
    configured(run, method={"type": str(evil(run, outside))})


@attack
def a_method_beside_the_configuration(run: Path, outside: Path) -> None:
    evil(run, outside)
    configured(run, method={"type": "evil.py"})


@attack
def methods_of_others(run: Path, outside: Path) -> None:
    evil(run, outside)
    configured(run, methods={"evil.py": {}})


@attack
def a_method_from_a_round_on(run: Path, outside: Path) -> None:
    evil(run, outside)
    configured(run, from_round={1: {"method": {"type": "evil.py"}}})


@attack
def an_included_method(run: Path, outside: Path) -> None:
    evil(run, outside)
    (run / "more.yaml").write_text("method: {type: evil.py}\n")
    configured(run, include=["more.yaml"])


@attack
def modules_and_programs(run: Path, outside: Path) -> None:
    file = evil(run, outside)
    shutil.copy(file, Path.cwd() / "evil.py")
    file.chmod(0o755)
    configured(run, env={"name": "evil:Env", "python": str(file)}, method={"rewards": [{"name": "evil:Env"}]})


@attack
def a_tokenizer_with_code(run: Path, outside: Path) -> None:
    for folder in run.glob("**/model"):
        if folder.is_dir():
            evil(folder, outside)
            (folder / "tokenizer_config.json").write_text(
                '{"auto_map": {"AutoTokenizer": ["evil.Env", null]}, "tokenizer_class": "Env"}'
            )


# what is referred to --------------------------------------------------------------------------------------------------


@attack
def variables(run: Path, outside: Path) -> None:
    secret = f"${{oc.env:{VARIABLE}}}"
    configured(
        run,
        env={"url": f"http://127.0.0.1:9/{secret}"},
        model={"path": secret},
        run={"name": secret},
        tracking=[secret],
    )


@attack
def files_of_others(run: Path, outside: Path) -> None:
    configured(
        run,
        include=[str(outside / "secret.json"), str(outside / "secret.yaml")],
        model={"chat_template": str(outside / "secret.jinja")},
    )


@attack
def a_configuration_that_is_a_link(run: Path, outside: Path) -> None:
    (run / "config.yaml").unlink()
    (run / "config.yaml").symlink_to(outside / "secret.yaml")


@attack
def links_out(run: Path, outside: Path) -> None:
    (run / "logs").symlink_to(outside)


@attack
def a_stage_that_is_a_link(run: Path, outside: Path) -> None:
    shutil.move(run / COLLECT, outside / "collect")
    (run / COLLECT).symlink_to(outside / "collect")


@attack
def a_file_that_is_a_link(run: Path, outside: Path) -> None:
    file = run / TRAIN / "model/model.safetensors"
    file.unlink()
    file.symlink_to(outside / "mine/model.safetensors")


@attack
def a_stage_elsewhere(run: Path, outside: Path) -> None:
    listed(run, COLLECT, name=f"../../{outside.name}/mine", files={"model.safetensors": {"size": 1, "blake3": ""}})


@attack
def a_stage_at_a_path(run: Path, outside: Path) -> None:
    listed(run, COLLECT, name=str(outside / "mine"))


@attack
def files_elsewhere(run: Path, outside: Path) -> None:
    files = {f"../../../../{outside.name}/mine/model.safetensors": {"size": 1, "blake3": "00"}}
    for change in (sealed, listed):
        change(run, TRAIN, files=files)
        change(run, "rounds/00/train", files=files)


@attack
def a_checkpoint_elsewhere(run: Path, outside: Path) -> None:
    sealed(run, TRAIN, summary={"checkpoint": f"../../{outside.name}/mine"})
    sealed(run, "model", summary={"path": "/", "folder_hash": "00"})


@attack
def trees_elsewhere(run: Path, outside: Path) -> None:
    changed(
        run / COLLECT / "manifest.json",
        parts=[{"file": f"../../../../{outside.name}/secret.json", "first": "", "footer": ""}],
    )


# what does not end ----------------------------------------------------------------------------------------------------


@attack
def deep_yaml(run: Path, outside: Path) -> None:
    (run / "config.yaml").write_text("[" * 100_000)


@attack
def deep_blocks(run: Path, outside: Path) -> None:
    (run / "config.yaml").write_text("run: " + "- " * 50_000)


@attack
def a_laughing_configuration(run: Path, outside: Path) -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))]
    (run / "config.yaml").write_text("\n".join(lines))


@attack
def deep_json(run: Path, outside: Path) -> None:
    for file in (
        run / "manifest.json",
        run / COLLECT / "stage.json",
        run / DATASET / "manifest.json",
        run / "rounds/01/eval/evaluation.json",
    ):
        file.write_text("[" * 100_000)
    (run / "events.jsonl").write_text("[" * 100_000 + "\n{}\n")


@attack
def pipes(run: Path, outside: Path) -> None:
    for name in ("config.yaml", "manifest.json", f"{COLLECT}/stage.json", "model.json", "logs.txt"):
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)


@attack
def a_pipe_among_the_weights(run: Path, outside: Path) -> None:
    (run / TRAIN / "model/tokenizer.json").unlink()
    os.mkfifo(run / TRAIN / "model/tokenizer.json")


@attack
def a_huge_file(run: Path, outside: Path) -> None:
    for name in ("events.jsonl", "config.yaml"):
        os.truncate(run / name, 1 << 42)


@attack
def templates_without_an_end(run: Path, outside: Path) -> None:
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{{ 'a' * 10**10 }}"
    configured(run, model={"chat_template": loops})


@attack
def odd_numbers(run: Path, outside: Path) -> None:
    shutil.copytree(run / TRAIN, run / "rounds/999999999999/train")
    (run / ".lease").mkdir(exist_ok=True)
    (run / ".lease/1x.json").write_text("{}")
    shutil.copytree(run / COLLECT, run / "rounds/02/rollouts")
    shutil.copytree(run / COLLECT, run / "rounds/02/rollouts/1x")


@attack
def wrong_types(run: Path, outside: Path) -> None:
    sealed(run, COLLECT, started="then", seconds=None, summary=[], files={"a": 3})
    sealed(run, TRAIN, summary={"checkpoint": 5, "steps": "many"})
    sealed(run, "rounds/01/eval", summary={"success": {}, "events": [], "within_9_answers": "x"})
    (run / "events.jsonl").write_text('[]\n{"event": 1}\n')
    (run / "rounds/00/eval/evaluation.json").write_text('{"success": 3}')


# text -----------------------------------------------------------------------------------------------------------------

HOSTILE = "\x1b]0;owned\x07[/foo][link=http://x]\u202e\x9b2J\r\n"


@attack
def names_with_marks(run: Path, outside: Path) -> None:
    configured(run, run={"name": HOSTILE}, env={"name": HOSTILE}, eval={"select": HOSTILE})
    changed(run / "manifest.json", name=HOSTILE)
    sealed(run, TRAIN, agentr=HOSTILE, summary={"checkpoint": f"{TRAIN}/model", HOSTILE: 1})
    with (run / "events.jsonl").open("a") as file:
        told = {
            "time": 1.0,
            "event": "stage_stopped",
            "stage": HOSTILE,
            "error": HOSTILE,
            "cause": HOSTILE,
            "command": HOSTILE,
        }
        file.write(json.dumps(told) + "\n")


@attack
def a_name_that_is_a_path(run: Path, outside: Path) -> None:
    configured(run, run={"name": f"../../{outside.name}/mine/model.safetensors"})


# archives -------------------------------------------------------------------------------------------------------------


def archive(path: Path, *members: tuple[str, bytes | str]) -> Path:
    """Writes an archive of files; a text is the target of a link."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    path.write_bytes(zstandard.ZstdCompressor().compress(out.getvalue()))
    return path


ARCHIVES: dict[str, Callable[[Path], list[tuple[str, bytes | str]]]] = {
    "a file above": lambda _: [("../x", b"x")],
    "a file at a path": lambda outside: [(str(outside / "x"), b"x")],
    "a link out": lambda outside: [("r/a", str(outside)), ("r/a/x", b"x")],
    "a link above": lambda _: [("r/a", "../.."), ("r/a/x", b"x")],
    "a name with marks": lambda _: [("r/\x1b[2J\n", b"x")],
    "a name that is too long": lambda _: [("r/" + "a" * 300, b"x")],
    "twice": lambda _: [("r/config.yaml", b"x"), ("r/config.yaml", b"y")],
    "many files": lambda _: [(f"r/{n}", b"") for n in range(20_000)],
    "a large file": lambda _: [("r/config.yaml", bytes(400 << 20))],
}
