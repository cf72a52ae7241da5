"""The types of the pages' answers. ``python -m tests.ui.page_types`` writes them as TypeScript (``web/src/api.ts``).

One address a question, GET alone: ``api/QUESTION?parameters`` (``QUESTIONS``). ``run`` is an id of ``Home``, ``stage``
a stage's name such as rounds/01/collect, ``key`` a tree's key. An error is ``{"error": {message, hint}}`` with its
status; ``problems`` name what could not be read, and the rest is there. All text comes from models and environments: it
is shown as text, never as markup.

A file that stands alone has ``<script type="application/json" id="answers">{"route": "#/...", "answers": {ADDRESS:
answer}}</script>``: it opens at ``route`` and asks nobody. An address has its parameters sorted by name and escaped by
encodeURIComponent. Turns are there one by one, forests and datasets without order and page; what is not there is said
to be in ``agentr ui`` alone.

Types are tables, since keys are as JSON has them, and ``from`` is one. What is a dataclass elsewhere is answered as it
is.
"""

from typing import Any, Literal, TypedDict

from agentr.evaluate.statistics import Contrast, Estimate
from agentr.observe.comparison import ComparedPoint, ComparedState, ComparedTask
from agentr.observe.problems import PageProblem
from agentr.observe.summary import Difference
from agentr.observe.tables import Table
from agentr.search.revision import Revision

Failure = TypedDict("Failure", {"error": PageProblem})
Problems = list[PageProblem]
Detail = dict[str, str | float]

# all runs -------------------------------------------------------------------------------------------------------------

RoundsDone = TypedDict("RoundsDone", {"done": int, "planned": int})

RunCard = TypedDict(
    "RunCard",
    {
        "id": str,
        "name": str,
        "path": str,  # empty in a file that stands alone
        "state": Literal["finished", "running", "stopped", "begun", "unreadable"],
        "problem": str,  # why it cannot be read, or what holds it up; empty if nothing does
        "method": str,
        "environment": str,
        "model": str,
        "seed": int,
        "rounds": RoundsDone,
        "before": Estimate | None,  # held-out success of the warm start, and of the last policy that was measured
        "after": Estimate | None,
        "afterTitle": str,
        "seconds": float,  # of work
        "completions": int,
        "tokens": int,
        "started": str,  # ISO time of its first event; empty if unknown
    },
)

ComparisonCard = TypedDict(
    "ComparisonCard",
    {
        "id": str,
        "name": str,
        "path": str,
        "methods": list[str],
        "seeds": list[int],
        "done": int,
        "runs": int,
        "problem": str,
    },
)

Home = TypedDict(
    "Home",
    {
        "folders": list[str],
        "version": str,
        "runs": list[RunCard],
        "comparisons": list[ComparisonCard],
        "problems": Problems,
    },
)

#: ``stamp`` changes when anything of the run did; ``live`` while a process works on it.
State = TypedDict("State", {"stamp": str, "live": bool, "now": str})

# a run ----------------------------------------------------------------------------------------------------------------

StageLine = TypedDict(
    "StageLine",
    {
        "name": str,
        "step": str,  # name in its round: collect, dataset, train, eval, ...
        "kind": Literal["trees", "episodes", "rollouts", "dataset", "training", "other"],
        "state": Literal["sealed", "running", "stopped"],
        "started": float | None,  # seconds since the run's first event; None if unknown
        "ended": float | None,
        "seconds": float,  # of work
        "predicted": list[float],  # before the run began, in seconds: the least, the expected, the most; or nothing
        # seconds by what it waited for, summed over everything that waited at the same time
        "waited": dict[str, float],
        "about": str,  # what it came to, in one line
        "size": int | None,  # trees or rows
    },
)

ArmView = TypedDict(
    "ArmView",
    {
        "title": str,
        "folder": str,
        "policy": str,  # name by which trees name the policy that was trained here; empty if none was
        "success": Estimate | None,
        "trees": int,
        "solved": int,
        "rows": int,
        "kinds": dict[str, int],  # rows by kind
        "calls": int,
        "tokens": int,
        "cached": float,
        "seconds": float,
        "stages": list[StageLine],
        "curve": list[dict[str, float | None]],  # logged steps of training: step, loss, and what the loss logs besides
    },
)

