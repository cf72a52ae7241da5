"""The part of the configuration that makes a method: how it samples and searches, how it revises, and what it builds from that.

Numbers that a paper gives say which.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Dedupe(StrEnum):
    none = "none"
    text = "text"
    """Siblings with the same whole turn are one node (the original)."""
    action = "action"
    """Siblings with the same action are one node."""


class Splice(StrEnum):
    executed = "executed"
    """The bad prefix and the good actions are run in the real environment; kept only if it pays."""
    paper = "paper"
    """Agent-R section 3: texts are spliced, never executed."""
    direct = "direct"
    """Direct-Revision: the whole bad trajectory, then the good one."""


class Judge(StrEnum):
    actor = "actor"
    """The current policy is asked for a verdict on each step (Agent-R)."""
    tree = "tree"
    """The first step after which the tree's mean return falls behind its best sibling's; no model call."""


class Against(StrEnum):
    expert = "expert"
    """The task's demonstration (ETO section 3.2)."""
    own = "own"
    """Another run of the policy in the same task: self-play, without an expert. Needs collect.episodes > 1."""


class Unit(StrEnum):
    trajectory = "trajectory"
    """Whole runs (ETO's own)."""
    step = "step"
    """One turn: the expert's against the policy's at the same point, by what each led to (ETO, appendix)."""
    mixture = "mixture"
    """Both."""


class Pairing(StrEnum):
    gap = "gap"
    """good - bad > beta (the released code)."""
    threshold = "threshold"
    """bad < beta and good > alpha (Agent-R Eq. 4)."""


@dataclass
class SamplingConfig:
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 256


@dataclass
class SearchConfig:
    """UCT as in Agent-R (section 3.2 and the released code); docs/agent_r.md maps every variable of the original to its key."""

    iterations: int = 8
    """Dives from the root (ITERA)."""
    max_depth: int = 20
    """A node deeper than this is terminal (MAX_DEPTH), so a path has at most max_depth + 1 actions."""
    width: int = 4
    """Completions for each expansion (N_GEN)."""
    c_uct: float = 0.25
    """Exploration constant (Eq. 5)."""
    dedupe: Dedupe = Dedupe.action
    stop_dive_at_success: bool = True
    """A dive ends as soon as one of the new siblings succeeded; the original goes on beside it."""
    enough_good: int = 4
    """Stop the search when this many successes and ...; 0 means never."""
    enough_bad: int = 2
    """... this many other ended paths are in the tree."""
    stop_hopeless_after: int = 0
    """Stop after so many dives without any reward; 0 means never."""
    max_invalid: int = 0
    """A path ends after so many invalid actions in a row; 0 means never."""


@dataclass
class DenseConfig:
    """DensePolicy's adaptive tree (docs/dense_policy.md). A node is a turn with a *label*, which says at what temperature it is drawn."""

    base: int = 10
    """Labels of a node: most children that it can have, and first rollouts of a tree."""
    max_depth: int = 8
    """Turns of a path."""
    max_invalid: int = 0
    """A path ends after so many invalid actions in a row; 0 means never (the original)."""
    window: int = 8
    """Rollouts of a batch after the first."""
    greedy_label: bool = True
    """Label 0 is drawn at temperature 0."""
    temperatures: list[float] = field(default_factory=lambda: [1.0, 0.5, 0.7])
    """Temperatures of labels 1, 2, 3, 4, ... in turn."""
    contrast_weight: float = 0.8
    """Selection scores a node by contrast_weight x (largest difference in value to a sibling) ^ contrast_power ..."""
    contrast_power: float = 0.25
    depth_weight: float = 0.2
    """... + weight x (mean turns left below the node / max_depth) ..."""
    explore_weight: float = 1.0
    """... + weight x 2 sqrt(1 + n) / (2 + n), n the node's visits."""
    stop_pairs: int = 512
    """The tree is done when it has so many pairs that `siblings` would select, its cap by task aside; 0 means never."""
    stop_rollouts: int = 1000
    """Rollouts of a tree at most."""
    stop_empty: int = 1000
    """Batches in a row in which nothing new was found to try."""


