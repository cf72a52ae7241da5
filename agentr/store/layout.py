"""Layout of the run directory: names of its stages and files. Nobody else spells them.

model                                                    the base model
rounds/00/{demonstrations,dataset,train,eval}   the warm start
rounds/01/{collect,...,dataset,train,eval}      a round; which stages of trees there are is the method's choice
rounds/01/{probe,rollouts,train,eval} a round of online training; its steps are rollouts/000001, ...; a probe comes
first where
                                                tasks are chosen by what the policy makes of them
control/{train,eval}                            the control arm
ceiling/{demonstrations,dataset,train,eval}     the arm that imitates the expert on the tasks that were searched

After ``eval`` come ``sampled``, ``recovery``, ``after_refusal``, ``after_two_refusals``, ``after_harm``, ``shortened``
and ``judged``, where they are measured.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

MODEL = "model"
DEMONSTRATIONS = "demonstrations"
DATASET = "dataset"
TRAIN = "train"
EVAL = "eval"
SELECTION = "selection"
SAMPLED = "sampled"
RECOVERY = "recovery"
#: The stages that go on from bad beginnings (`recovery_stage`), and what these end with.
RECOVERIES = {
    RECOVERY: "a random turn",
    "after_refusal": "a refusal",
    "after_two_refusals": "two refusals in a row",
    "after_harm": "a turn that did harm",
}
SHORTENED = "shortened"
JUDGED = "judged"
PROBE = "probe"
ROLLOUTS = "rollouts"

#: Files of a stage of rollouts: the summary of each step, which step did best in validation, and how tasks
#: were chosen.
STEPS = "steps.jsonl"
BEST_STEP = "best.json"
PARETO = "pareto.json"

#: File in a stage of episodes that holds its metrics.
EVALUATION = "evaluation.json"


class ArmKind(StrEnum):
    """Which policy of a run an arm is."""

    WARM_START = "warm start"
    ROUND = "round"
    CONTROL = "control"
    CEILING = "ceiling"


@dataclass(frozen=True, order=True)
class Arm:
    """A policy of a run with its stages.

    Attributes:
        number: Of the round; 0 for all others.
    """

    kind: ArmKind
    number: int = 0

    @property
    def folder(self) -> str:
        """Its folder below the run directory, which is also the beginning of its stages' names."""
        return self.kind.value if self.reference else f"rounds/{self.number:02d}"

    @property
    def reference(self) -> bool:
        """Whether it is no step of the loop, and what the rounds are compared with: the control or the ceiling."""
        return self.kind in (ArmKind.CONTROL, ArmKind.CEILING)

    @property
    def title(self) -> str:
        """Its name in tables."""
        return f"round {self.number}" if self.kind is ArmKind.ROUND else self.kind.value

    def stage(self, name: str) -> str:
        """Returns the name of one of its stages."""
        return f"{self.folder}/{name}"


WARM_START = Arm(ArmKind.WARM_START)
CONTROL, CEILING = Arm(ArmKind.CONTROL), Arm(ArmKind.CEILING)


def recovery_stage(beginning: str) -> str:
    """Returns the stage of episodes that go on from bad beginnings of a kind (``agentr.config.schema.Beginning``)."""
    return RECOVERY if beginning == "random" else f"after_{beginning}"


def arm_of(round_: int) -> Arm:
    """Returns the arm of a round; of round 0 the warm start."""
    return Arm(ArmKind.ROUND, round_) if round_ else WARM_START


def stage_of(name: str) -> tuple[Arm, str] | None:
    """Returns the arm of a stage and the stage's name in it, or None for stages of no arm (the model)."""
    # of a round there are all before it, too
    found = re.fullmatch(r"(?:rounds/(\d{1,4})|(control|ceiling))/(\w+)", name)
    if found is None:
        return None
    return (Arm(ArmKind(found[2])) if found[2] else arm_of(int(found[1]))), found[3]


def title_of(name: str) -> str:
    """Returns the name of a stage, a step or a policy in sentences and tables: ``rounds/01/collect`` is "round 1:
    collect". Any other text stays as it is."""
    stage, _, version = name.partition("@")
    above, _, last = stage.rpartition("/")
    if step := step_of(stage) or step_of(above):
        return f"{title_of(step[0])}, online step {step[1]}" + ("" if step_of(stage) else f", {last}")
    place = stage_of(stage)
    return (
        name
        if place is None
        else f"{place[0].title}: {place[1]}" + (f" after online step {version}" if version else "")
    )


