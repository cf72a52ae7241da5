"""The summary of each online step: its numbers, for people, and which of them look like a collapse."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from agentr.cluster.causes import Cause, CauseKind
from agentr.observe.progress import Reporter
from agentr.observe.troubles import Event, note
from agentr.rewards.apart import NO_REWARD
from agentr.rewards.group import Group
from agentr.rewards.judge import agreement
from agentr.rows.advantages import differ
from agentr.store.dataset import iter_rows, read_manifest
from agentr.store.files import append_line, read_lines
from agentr.store.layout import STEPS
from agentr.store.rows import Rollout
from agentr.train.online_job import OnlineJob


class StepNotes:
    """The lines of ``steps.jsonl``, one of each step.

    Args:
        stage: Name of the stage of the rollouts.
        event: Notes an event of the run.
    """

    def __init__(self, job: OnlineJob, stage: str, reporter: Reporter, event: Event) -> None:
        self._job, self._stage, self._reporter, self._event = job, stage, reporter, event
        self._alarms: set[str] = set()
        self._silent = False

    def lines(self) -> dict[int, dict[str, Any]]:
        """Returns the lines by step."""
        return {line["step"]: line for line in read_lines(self._job.dataset / STEPS)}

    def note(self, step: int, groups: Sequence[Group], manifest: dict[str, Any]) -> None:
        """Writes down the summary of a step that is none of ``lines``, and warns of what looks like a collapse.

        Args:
            manifest: Of the step's trees.
        """
        line = {"step": step, **describe(groups, manifest), **rewarded(list(iter_rows(self._job.rows_of(step))))}
        line["lost_groups"] += read_manifest(self._job.rows_of(step))["dropped"].get(NO_REWARD, 0)
        first = self.lines().get(1, line)
        append_line(self._job.dataset / STEPS, line)
        entropy = next(
            (trained["entropy"] for trained in reversed(self._job.read_metrics()) if "entropy" in trained), None
        )
        for alarm in alarms(line, first, entropy):
            if alarm not in self._alarms:
                self._alarms.add(alarm)
                self._reporter.message(f"        online step {step}: {alarm}", "yellow")
                self._event("online_alarm", step=step, alarm=alarm)
        silent = bool(line["groups"]) and line["silent_groups"] == line["groups"]
        if silent != self._silent:
            self._silent = silent
            what = "every tree is identical in its rewards: there is nothing to learn from"
            evidence = f"in all {line['groups']} tasks of online step {step} the rollouts are worth the same"
            hint = (
                "Choose other tasks (collect.tasks), rewards (method.rewards) or more method.episodes; "
                "method.max_tasks draws others."
            )
            note(self._event, self._stage, [Cause(CauseKind.trees_identical, what, evidence, hint)] if silent else [])

    def said(self, step: int) -> str:
        """Returns what came of a step in a few words, for who watches; nothing before the first."""
        line = self.lines().get(step)
        if line is None:
            return ""
        reward = f", reward {line['rewards']['total']:.2f}" if "total" in line["rewards"] else ""
        judged = [share for name, share in line.items() if name.endswith("_agreement") and share is not None]
        agrees = f", judge agrees {100 * fmean(judged):.0f} %" if judged else ""
        return f"success {100 * line['success']:.0f} %, calls {line['calls']:.2f}{reward}{agrees}"


def describe(groups: Sequence[Group], manifest: dict[str, Any]) -> dict[str, Any]:
    """Returns the summary of the rollouts of a step: success, calls, lengths, cost, seconds."""
    episodes = [episode for group in groups for episode in group.episodes]
    return {
        "version": manifest["stage"]["version"],
        "episodes": len(episodes),
        "success": round(fmean(e.succeeded for e in episodes), 5) if episodes else 0.0,
        "calls": round(fmean(e.calls for e in episodes), 4) if episodes else 0.0,
        "turns": round(fmean(len(e.path) for e in episodes), 4) if episodes else 0.0,
        "tokens": round(fmean(e.tokens for e in episodes), 3) if episodes else 0.0,
        "malformed": round(fmean(e.malformed for e in episodes), 5) if episodes else 0.0,
        **{
            name: manifest["progress"]["counts"].get(name, 0)
            for name in ("completions", "completion_tokens", "env_steps_executed")
        },
        **manifest["stage"]["seconds"],
    }


def rewarded(rows: Sequence[Rollout]) -> dict[str, Any]:
    """Returns the summary of the rows of a step: groups with and without a signal, rewards by component, and how far a
    judge orders the rollouts of a task as the environment's return does."""
    names = sorted({name for row in rows for name in row.rewards})
    groups: dict[str, list[Rollout]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    silent = [group for group in groups.values() if all(row.silent for row in group)]
    gated = {
        "gated_rows": sum("gate" in row.rewards for row in rows),
        "gated_groups": sum(differ([row.rewards.get("gate", 0.0) for row in group]) for group in silent),
    }
    rewards = {name: round(fmean(row.rewards.get(name, 0.0) for row in rows), 5) for name in names}
    agreed = {}
    for name in (name for name in names if name.startswith("judge/")):
        both = [[(float(r.provenance.detail["earned"]), r.rewards[name]) for r in group] for group in groups.values()]
        share, pairs = agreement(both)
        agreed |= {f"{name}_agreement": round(share, 5) if pairs else None, f"{name}_pairs": pairs}
    lost = sum(any("lost" in row.rewards for row in group) for group in groups.values())
    counts = {"rows": len(rows), "groups": len(groups), "silent_groups": len(silent), "lost_groups": lost}
    return {**counts, **gated, **agreed, "rewards": rewards}


#: Entropy in nats a token below which a policy has all but one choice; and how many times as long as at first rollouts
#: have run off.
COLLAPSED, RUN_OFF = 0.01, 3.0


def alarms(line: dict[str, Any], first: dict[str, Any], entropy: float | None) -> Iterator[str]:
    """Yields what in a step looks like a collapse, in words.

    Args:
        line: The summary of the step.
        first: The same of the first step.
        entropy: Mean entropy of a token in the last step that was trained on; None before the first.
    """
    if line["groups"] and line["silent_groups"] == line["groups"]:
        yield (
            "all rollouts of each task are worth the same: there is nothing to learn from; choose other tasks, rewards "
            "or more episodes"
        )
    if first["tokens"] and line["tokens"] > RUN_OFF * first["tokens"]:
        yield (
            f"rollouts are over {RUN_OFF:g} times as long as at first: give lengths a price (reward length), or lower "
            "the learning rate"
        )
    if entropy is not None and entropy < COLLAPSED:
        yield (
            f"the entropy is below {COLLAPSED:g}: rollouts are hardly different any more; lower the learning rate, or "
            "set grpo.entropy"
        )
