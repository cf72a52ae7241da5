"""The flywheel against a real environment server: what each operator makes is what it says."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentr.collect.evolver import EvolveConfig, Evolver
from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob, run_job
from agentr.collect.operators import OPERATORS, Needs, Operator, operator_problems
from agentr.collect.units import StageProgress
from agentr.config.checks import find_problems
from agentr.config.policy import AdvisorConfig, Who
from agentr.envs.client import EnvClient
from agentr.envs.server import EnvServer
from agentr.methods.et_agent.evolve import Evolve
from agentr.methods.et_agent.rows import FilterConfig, count_operators, evolved_rows
from agentr.rows.targets import Targets
from agentr.search import Origin, Sample, Tree
from agentr.search.episode import EVOLVED, Episode, episodes
from agentr.search.evolution import Evolution
from agentr.search.stored import from_json, to_json
from agentr.store.forest import Forest
from agentr.store.rows import Dropped, Row
from agentr.types import CallStatus, Outcome, Task
from tests.collect.test_grow import play
from tests.collect.test_shorten import STEPS, reward_of
from tests.players import sloppy_agent
from tests.trees import add, child, new_tree

ALL = Targets(invalid=True)
EXECUTED = {"rollout", "drop_redundant", "correct_flawed", "hint_step", "hint_end"}
ASKED = set(OPERATORS) - EXECUTED
EVERYTHING = EvolveConfig(
    right=["rollout", "drop_redundant"], wrong=["rollout", "correct_flawed", "hint_step", "hint_end"]
)


def evolved(server: EnvServer, tmp_path: Path, config: EvolveConfig = EVERYTHING) -> list[Tree]:
    """Trees of an agent that does nonsense now and then, evolved."""

    async def scenario(env: EnvClient, tasks: list[Task]) -> list[Tree]:
        agent = await sloppy_agent(env, tasks)
        plain = TreeJob(
            folder=tmp_path / "collect", tasks=tuple(tasks), seed=1, policy="p", work=Grow(Sample(1, STEPS))
        )
        await run_job(plain, agent, StageProgress())
        Forest(plain.folder).seal(stage={}, progress={})
        job = replace(plain, folder=tmp_path / "evolve", work=Evolve(config, STEPS), source=plain.folder)
        await run_job(job, agent, StageProgress())
        return list(Forest(job.folder))

    return play(server, scenario, limit=12)


@pytest.fixture(scope="module")
def trees(server: EnvServer, tmp_path_factory: pytest.TempPathFactory) -> list[Tree]:
    return evolved(server, tmp_path_factory.mktemp("trees"))


def attempts(trees: Sequence[Tree], operator: str) -> list[tuple[Evolution, Episode, Episode]]:
    """Uses of an operator of which an episode came: with the episode it started from, and that one."""
    found = [(tree, made) for tree in trees for made in tree.evolutions if made.operator == operator and made.end >= 0]
    assert found, f"nothing came of {operator}: the test would show nothing"
    return [
        (made, Episode(tree, tuple(tree.path(made.parent))), Episode(tree, tuple(tree.path(made.end))))
        for tree, made in found
    ]


def test_every_operator_is_tried_on_the_episodes_it_takes(trees: list[Tree]) -> None:
    for tree in trees:
        for made in tree.evolutions:
            right = tree.nodes[made.parent].outcome is Outcome.SUCCESS
            assert made.operator in (EVERYTHING.right if right else EVERYTHING.wrong)
    assert {made.operator for tree in trees for made in tree.evolutions} == EXECUTED


def test_an_episode_without_its_redundant_turns_earns_as_much_in_the_environment_itself(trees: list[Tree]) -> None:
    for made, before, after in attempts(trees, "drop_redundant"):
        actions = [node.action for node in after.path if node.action]
        assert len(after.path) < len(before.path) and after.earned >= before.earned
        assert reward_of(before.tree.task, actions) == after.earned
        assert [n.id for n in after.path[: made.kept]] == [n.id for n in before.path[: made.kept]]
        texts = iter([node.text for node in before.path])
        assert all(node.text in texts for node in after.path), "turns are taken again as they were, in their order"
        assert all(node.origin is Origin.REPLAY for node in after.path[made.kept :])


def test_no_turn_is_left_that_the_environment_can_do_without(trees: list[Tree]) -> None:
    for _, before, after in attempts(trees, "drop_redundant"):
        for left_out in range(len(after.path) - 1):
            actions = [n.action for place, n in enumerate(after.path) if place != left_out and n.action]
            # Turns before the last one that was left out were tried with the turns that were left out since.
            assert reward_of(before.tree.task, actions) < before.earned or left_out >= before.leaf.depth - 1


def test_a_flawed_turn_is_one_before_which_the_policy_succeeds(trees: list[Tree]) -> None:
    for made, before, after in attempts(trees, "correct_flawed"):
        assert after.succeeded and not before.succeeded
        assert made.kept == made.turn - 1 and after.path[made.kept].id != before.path[made.kept].id
        assert [n.id for n in after.path[: made.kept]] == [n.id for n in before.path[: made.kept]]
        tree, flawed = before.tree, before.path[made.turn - 1]
        later = [n for n in tree.ended() if n.id < made.end and flawed.id in {above.id for above in tree.path(n.id)}]
        drawn_then = [n for n in later if n.origin is Origin.POLICY and n.id > made.parent]
        assert not any(n.outcome is Outcome.SUCCESS for n in drawn_then[-EVERYTHING.samples :])


@pytest.mark.parametrize("operator", ["hint_step", "hint_end"])
def test_a_hint_is_a_whole_sentence_at_the_start_of_a_thought(operator: str, trees: list[Tree]) -> None:
    """The original draws one character of it (spec of arXiv 2601.06860's code)."""
    for made, before, after in attempts(trees, operator):
        hinted = after.path[made.kept]
        assert hinted.origin is Origin.REWRITE and any(
            hinted.text.startswith(f"Thought: {hint}") for hint in EVERYTHING.hints
        )
        assert [n.id for n in after.path[: made.kept]] == [n.id for n in before.path[: made.kept]]
        assert made.kept < len(before.path)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_trees(server: EnvServer, tmp_path: Path, trees: list[Tree]) -> None:
    again = evolved(server, tmp_path)
    assert [to_json(tree) for tree in again] == [to_json(tree) for tree in trees]
    assert [from_json(to_json(tree)).evolutions for tree in trees] == [tree.evolutions for tree in trees]


def test_counts_of_visits_hold_and_no_failed_attempt_stays(trees: list[Tree]) -> None:
    for tree in trees:
        ended = [n for n in tree.ended() if n.origin in EVOLVED]
        assert tree.root.visits == len(ended) and tree.root.value == pytest.approx(sum(n.reward for n in ended))
        assert all(node.id == place for place, node in enumerate(tree.nodes))
        assert not [n for n in tree.nodes if n.is_leaf and n.outcome is None]


def test_no_more_is_drawn_than_was_said(trees: list[Tree]) -> None:
    most = Evolve(EVERYTHING, STEPS).max_completions(STEPS)
    assert all(sum(made.completions for made in tree.evolutions) <= most for tree in trees)


def test_an_episode_is_chosen_once_and_right_ones_first(trees: list[Tree]) -> None:
    for tree in trees:
        parents = list(dict.fromkeys(made.parent for made in tree.evolutions))
        for place, parent in enumerate(parents[1:], 1):
            first = next(made for made in tree.evolutions if made.parent == parent)
            there = [n for n in tree.ended() if n.id < max(first.end, parent + 1) and n.id not in parents[:place]]
            if tree.nodes[parent].outcome is not Outcome.SUCCESS:
                assert not any(n.outcome is Outcome.SUCCESS and n.id < parent for n in there)


def test_rows_are_right_well_formed_and_learn_no_flawed_turn(trees: list[Tree]) -> None:
    config, found, kinds = FilterConfig(), 0, set()
    for tree in trees:
        rows = [row for row in evolved_rows(tree, config, 1.0, "", ALL) if isinstance(row, Row)]
        found += len(rows)
        assert len(rows) <= config.per_task
        hinted = [made for made in tree.evolutions if made.operator.startswith("hint") and made.kept]
        flawed = [(made.kept, tree.path(made.parent)[made.kept - 1].id) for made in hinted]
        actions = set()
        for row in rows:
            path = [tree.nodes[node] for node in row.provenance.nodes]
            kinds.add(row.provenance.detail["operator"])
            assert path[-1].reward == 1.0 and all(node.valid and node.action for node in path)
            hidden = max((kept for kept, node in flawed if node in row.provenance.nodes), default=0)
            assert sum(row.loss_mask) == sum(len(node.token_ids) for node in path[hidden:])
            actions.add(tuple(node.action for node in path))
        assert len(actions) == len(rows) and len({len(path) for path in actions}) <= 1
        candidates = list(evolved_rows(tree, config, 1.0, "", ALL))
        assert len(candidates) == len(list(episodes(tree, "", EVOLVED))), "each episode is a row or dropped"
    assert found and {"drop_redundant", "correct_flawed"} <= kinds


def test_the_original_learns_flawed_turns_too() -> None:
    tree = new_tree()
    bad = add(tree, 0, child("look", token_ids=(1, 2), logprobs=(-0.5, -0.5)))
    add(tree, bad.id, child("push", 0.0, Outcome.FAILURE))
    end = add(tree, bad.id, child("hinted", 1.0, Outcome.SUCCESS), Origin.REWRITE)
    tree.evolutions.append(Evolution(operator="hint_step", parent=2, turn=1, kept=1, end=end.id))
    for flawed, trained in ((False, 1), (True, 3)):
        (row,) = (
            row
            for row in evolved_rows(tree, FilterConfig(train_on_flawed=flawed), 1.0, "", ALL)
            if isinstance(row, Row)
        )
        assert sum(row.loss_mask) == trained


def test_a_flawed_turn_is_context_in_whatever_comes_after_it() -> None:
    """An episode that is evolved of a hinted one begins with the same flawed turn."""
    tree = new_tree()
    bad = add(tree, 0, child("look"))
    add(tree, bad.id, child("push", 0.0, Outcome.FAILURE))
    hinted = add(tree, bad.id, child("hinted"), Origin.REWRITE)
    first = add(tree, hinted.id, child("wait"))
    end = add(tree, first.id, child("open", 1.0, Outcome.SUCCESS))
    shorter = add(tree, hinted.id, child("open", 1.0, Outcome.SUCCESS), Origin.REPLAY)
    tree.evolutions += [
        Evolution(operator="hint_step", parent=2, turn=1, kept=1, end=end.id),
        Evolution(operator="drop_redundant", parent=end.id, turn=3, kept=2, end=shorter.id),
    ]
    for flawed, mask in ((False, (0, 0, 0, 0, 0, 1, 0, 1)), (True, (0, 0, 0, 1, 0, 1, 0, 1))):
        row = next(
            row
            for row in evolved_rows(tree, FilterConfig(train_on_flawed=flawed), 1.0, "", ALL)
            if isinstance(row, Row)
        )
        assert row.provenance.nodes[-1] == shorter.id and row.loss_mask == mask


def test_turns_that_the_configuration_does_not_choose_are_context_and_counted() -> None:
    tree = new_tree()
    add(tree, add(tree, 0, child("I call. I call.", valid=False)).id, child("second", 1.0, Outcome.SUCCESS))
    for targets, mask, counted in (
        (ALL, (0, 0, 0, 1, 0, 1), 0),
        (replace(ALL, said_twice=False), (0, 0, 0, 0, 0, 1), 1),
        (replace(ALL, invalid=False), (0, 0, 0, 0, 0, 1), 0),
    ):
        (row,) = evolved_rows(tree, FilterConfig(failed_calls=1), 1.0, "", targets)
        assert isinstance(row, Row) and row.loss_mask == mask
        assert row.provenance.detail.get("context: sentence said twice", 0) == counted


def test_the_released_code_learns_observations_too() -> None:
    tree = new_tree()
    add(tree, add(tree, 0, child("first")).id, child("second", 1.0, Outcome.SUCCESS))
    for observations, mask in ((False, (0, 0, 0, 1, 0, 1)), (True, (0, 0, 0, 1, 1, 1))):
        (row,) = evolved_rows(tree, FilterConfig(train_on_observations=observations), 1.0, "", ALL)
        assert isinstance(row, Row) and row.loss_mask == mask


def test_all_right_episodes_or_those_with_the_fewest_calls() -> None:
    tree = new_tree()
    add(tree, 0, child("one", 1.0, Outcome.SUCCESS))
    add(tree, add(tree, 0, child("first")).id, child("second", 1.0, Outcome.SUCCESS))
    for fewest, lengths in ((True, [1]), (False, [1, 2])):
        rows = evolved_rows(tree, FilterConfig(fewest_calls=fewest), 1.0, "", ALL)
        assert [len(row.provenance.nodes) for row in rows if isinstance(row, Row)] == lengths


def test_why_an_episode_is_no_row() -> None:
    tree = new_tree()
    for action, reward, outcome in (
        ("a", 1.0, Outcome.SUCCESS),
        ("a", 1.0, Outcome.SUCCESS),
        ("b", 0.0, Outcome.FAILURE),
        ("c", 1.0, Outcome.SUCCESS),
        ("d", 1.0, Outcome.SUCCESS),
        ("e", 0.0, None),
    ):
        add(tree, 0, child(action, reward, outcome, valid=action != "c"))
    add(tree, 6, child("f", 1.0, Outcome.SUCCESS))
    rows = evolved_rows(tree, FilterConfig(per_task=1), 1.0, "", ALL)
    assert [(row.reason if isinstance(row, Dropped) else "row", row.provenance.nodes) for row in rows] == [
        ("row", (1,)),
        ("episode with the same actions as another", (2,)),
        ("episode with too low a return", (3,)),
        ("episode with a failed call or a malformed turn", (4,)),
        ("episodes over the cap", (5,)),
        ("episode with more calls than another of its task", (6, 7)),
    ]


def test_episodes_are_left_out_by_how_their_actions_came_out() -> None:
    tree = new_tree()
    for status in CallStatus:
        call = add(tree, 0, child(f"call {status}", status=status, valid=not status.failed))
        add(tree, call.id, child("answer", 1.0, Outcome.SUCCESS))

    def kept(**filter: Any) -> list[str]:
        rows = evolved_rows(tree, FilterConfig(per_task=0, **filter), 1.0, "answer", ALL)
        return [tree.nodes[row.provenance.nodes[0]].status if isinstance(row, Row) else row.reason for row in rows]

    failed = "episode with a failed call or a malformed turn"
    assert kept() == ["ok", "empty", failed, failed, failed]
    out = [CallStatus.empty, CallStatus.timeout]
    assert kept(without=out) == ["ok", "episode with an action that came out as empty", failed, failed, failed]
    assert kept(without=out, failed_calls=1) == [
        "ok",
        "episode with an action that came out as empty",
        "error",
        "episode with an action that came out as timeout",
        "limit",
    ]


def test_the_table_counts_what_came_of_each_operator(trees: list[Tree]) -> None:
    counted = count_operators(trees, "")
    assert set(counted) == EXECUTED
    shorter = counted["drop_redundant"]
    assert 0 < shorter.made < shorter.tried and shorter.tried - shorter.made == shorter.reasons["every turn was needed"]
    assert shorter.right_before == shorter.right_after == shorter.made and shorter.calls_after < shorter.calls_before
    assert shorter.completions == 0 < shorter.env_steps and counted["correct_flawed"].completions > 0


async def again(evolver: Evolver, episode: Episode) -> Evolution:
    """The first turn of an episode, and the policy from there."""
    return Evolution(parent=episode.leaf.id, turn=1, kept=1, end=await evolver.go_on(episode.path[0].id))


AGAIN = Operator(again, (Needs.right, Needs.wrong), lambda config, steps: steps)


def test_an_operator_of_ones_own_is_used_and_counted_by_its_name(server: EnvServer, tmp_path: Path) -> None:
    name = f"{__name__}:AGAIN"
    config = EvolveConfig(evolutions=1, right=[name], wrong=[name])
    assert not list(operator_problems(config))
    trees = evolved(server, tmp_path, config)
    for _, before, after in attempts(trees, name):
        assert before.path[0] is after.path[0] and before.leaf is not after.leaf
    assert count_operators(trees, "")[name].made > 0


@pytest.mark.parametrize(
    ("changes", "key", "says"),
    [
        ({"right": ["rollouts"]}, "right", "there is no operator 'rollouts'. Did you mean 'rollout'"),
        ({"right": ["tests.collect.nowhere:THIS"]}, "right", "cannot be imported"),
        ({"right": ["tests.methods.test_et_agent_evolve:STEPS"]}, "right", "is no operator"),
        ({"right": ["correct_flawed"]}, "right", "no operator for an episode that is right"),
        ({"wrong": ["drop_redundant"]}, "wrong", "There are rollout, correct_flawed"),
        ({"hints": []}, "hints", "at least one sentence"),
        ({"samples": 0}, "samples", "greater than 0"),
        ({"teacher": AdvisorConfig(who=Who.openai)}, "teacher.openai.model", "Name the model"),
    ],
)
def test_what_cannot_be(changes: dict[str, Any], key: str, says: str) -> None:
    config = EvolveConfig(**changes)
    (problem,) = [*operator_problems(config), *find_problems(config)]
    assert problem.key == key and says in str(problem)
