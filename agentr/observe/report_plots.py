"""The plots of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from markupsafe import Markup

from agentr.observe.report_tables import percent
from agentr.observe.summary import ArmSummary, RunSummary
from agentr.observe.svg import Curve, Plot, curves_plot, named, stacks, ticks
from agentr.store.layout import ArmKind

Line = dict[str, Any]

#: Most components of a reward that have a plot.
REWARDS = 8


def success_plot(summary: RunSummary) -> Markup:
    """Held-out success by round with intervals; rounds and control are two lines from the warm start."""
    measured = [(arm.arm, arm.evaluation.success) for arm in summary.arms if arm.evaluation]
    if not measured:
        return Markup("")
    rounds = max(arm.number for arm, _ in measured)
    top = ticks(0, max(0.05, *(found.high for _, found in measured)))
    plot = Plot("Success on held-out tasks with 95 % intervals, %", (-0.4, max(1, rounds) + 0.4), (0, min(1.0, top[-1])))
    plot.y_axis([(value, f"{100 * value:.0f}") for value in top if value <= 1])
    every = -(-rounds // 6) or 1
    names = [(0, "warm start"), *((at, f"{at}" if rounds > 3 else f"round {at}") for at in range(1, rounds + 1) if at % every == 0)]
    plot.x_axis("round" if rounds > 3 else "success in %", names)
    kinds = ((ArmKind.ROUND, "self-training", 0, 0.0), (ArmKind.CONTROL, "control: demonstrations only", 1, 0.07))
    for kind, label, ink, apart in kinds:
        of_kind = [arm for arm, _ in measured if arm.kind is kind]
        if kind is ArmKind.CONTROL and not of_kind:
            continue
        points = [
            (rounds if arm.kind is ArmKind.CONTROL else arm.number, found)
            for arm, found in measured
            if arm.kind is kind or (arm.kind is ArmKind.WARM_START)
        ]
        plot.line([(at + apart * (at > 0), found.mean) for at, found in points], ink)
        for at, found in points:
            if at or ink == 0:
                plot.upright(at + apart * (at > 0), found.low, min(1.0, found.high), ink)
                plot.mark(at + apart * (at > 0), found.mean, ink)
        plot.explain(label, ink)
    return plot.figure(", ".join(f"{arm.title} {percent(found.mean, 1)}" for arm, found in measured))


def time_plot(summary: RunSummary) -> Markup:
    """The seconds of each policy's stages."""
    return stacks("Work on the stages of each policy", [(arm.title, arm.seconds) for arm in summary.arms], "seconds")


def training_plots(summary: RunSummary) -> list[Markup]:
    """The loss of every training by its steps."""
    return _some([_measure(summary, "Loss", "loss")])


def preference_plots(summary: RunSummary) -> list[Markup]:
    """What DPO did to both sides of the pairs, step by step."""
    measures = {
        "Reward margin": "reward_margin",
        "Pairs the right way round": "reward_accuracy",
        "Log-probability of the chosen side": "chosen_logprob",
        "Log-probability of the rejected side": "rejected_logprob",
    }
    return _some(_measure(summary, title, name) for title, name in measures.items())


def online_plots(summary: RunSummary) -> list[Markup]:
    """What online training did, step by step: success of the rollouts and on the validation tasks, rewards, tokens, entropy, and groups
    without signal."""
    if not any(arm.steps for arm in summary.arms):
        return []
    rewards = list(dict.fromkeys(name for arm in summary.arms for line in arm.steps for name in line.get("rewards", {})))
    gated = any(line.get("gated_groups") for arm in summary.arms for line in arm.steps)
    validation = _curves(summary, _steps, lambda line: line["validation"], dots=True)
    return _some(
        [
            curves_plot("Success of rollouts", [*_curves(summary, _steps, lambda line: line.get("success")), *validation]),
            *(_online(summary, f"Reward: {name}", lambda line, name=name: line.get("rewards", {}).get(name)) for name in rewards[:REWARDS]),
            _online(summary, "Tokens of a rollout", lambda line: line["tokens"]),
            _measure(summary, "Entropy", "entropy"),
            _online(summary, "Share of groups without signal", lambda line: line["silent_groups"] / max(1, line["groups"])),
            _online(
                summary,
                "Of these, silenced by the gate",
                lambda line: line.get("gated_groups", 0) / max(1, line["groups"]) if gated else None,
            ),
        ]
    )


def pareto_plots(summary: RunSummary) -> list[Markup]:
    """How much the episodes of each task differed, and which tasks were chosen by that."""
    return [_pareto(arm) for arm in summary.arms if arm.differing]


def _pareto(arm: ArmSummary) -> Markup:
    points = {
        chosen: Counter((one["calls"], one["earned"]) for one in arm.differing if one["chosen"] is chosen) for chosen in (False, True)
    }
    calls, earned = ([place[axis] for counted in points.values() for place in counted] for axis in (0, 1))
    xs, ys = ticks(min(calls), max(calls)), ticks(min(earned), max(earned))
    plot = Plot(f"{arm.title}: dispersion of calls (across) and of returns (up)", (xs[0], xs[-1]), (ys[0], ys[-1]))
    plot.y_axis(named(ys))
    plot.x_axis("dispersion of calls; upwards: of returns", named(xs))
    for chosen, counted in points.items():
        for (x, y), count in sorted(counted.items())[:2000]:
            plot.mark(x, y, int(chosen), min(9.0, 2 + count**0.5))
        plot.explain(f"{'chosen' if chosen else 'left out'}: {counted.total()}", int(chosen))
    return plot.figure(f"{points[True].total()} tasks chosen, {points[False].total()} left out")


def _measure(summary: RunSummary, title: str, name: str) -> Markup:
    """A plot of what training logged, a curve for each policy."""
    return curves_plot(title, _curves(summary, lambda arm: arm.curve, lambda line: line.get(name)))


def _online(summary: RunSummary, title: str, value: Callable[[Line], Any]) -> Markup:
    """A plot of what there is to say of each step of online training."""
    return curves_plot(title, _curves(summary, _steps, value))


def _steps(arm: ArmSummary) -> list[Line]:
    return arm.steps


def _curves(
    summary: RunSummary, lines: Callable[[ArmSummary], list[Line]], value: Callable[[Line], Any], *, dots: bool = False
) -> list[Curve]:
    """A curve for each policy, each in the colour that the policy has in all plots."""
    return [
        Curve(
            f"{arm.title}, dots: validation" if dots else arm.title,
            [(line["step"], found if isinstance(found := value(line), int | float) else None) for line in lines(arm) if "step" in line],
            ink,
            dots,
        )
        for ink, arm in enumerate(summary.arms)
    ]


def _some(found: Iterable[Markup]) -> list[Markup]:
    return [plot for plot in found if plot]