#: What a person calls an arm, and a stage of it.
_CALLED = re.compile(r"(?:(warm[ _]start)|(control|ceiling)|(?:rounds?[ /]?)?(\d+))(?:\s*[:/]\s*(\w+))?/?")


def place_of(text: str) -> tuple[Arm, str] | None:
    """Returns the arm that a person names, and the stage of it (empty if none is named); None if the text names no arm.

    All spellings do: ``2``, ``round 2``, ``round2``, ``rounds/02``, ``rounds/02/train``, ``round 2: train``,
    ``warm start``, ``control``, ``ceiling``.
    """
    found = _CALLED.fullmatch(text.strip())
    if found is None:
        return None
    arm = WARM_START if found[1] else Arm(ArmKind(found[2])) if found[2] else arm_of(int(found[3]))
    return arm, found[4] or ""


def name_of(text: str) -> str:
    """Returns the name of a stage that a person names in any spelling: of "round 1: collect"
    ``rounds/01/collect``. Other text is a name."""
    place = place_of(text)
    return place[0].stage(place[1]) if place and place[1] else text


def round_number(text: str) -> int | None:
    """Returns the number of a round that a person names in any spelling, by itself or by a stage of it; None if it is
    none."""
    place = place_of(text)
    return place[0].number if place and not place[0].reference else None


def step_of(name: str) -> tuple[str, int] | None:
    """Returns the stage and the number of a step of online training, from the name of the step:
    ``rounds/01/rollouts/000017``."""
    found = re.fullmatch(rf"(.+/{ROLLOUTS})/(\d+)", name)
    return (found[1], int(found[2])) if found else None


def stages_on_disk(root: Path) -> list[str]:
    """Returns the names of the folders in a run directory that may be stages, in order."""
    above = (CONTROL.folder, CEILING.folder, "imported")
    places = [root / MODEL, *root.glob("rounds/*/*"), *(path for name in above for path in root.glob(f"{name}/*"))]
    return sorted(
        path.relative_to(root).as_posix() for path in places if path.is_dir() and not path.name.startswith(".")
    )


def arms_in(stages: Iterable[str]) -> list[Arm]:
    """Returns the arms that these stages belong to: rounds in order, then the control, then the ceiling."""
    found = {place[0] for name in stages if (place := stage_of(name)) is not None}
    return sorted(found, key=lambda arm: (list(ArmKind).index(arm.kind) if arm.reference else 0, arm.number))


@dataclass(frozen=True)
class Checkpoint:
    """A policy.

    Attributes:
        name: Stage that made it, by which trees name it.
        path: Its Hugging Face folder.
    """

    name: str
    path: Path


@dataclass(frozen=True)
class Layout:
    """Places in a run directory."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    @property
    def manifest(self) -> Path:
        return self.root / "manifest.json"

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def damaged(self) -> Path:
        """Where `agentr doctor` sets damaged stages aside."""
        return self.root / "damaged"

    @property
    def search(self) -> Path:
        """Of a search from a turn of another run's tree: which turn, and which policy (``agentr.commands.search``)."""
        return self.root / "search.json"

    @property
    def lease(self) -> Path:
        """Says who works on the run (``agentr.store.lease``)."""
        return self.root / ".lease"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def driver_log(self) -> Path:
        """What the driver said."""
        return self.logs / "driver.log"

    @property
    def now(self) -> Path:
        """What the driver is doing, while there is one."""
        return self.logs / "now.json"

    @property
    def judged(self) -> Path:
        """What the model of ``method.judge`` answered, by what it was asked."""
        return self.root / "judged.jsonl"

    @property
    def tracking(self) -> Path:
        """What was logged to experiment trackers, and what they keep on disk (``agentr.track``)."""
        return self.root / "tracking"

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    @property
    def card(self) -> Path:
        """What was begun, what became of it, and what it came to, as Markdown."""
        return self.root / "card.md"

    @property
    def best(self) -> Path:
        """Link to the checkpoint with the highest held-out success."""
        return self.root / "best"

    @property
    def chosen(self) -> Path:
        """Says which round that is, and by what."""
        return self.root / "best.json"

    def stage(self, name: str) -> Path:
        """Returns the folder of a stage."""
        return self.root / name

    def checkpoint(self, train: str, *parts: str) -> Checkpoint:
        """Returns what a stage of training leaves.

        Args:
            parts: Folder of the job within the stage, if the stage is a chain of jobs.
        """
        return Checkpoint(train, Path(self.root, train, *parts, "model"))

    def evaluation(self, stage: str) -> Path:
        """Returns the metrics of a stage of episodes."""
        return self.root / stage / EVALUATION