Example = TypedDict("Example", {"title": str, "page": Literal["episodes", "row"], "query": dict[str, str]})
LogFileSize = TypedDict("LogFileSize", {"name": str, "size": int})

RunPage = TypedDict(
    "RunPage",
    {
        "card": RunCard,
        "claims": list[Difference],  # differences of held-out success with their meaning in words
        "selection": str,  # on which tasks the best round is chosen; empty with one policy
        "about": dict[str, str],
        "arms": list[ArmView],
        "tables": list[Table],
        "examples": list[Example],  # what to look at first
        "splices": dict[str, int],  # executed splices: tried, kept, ...
        "troubles": list[str],
        "config": str,  # YAML
        "command": str,  # that repeats the run
        "logs": list[LogFileSize],
        "problems": Problems,
    },
)

Log = TypedDict("Log", {"name": str, "size": int, "from": int, "text": str})

# held-out tasks, patterns, online steps -------------------------------------------------------------------------------

PolicyName = TypedDict("PolicyName", {"title": str, "stage": str})

#: ``scores`` and ``turns`` are by policy, None where it was not measured.
TaskScores = TypedDict(
    "TaskScores", {"key": str, "task": str, "problem": str, "scores": list[float | None], "turns": list[int | None]}
)
Tasks = TypedDict("Tasks", {"policies": list[PolicyName], "tasks": list[TaskScores], "problems": Problems})

Pattern = TypedDict(
    "Pattern", {"name": str, "about": str, "episodes": int, "of": int, "succeeded": int, "keys": list[str]}
)

PolicyPatterns = TypedDict(
    "PolicyPatterns",
    {
        "title": str,
        "stage": str,
        "episodes": int,
        "read": int,  # episodes that were read, where there are too many for all
        "patterns": list[Pattern],
        "openings": list[Pattern],  # first sentences of turns that recur
        "lengths": list[tuple[int, int, int]],  # turns, episodes, succeeded
        "outcomes": dict[str, int],
    },
)
#: Turns of a round that were tried in other worlds, those of them that were luck, and trees that have such turns.
Luck = TypedDict("Luck", {"title": str, "stage": str, "tried": int, "luck": int, "keys": list[str]})
Patterns = TypedDict("Patterns", {"policies": list[PolicyPatterns], "luck": list[Luck], "problems": Problems})

#: A line for each step of online training: step, success, validation, reward/..., calls, entropy, staleness,
#: groups, ...
StepsView = TypedDict("StepsView", {"stage": str, "lines": list[dict[str, float | None]], "problems": Problems})

# forests and trees ----------------------------------------------------------------------------------------------------

ForestRow = TypedDict(
    "ForestRow",
    {
        "key": str,
        "task": str,
        "turns": int,
        "depth": int,
        "ends": int,
        "successes": int,
        "best": float | None,
        "mean": float | None,
        "revisions": int,
        "stopped": str,
        "completions": int,
        "tokens": int,
        "seconds": float,
        "step": int | None,
    },
)
GivenUp = TypedDict("GivenUp", {"key": str, "reason": str})

ForestView = TypedDict(
    "ForestView",
    {
        "stage": str,
        "state": Literal["sealed", "growing"],
        "total": int,
        "matched": int,  # trees that match search and filter
        "failed": list[GivenUp],
        "offset": int,
        "rows": list[ForestRow],
        "problems": Problems,
    },
)

#: Columns, one value a node, in the order of ids; node 0 is the root.
Nodes = TypedDict(
    "Nodes",
    {
        "parent": list[int],
        "origin": list[int],  # index in ``origins``, ``outcomes``, ``verdicts``; -1 for none
        "outcome": list[int],
        "verdict": list[int],
        "visits": list[int],
        "value": list[float],  # sum of the returns of the ended leaves below
        "reward": list[float],
        "valid": list[int],
        "draws": list[int],
        "logprob": list[float | None],  # mean of a token of the turn; None where none is known
        "label": list[str],  # the action, shortened
    },
)