@dataclass
class ReviseConfig:
    """From pairs of paths to revision trajectories (Agent-R section 3.3)."""

    splice: Splice = Splice.executed
    alpha: list[float] = field(default_factory=lambda: [0.5, 0.7, 1.0])
    """Least return of a good path, by round; the last value holds for later rounds (paper 4.2)."""
    alpha_inclusive: bool = True
    """good >= alpha; the released code has >, which leaves nothing at alpha = 1."""
    beta: float = 0.2
    pairing: Pairing = Pairing.gap
    pairs_per_task: int = 8
    """Most pairs of a tree, deepest common ancestor first; 0 means all, in random order (the original)."""
    judge: Judge = Judge.actor
    judge_sampling: SamplingConfig = field(default_factory=lambda: SamplingConfig(temperature=0.0, max_tokens=128))
    judge_shared_prefix: bool = False
    """Judge from the first step on (the original) instead of from where the two paths part."""
    reflections: list[str] = field(
        default_factory=lambda: [
            "My last action was a mistake.",
            "That did not help.",
            "I went the wrong way.",
            "This is not what the task needs.",
            "I should correct what I just did.",
            "Looking back, that step was wrong.",
            "That was not the right step.",
            "I need to change my plan.",
        ]
    )
    """Openings of a reflection; the tree's seed and the transition choose one. A very small model needs one that it can learn to say."""
    reflect_with_reason: bool = False
    """Put the judge's reason into the reflection; the original has a fixed sentence only."""
    continue_with_policy: bool = True
    """Where the good actions no longer apply after a bad prefix, let the policy go on."""
    audit: bool = True
    """With splice=paper or direct: also run each splice in the environment and count how many do not pay."""


@dataclass
class ContrastConfig:
    """Pairs of a better and a worse run of the same task (ETO, arXiv 2403.02502, section 3.2 and its released code)."""

    against: Against = Against.expert
    unit: Unit = Unit.trajectory
    margin: float = 0.0
    """The better return must exceed the other by more than this."""
    policy_may_win: bool = True
    """A run that earns more than the expert's is chosen over it."""
    expert_is_perfect: bool = False
    """Take the expert's return to be 1 whatever was recorded (the original, in ScienceWorld and ALFWorld)."""
    extra_turns: int = 5
    """Most turns by which a rejected run may outlast the chosen one; the rest is cut off. -1 means no limit."""
    pairs_per_task: int = 1
    """Most pairs of a task of each unit, those with the largest difference first; 0 means all."""
    unfinished: bool = False
    """Also reject runs that ended because the context was full: they failed for no reason of their own (the original, in ALFWorld)."""


@dataclass
class SiblingsConfig:
    """Pairs of two turns after the same conversation, by the value of what follows them (DensePolicy)."""

    min_gap: float = 0.5
    """Least difference in value."""
    max_visits: int = 8
    """Each side needs min(floor(2 ^ mean turns below it), this) visits: deep nodes need more evidence."""
    released_visits: bool = False
    """Count visits as the released code does, 2n - 1 for n rollouts."""
    dedupe: bool = True
    """The same two texts after the same conversation are one pair."""
    pairs_per_parent: int = 0
    """Most pairs below one node, largest difference first; 0 means all."""
    pairs_per_task: int = 0
    """Most pairs of a tree, largest difference first; 0 means all."""
    tasks: int = 0
    """Keep so many tasks (of each group, with `mix`), those with most pairs first; 0 means all. With `pairs`, the density axis."""
    pairs: int = 0
    """Draw so many pairs, the same share from each task; 0 means all."""
    mix_label: str = ""
    """Task label by which `mix` names groups, such as family."""
    mix: dict[str, int] = field(default_factory=dict)
    """Pairs to draw from each group, 0 for all of it; groups that are not named are left out. Replaces `pairs`."""


@dataclass
class ExtraPairs:
    """Preference pairs from a file, trained on beside the agent's own: what keeps DensePolicy's model from drifting."""

    path: str = ""
    """JSON with prompt/chosen/rejected or conversations/chosen/rejected; see 'agentr import --help'."""
    limit: int = 0
    """Pairs to draw; 0 means all."""


@dataclass
class BuildConfig:
    good_per_task: int = 2
    """Most good trajectories of a task (shortest first); 0 means none."""
    revisions_per_task: int = 4
    max_length: int = 1024
    """Rows with more tokens are dropped and counted."""
    train_on_invalid: bool = False
    """Also train on turns that the environment did not understand (the original does, in good trajectories)."""
    earlier_rounds: int = 0
    """Own rows of so many rounds before this one are trained on again."""
    demonstrations: float = 0.0
    """Share of rows taken from the demonstrations."""
    general_path: str = ""
    """General conversations in ShareGPT format."""
    eta: float = 1.0
    """Share of agent rows when general_path is set (Eq. 6; 0.2 in the paper)."""
    balance_tasks: bool = False
    """Repeat rows of tasks with few, so that every task weighs the same."""
    contrast: ContrastConfig = field(default_factory=ContrastConfig)
    """For recipe eto."""
    siblings: SiblingsConfig = field(default_factory=SiblingsConfig)
    """For recipe dense_policy."""
    extra_pairs: list[ExtraPairs] = field(default_factory=list)
