"""Questions about the fictional world, with their answers, the passages that hold them and the chain of facts behind
them.

- ``single``: one fact. "In which town was Ada Kelvell born?"
- ``bridge``: a fact about something that is only described by another fact. "In which town was the author of The Salt
  Tide born?"
- ``comparison``: the same relation of two things. "Which river is longer, ..?" (an entity), "Do .. and .. lie in ..?"
  (yes or no).

The splits divide the *entities* that questions start from, 70/15/15 % of each kind, so that no fact that a question of
one split starts from starts a question of another, and no chain of facts is in two splits.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from env_servers.retrieval.world import Entity, Fact, Relation, World

#: Questions of each type in each split.
SIZES = {
    "train": {"single": 280, "bridge": 490, "comparison": 280},
    "dev": {"single": 60, "bridge": 105, "comparison": 60},
    "test": {"single": 60, "bridge": 105, "comparison": 60},
}
SHARES = {"train": 0.70, "dev": 0.85, "test": 1.0}


@dataclass(frozen=True)
class Question:
    """A question with all that is known about it.

    Attributes:
        answers: The answer, then other spellings that count.
        identity: Two questions with the same value pose the same problem in other words.
        labels: What one may select by; ``type`` and ``hops`` where they are known.
        facts: The facts to find, in the order in which they are found; empty where they are not known.
    """

    id: str
    split: str
    text: str
    answers: tuple[str, ...]
    identity: str
    labels: tuple[tuple[str, str | int], ...] = ()
    facts: tuple[Fact, ...] = ()


@cache
def fiction_questions() -> tuple[Question, ...]:
    """All questions of the default set, in a fixed order; ids are ``TYPE/NUMBER``."""
    world = World.fiction()
    starts = _starts(world)
    makers = {"single": _single, "bridge": _bridge, "comparison": _comparison}
    made: list[Question] = []
    for kind, make in makers.items():
        number = 0
        for split, sizes in SIZES.items():
            rng = random.Random(f"questions/{kind}/{split}")
            for text, answers, facts in _spread(make(world, starts[split], rng), sizes[kind], rng):
                labels = (("type", kind), ("hops", len(facts)))
                made.append(Question(f"{kind}/{number}", split, text, answers, _identity(facts), labels, facts))
                number += 1
    return tuple(made)


#: Text, answers, facts.
Draft = tuple[str, tuple[str, ...], tuple[Fact, ...]]


def _starts(world: World) -> dict[str, set[str]]:
    """The entities that the questions of each split start from."""
    starts: dict[str, set[str]] = {split: set() for split in SIZES}
    for kind, entities in world.of_kind.items():
        names = [entity.name for entity in entities]
        random.Random(f"split/{kind}").shuffle(names)
        start = 0
        for split, share in SHARES.items():
            end = round(share * len(names))
            starts[split].update(names[start:end])
            start = end
    return starts


def _spread(drafts: Iterable[Draft], count: int, rng: random.Random) -> list[Draft]:
    """``count`` of the drafts, taking turns among the relations that they chain, so that none is asked for most of the
    time."""
    groups: dict[tuple[Relation, ...], list[Draft]] = defaultdict(list)
    for draft in {_identity(draft[2]): draft for draft in drafts}.values():
        groups[tuple(fact.relation for fact in draft[2])].append(draft)
    for group in groups.values():
        rng.shuffle(group)
    turns = list(groups.values())
    rng.shuffle(turns)
    chosen: list[Draft] = []
    while turns and len(chosen) < count:
        chosen += [group.pop() for group in turns]
        turns = [group for group in turns if group]
    return chosen[:count]


def _identity(facts: tuple[Fact, ...]) -> str:
    """The chain of facts; the two sides of a comparison in a fixed order."""
    chain = [f"{fact.relation.kind}.{fact.relation.name}({fact.subject})" for fact in facts]
    compared = len(facts) == 2 and facts[0].relation == facts[1].relation
    return " | ".join(sorted(chain)) if compared else " > ".join(chain)


def _facts(world: World, names: set[str]) -> Iterator[tuple[Entity, Fact]]:
    for entity in world.entities.values():
        if entity.name in names:
            for fact in entity.facts.values():
                yield entity, fact


def _single(world: World, names: set[str], rng: random.Random) -> Iterator[Draft]:
    for entity, fact in _facts(world, names):
        yield rng.choice(fact.relation.asks).format(x=entity.said), fact.answers, (fact,)


def _bridge(world: World, names: set[str], rng: random.Random) -> Iterator[Draft]:
    for entity, first in _facts(world, names):
        if first.relation.to:
            described = first.relation.noun.format(x=entity.said)
            for second in world.entities[first.value].facts.values():
                if second.value != entity.name:
                    yield rng.choice(second.relation.asks).format(x=described), second.answers, (first, second)


def _comparison(world: World, names: set[str], rng: random.Random) -> Iterator[Draft]:
    for kind, relations in world.relations.items():
        entities = [entity for entity in world.of_kind[kind] if entity.name in names]
        for relation in relations.values():
            if relation.which:
                yield from _which(relation, entities, rng)
            if relation.same:
                yield from _same(relation, entities, rng)


def _which(relation: Relation, entities: list[Entity], rng: random.Random) -> Iterator[Draft]:
    for _ in range(len(entities) if len(entities) > 1 else 0):
        a, b = rng.sample(entities, 2)
        facts = (a.facts[relation.name], b.facts[relation.name])
        low, high = sorted((a, b), key=lambda entity: number(entity.facts[relation.name]))
        if number(facts[0]) != number(facts[1]):
            larger = rng.random() < 0.5
            assert relation.which is not None
            winner = high if larger else low
            yield (
                relation.which[larger].format(a=a.said, b=b.said),
                tuple(dict.fromkeys((winner.name, winner.said))),
                facts,
            )


def _same(relation: Relation, entities: list[Entity], rng: random.Random) -> Iterator[Draft]:
    """As many pairs that share the value as pairs that do not."""
    holders: dict[str, list[Entity]] = defaultdict(list)
    for entity in entities:
        if relation.name in entity.facts:
            holders[entity.facts[relation.name].value].append(entity)
    for sharing in (group for group in holders.values() if len(group) > 1):
        a, b = rng.sample(sharing, 2)
        others = [entity for group in holders.values() if group is not sharing for entity in group]
        for other, answer in ((b, "yes"), (rng.choice(others), "no")) if others else ():
            facts = (a.facts[relation.name], other.facts[relation.name])
            yield rng.choice(relation.same).format(a=a.said, b=other.said), (answer,), facts


def number(fact: Fact) -> int:
    """The value of a fact about a number."""
    return int(fact.value.replace(",", ""))