#: A row of a dataset that turns of a tree went into (``index`` None: a candidate that was dropped, and why).
RowUse = TypedDict(
    "RowUse",
    {
        "dataset": str,
        "index": int | None,
        "side": Literal["row", "chosen", "rejected"],
        "kind": str,
        "reason": str,
        "nodes": list[int],
    },
)
TreeTask = TypedDict("TreeTask", {"id": str, "env": str, "split": str, "labels": dict[str, Any]})
MessageView = TypedDict("MessageView", {"role": str, "content": str, "cut": int})
NamedText = TypedDict("NamedText", {"name": str, "content": str, "cut": int})
#: ``answers``: a turn, and which of its calls, from 1 on; None for what answers none, or none that is known.
AskedMessage = TypedDict("AskedMessage", {"role": str, "content": str, "cut": int, "answers": tuple[int, int] | None})

#: A turn to a program that plays the agent's part: what it was given for it, and what it asks then.
ProgramView = TypedDict(
    "ProgramView",
    {
        # the text, without a name, where it is another one than the turn's; then calls with their arguments
        "given": list[NamedText],
        "messages": list[AskedMessage],  # new ones of its next call; of the first call they are the tree's
        "asks": bool,  # whether there is a next call
        "after": int,  # the turn whose conversation the call goes on from; 0 for one that begins
        "answered": bool,  # whether that turn is in it
        "tools": list[int],  # places in the tree's
        "settings": list[NamedText],  # what narrows the answer
        "others": list[NamedText],  # other models, and what they answered on the way to the next call
        "refused": str,  # why what came of the turn is not known
        "cut": int,  # characters left out of all these; ``whole=1`` brings them
    },
)
TreePlace = TypedDict("TreePlace", {"stage": str, "key": str, "title": str})
Command = TypedDict("Command", {"title": str, "command": str})
PolicyChoice = TypedDict("PolicyChoice", {"name": str, "title": str})

#: An attempt to make a better episode of the one that ends at ``parent``: -1 as ``end`` if there is none, for a reason.
EvolutionView = TypedDict(
    "EvolutionView",
    {
        "parent": int,
        "operator": str,
        "kept": int,  # turns at the beginning that were taken over
        "end": int,
        "reason": str,
        "answer": str,  # what was written about the episode
        "guidance": str,  # what the policy was told before it went on
    },
)

TreeView = TypedDict(
    "TreeView",
    {
        "stage": str,
        "key": str,
        "task": TreeTask,
        "policy": str,
        "method": str,
        "stopped": str,
        "messages": list[MessageView],
        "origins": list[str],
        "outcomes": list[str],
        "verdicts": list[str],
        "nodes": Nodes,
        "program": ProgramView | None,  # its first call, where a program plays the agent's part
        "tools": list[NamedText],  # that it offers anywhere in the tree, as JSON
        # turns after which it goes on from another conversation: of the second turn, or 0 for one that begins
        "partings": list[tuple[int, int]],
        "searched": bool,  # whether returns were backed up, so that ``visits`` and ``value`` carry information
        "exploration": float | None,  # the constant of the UCT score; None where the strategy has none
        "revisions": list[Revision],
        "evolutions": list[EvolutionView],
        "uses": list[RowUse],
        "facts": dict[str, float],  # calls, completions, tokens, seconds, events by name
        "elsewhere": list[TreePlace],  # the same task's trees in other stages
        # with NODE where the selected turn's number belongs: they act on copies, never on the run
        "commands": list[Command],
        "policies": list[PolicyChoice],
        "problems": Problems,
    },
)

VerdictView = TypedDict("VerdictView", {"rating": str, "reason": str, "answer": str})
TurnSeconds = TypedDict("TurnSeconds", {"policy": float, "environment": float})

TurnView = TypedDict(
    "TurnView",
    {
        "id": int,
        "text": str,
        "cut": int,  # characters left out at the end; ``whole=1`` brings them
        "observation": str,
        "observationCut": int,
        "action": str,
        "tokens": list[str] | None,  # None without a tokenizer, and ``problem`` says why
        "logprobs": list[float | None],
        "reasoning": int,  # how many leading tokens are reasoning
        "forgotten": int,
        "finish": str,
        "status": str,
        "scores": dict[str, float],
        "verdict": VerdictView | None,
        "uct": float | None,  # as the search would see it now; None where it has none
        "seconds": TurnSeconds | None,
        "program": ProgramView | None,  # None where no program plays the agent's part
    },
)
Turns = TypedDict("Turns", {"turns": list[TurnView], "problem": str})

