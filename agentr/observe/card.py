"""The card of a run, ``card.md`` beside its report and its exports; and the model card of a checkpoint, ``README.md``
in its folder, as Hugging Face reads it.

A card says what the run knows: it is written when the policy was measured, and again by every report. It is a reading
of the run and part of no seal, so it never changes a stage. The same run gives the same card: it holds no time of day
and no path of a machine.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from agentr.config.identity import is_free, plain
from agentr.config.schema import Config
from agentr.config.text import dump_yaml, parse_yaml
from agentr.errors import DataError
from agentr.evaluate.statistics import Estimate
from agentr.observe.accounts import accounts
from agentr.observe.problems import PageProblem
from agentr.observe.summary import ArmSummary, RunSummary, difference, summarise
from agentr.outside import typed
from agentr.read.run import Run, RunRound
from agentr.read.stage import Training, summary_of
from agentr.store.files import read_json, write_bytes
from agentr.store.layout import CONTROL, DATASET, MODEL, TRAIN, WARM_START, Arm, ArmKind, stage_of, title_of
from agentr.store.seal import CARD
from agentr.store.summaries import DatasetSummary, ModelSummary
from agentr.words import seen

#: Licences of the models that agentr brings along, and their names on the hub where they have one.
_SHIPPED = {"nano": ("apache-2.0", ""), "smollm2": ("apache-2.0", "HuggingFaceTB/SmolLM2-135M-Instruct")}

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class Source:
    """What a checkpoint was made from, stage by stage.

    Attributes:
        title: The policy that was trained.
        rows: Rows of its dataset by kind.
        completions: Turns that were drawn for it.
        steps: Optimiser steps of its training.
    """

    title: str
    stage: str
    rows: Mapping[str, int]
    completions: int
    trees: int
    solved: int
    steps: int


def write_run_card(run: Run, file: Path) -> Path:
    """Writes the card of a run: what was begun, what became of it, and what it came to. Returns its file.

    Raises:
        DataError: The run has no stage yet.
    """
    summary, problems = summarise(run), list[PageProblem]()
    config = _merged(plain(Config()), run.config)
    text = _rendered(
        "run_card.md.jinja",
        about=summary.about,
        accounts=list(accounts(run, problems)),
        problems=problems,
        arms=summary.arms,
        claims=[found.words for found in summary.comparisons],
        complete=summary.complete,
        name=summary.name,
        selection=summary.selection,
        tasks=_tasks(config, explored=True),
        unfinished=[title_of(stage.name) for stage in run.stages().values() if not stage.sealed],
        recipe=_fenced("yaml", _yaml(recipe(run.config))),
    )
    write_bytes(file, text.encode())
    return file


def write_cards(run: Run) -> list[Path]:
    """Writes the cards of all checkpoints of a run that are there, and returns their files.
    A file that is sealed stays as it is.

    Raises:
        DataError: The run has no stage yet.
    """
    summary = summarise(run)
    return [file for arm in run.arms if (file := _write(run, summary, arm)) is not None]


def write_card(run: Run, arm: Arm) -> Path | None:
    """Writes the card of one policy, as ``write_cards``."""
    return _write(run, summarise(run), RunRound(run, arm))


def _write(run: Run, summary: RunSummary, arm: RunRound) -> Path | None:
    trained = arm.stages().get(TRAIN)
    if not isinstance(trained, Training) or not trained.sealed or not (trained.model / "config.json").is_file():
        return None
    file = trained.model / CARD
    # of a model's own files, copied before there were cards
    if file.relative_to(trained.path).as_posix() in trained.record.files:
        return None
    text = card(run, summary, arm).encode()
    if not file.exists() or file.read_bytes() != text:
        write_bytes(file, text)
    return file


def card(run: Run, summary: RunSummary, arm: RunRound) -> str:
    """Returns the card of a policy that was trained.

    Args:
        summary: Of the run.
    """
    typed(Config, run.config, str(run.layout.config))
    config, trained = _merged(plain(Config()), run.config), arm.train
    sources, start = _sources(run, trained.name)
    found, problems = next(one for one in summary.arms if one.arm == arm.arm), list[PageProblem]()
    licence, base = _origin(run)
    return _rendered(
        "card.md.jinja",
        accounts=list(accounts(run, problems, [place[0] for one in sources if (place := stage_of(one.stage))])),
        problems=problems,
        front=Markup(_yaml(_front(config, summary, found, licence, base))),
        title=f"{summary.name}, {arm.title}",
        arm=found,
        about=summary.about,
        config=config,
        base=base or _name_of(run),
        trained=trained,
        sources=sources,
        start=start,
        differences=_differences(summary, found),
        best=_best(run, arm.arm),
        controlled=any(one.arm == CONTROL and one.evaluation for one in summary.arms),
        chosen=config["eval"].get("select") or "",
        tasks=_tasks(config, explored=any(source.completions for source in sources)),
        licence=licence,
        remarks=summary_of(run.stages().get(MODEL), ModelSummary).remarks or [],
        recipe=_fenced("yaml", _yaml(recipe(run.config))),
    )


def recipe(config: dict[str, Any]) -> dict[str, Any]:
    """Returns what says what a run is, of its configuration: without what has its default value, where and how fast it
    ran, and with the last names alone of what lay on the machine."""
    found = _without_defaults(config, plain(Config()), "")
    # workers may need an engine each beside them: trainer.share
    if config["trainer"]["use_gpu"] and config["policy"]["engines"] > 1:
        found.setdefault("policy", {})["engines"] = config["policy"]["engines"]
    return {"run": {"name": config["run"]["name"], **found.pop("run", {})}, **found}


def _without_defaults(values: dict[str, Any], defaults: Any, prefix: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in values.items():
        full, default = f"{prefix}.{key}".lstrip("."), defaults.get(key) if isinstance(defaults, dict) else None
        if is_free(full) or (full != "method" and value == default and value is not None):
            continue
        if isinstance(value, dict) and full != "method":
            if inner := _without_defaults(value, default, full):
                kept[key] = inner
        elif value not in ({}, [], "") or default not in (None, value):
            kept[key] = _portable(value)
    return kept


def _portable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _portable(found) for key, found in value.items()}
    if isinstance(value, list):
        return [_portable(found) for found in value]
    return Path(value).name if isinstance(value, str) and value.startswith(("/", "~")) else value


def _merged(defaults: Any, values: Any) -> Any:
    """Returns a configuration with the defaults of keys that came after it was written."""
    if not isinstance(defaults, dict) or not isinstance(values, dict):
        return values
    return {**defaults, **{key: _merged(defaults.get(key), value) for key, value in values.items()}}


# what is known --------------------------------------------------------------------------------------------------------


def _sources(run: Run, stage: str) -> tuple[list[Source], str]:
    """What a checkpoint and those that it goes on from were trained on, the first one first; and the stage that the
    first one goes on from, empty if that is not known."""
    found: list[Source] = []
    records = run.records()
    while (place := stage_of(stage)) is not None and stage in records:
        arm = RunRound(run, place[0])
        own = RunRound(run, WARM_START if place[0] == CONTROL else place[0])
        rows = summary_of(own.stages().get(DATASET), DatasetSummary).kinds or {
            "rows": records[stage].summary.get("rows", 0)
        }
        explored = [one.summary for one in arm.exploration().values()]
        found.append(
            Source(
                title=arm.title,
                stage=stage,
                rows=rows,
                completions=sum(one.cost.completions for one in explored),
                trees=max((one.trees for one in explored), default=0),
                solved=max((one.solved for one in explored), default=0),
                steps=records[stage].summary.get("steps", 0),
            )
        )
        stage = next((name for name in records[stage].inputs if name == MODEL or name.endswith(f"/{TRAIN}")), "")
    return found[::-1], stage


def _differences(summary: RunSummary, arm: ArmSummary) -> list[str]:
    """How a policy does against the warm start, the control and the ceiling, in words."""
    others = [one for one in summary.arms if one.evaluation and one is not arm and one.arm.kind is not ArmKind.ROUND]
    control = next((one for one in others if one.arm == CONTROL), None)
    of_round = arm.evaluation and arm.arm.kind is ArmKind.ROUND
    return [difference(arm, one, control).words for one in others] if of_round else []


def _origin(run: Run) -> tuple[str, str]:
    """Returns the licence of the base model and its name on the hub; empty where they are not known."""
    model = run.config["model"]
    if model["source"] in _SHIPPED:
        return _SHIPPED[model["source"]]
    try:
        folder = run.model
    except DataError:
        return "", ""
    inside = not Path(run.stage(MODEL).record.summary["path"]).is_absolute()  # what the hub gave is kept in the run
    name = model["path"] if inside and _HUB_NAME.fullmatch(model["path"]) else ""
    return _licence(folder / CARD), name


def _licence(file: Path) -> str:
    """Returns the licence that a model's card names."""
    try:
        _, front, _ = file.read_text(encoding="utf-8").split("---\n", 2)
        licence = parse_yaml(front)["license"]
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return ""
    return licence if isinstance(licence, str) and re.fullmatch(r"[\w.-]+", licence) else ""


def _name_of(run: Run) -> str:
    model = run.config["model"]
    return Path(model["path"]).name if model["path"] else model["source"]


def _best(run: Run, arm: Arm) -> str:
    """Returns the split by which a policy is the best of its run; empty if it is not."""
    if run.best != arm:
        return ""
    return str(typed(dict[str, Any], read_json(run.layout.chosen), str(run.layout.chosen)).get("split", ""))


def _tasks(config: dict[str, Any], *, explored: bool) -> dict[str, str]:
    """Which tasks were used for what."""
    selections = {
        "demonstrations": config["warm_start"]["tasks"] if config["warm_start"]["enabled"] else [],
        "exploration": config["collect"]["tasks"] if explored else [],
        "evaluation": config["eval"]["tasks"],
    }
    return {what: "; ".join(_selected(found)) for what, found in selections.items() if found}


def _selected(selection: Any) -> Iterator[str]:
    for one in selection if isinstance(selection, list) else [selection]:
        limit = f", at most {one['limit']}" if one.get("limit") else ""
        where = f", where {one['where']}" if one.get("where") else ""
        yield f"split {one['split']!r}{where}{limit}"


def _front(config: dict[str, Any], summary: RunSummary, arm: ArmSummary, licence: str, base: str) -> dict[str, Any]:
    """What Hugging Face reads of a card."""
    front: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "license": licence or "unknown",
        **({"base_model": base} if base else {}),
        "tags": ["agentr", "agent", Path(config["method"]["type"]).stem, config["env"]["name"]],
    }
    if arm.evaluation is None:
        return front
    name, split = config["env"]["name"], config["eval"]["tasks"]["split"]
    result = {
        "task": {"type": "reinforcement-learning", "name": "acting in an environment"},
        "dataset": {"type": name, "name": f"{name}, held-out tasks", "split": split},
        "metrics": [
            {"type": "success", "name": "held-out success, %", "value": round(100 * arm.evaluation.success.mean, 1)}
        ],
    }
    return {**front, "model-index": [{"name": f"{summary.name}, {arm.title}", "results": [result]}]}


def _rendered(template: str, **values: Any) -> str:
    environment = Environment(
        loader=PackageLoader("agentr.observe", "."),
        finalize=_markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["numbers"] = lambda counts: ", ".join(f"{name} {count:,}" for name, count in counts.items())
    return environment.get_template(template).render(values).rstrip() + "\n"


# as text --------------------------------------------------------------------------------------------------------------


def _markdown(value: object) -> str:
    """Returns a text as one line of Markdown that means nothing but itself."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, Estimate):
        return value.as_percent()
    return re.sub(r"([\\`*_\[\]<>#|{}&~])", r"\\\1", " ".join(seen(str(value)).split()))


def _yaml(data: dict[str, Any]) -> str:
    """Returns plain data as YAML in which every character can be seen."""
    text = dump_yaml(data)
    return text if seen(text) == text else yaml.safe_dump(data, sort_keys=False)


def _fenced(kind: str, text: str) -> Markup:
    """Returns a block of code that its text cannot end."""
    longest = max((len(found) for found in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markup(f"{fence}{kind}\n{text.rstrip()}\n{fence}")