# datasets -------------------------------------------------------------------------------------------------------------

RowLine = TypedDict(
    "RowLine", {"index": int, "kind": str, "tree": str, "stage": str, "tokens": int, "targets": int, "detail": Detail}
)

DatasetView = TypedDict(
    "DatasetView",
    {
        "stage": str,
        "type": str,
        "total": int,
        "matched": int,
        "kinds": dict[str, int],
        "dropped": dict[str, int],
        "offset": int,
        "rows": list[RowLine],
    },
)

SideView = TypedDict(
    "SideView",
    {
        "name": Literal["prompt", "row", "chosen", "rejected"],
        "stage": str,
        "key": str,
        "policy": str,
        "nodes": list[int],  # -1 for inserted text
        "tokens": list[str] | None,
        "count": int,
        "mask": list[int],  # 1 where a token is learnt
        "logprobs": list[float | None],
        "advantages": list[float],
        # node, from, to; turns that the row shows otherwise than the tree has them are left out
        "spans": list[tuple[int, int, int]],
        "problem": str,
    },
)
#: Of a pair: mean log-probability of each side under the policy that drew it, and their difference; None where unknown.
Margin = TypedDict("Margin", {"chosen": float | None, "rejected": float | None, "difference": float | None})

RowView = TypedDict(
    "RowView",
    {
        "stage": str,
        "index": int,
        "total": int,
        "type": str,
        "kind": str,
        "detail": Detail,
        "sides": list[SideView],
        "margin": Margin | None,
        "rewards": dict[str, float],
        "problem": str,
    },
)

# probes: log-probabilities under each policy, computed on demand in a process of its own ------------------------------

ProbeState = Literal["running", "done", "failed"]
ProbedPolicy = TypedDict("ProbedPolicy", {"title": str, "stage": str, "logprobs": list[float | None], "problem": str})
#: Of a turn and its siblings.
Probe = TypedDict(
    "Probe",
    {"state": ProbeState, "problem": str, "seconds": float, "policies": list[ProbedPolicy], "siblings": list[int]},
)
#: Of a row: a list for each of its sides, as long as the side; None for what is not learnt.
RowProbedPolicy = TypedDict(
    "RowProbedPolicy", {"title": str, "stage": str, "logprobs": list[list[float | None] | None], "problem": str}
)
RowProbe = TypedDict(
    "RowProbe",
    {"state": ProbeState, "problem": str, "seconds": float, "policies": list[RowProbedPolicy], "siblings": list[int]},
)

# comparisons ----------------------------------------------------------------------------------------------------------

ComparedSeed = TypedDict("ComparedSeed", {"seed": int, "run": str, "state": str})
ComparedMethod = TypedDict(
    "ComparedMethod",
    # stage: its last policy's evaluation
    {"label": str, "points": list[ComparedPoint], "stage": str, "runs": list[ComparedSeed]},
)

Compare = TypedDict(
    "Compare",
    {
        "card": ComparisonCard,
        "about": dict[str, str],
        "methods": list[ComparedMethod],
        # of the last policies, paired: the first label's less the second's
        "differences": dict[str, dict[str, Contrast]],
        "states": list[ComparedState],
        "tasks": list[ComparedTask],
        "failed": dict[str, str],
        "problems": Problems,
    },
)

#: The answer to each question.
QUESTIONS: dict[str, Any] = {
    "home": Home,
    "state": State,  # asked again and again while a run is worked on
    "run": RunPage,
    "tasks": Tasks,
    "patterns": Patterns,
    "steps": StepsView,
    "forest": ForestView,
    "tree": TreeView,  # everything but the turns' texts
    "turns": Turns,
    "probe": Probe | RowProbe,
    "dataset": DatasetView,
    "row": RowView,
    "compare": Compare,
    "log": Log,
}
