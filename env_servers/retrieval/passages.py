"""Passages of two to five sentences about the things of the fictional world: the default corpus."""

import random
from functools import cache

from env_servers.retrieval.base import Passage
from env_servers.retrieval.world import Entity, World

#: Share of sentences that say the full name again; the others use a pronoun or the kind ("the town").
NAME_AGAIN = 0.25


@cache
def fiction() -> tuple[Passage, ...]:
    """One passage for each entity, which states all facts of which the entity is the subject; titles are the entities'
    names."""
    world = World.fiction()
    return tuple(
        Passage(f"fiction/{i}", entity.name, passage_of(world, entity))
        for i, entity in enumerate(world.entities.values())
    )


def passage_of(world: World, entity: Entity) -> str:
    """The passage about an entity: a lead, the facts that the lead leaves out, and one or two sentences that nobody
    asks about."""
    rng = random.Random(f"passage/{entity.name}")
    about = world.kinds[entity.kind]
    phrases = {name: fact.phrase for name, fact in entity.facts.items()}
    lead = rng.choice(about["leads"])
    rest = [rng.choice(fact.relation.says) for name, fact in entity.facts.items() if f"{{{name}}}" not in lead]
    values = [fact.phrase for name, fact in entity.facts.items() if f"{{{name}}}" not in lead]
    sentences = [
        template.format(s=entity.said if rng.random() < NAME_AGAIN else rng.choice(entity.refers), v=value)
        for template, value in zip(rest, values, strict=True)
    ]
    fillers = rng.sample(about["fillers"], rng.randint(1, 2) if len(sentences) < 3 else rng.randint(0, 1))
    sentences += [template.format(s=rng.choice(entity.refers)) for template in fillers]
    rng.shuffle(sentences)
    return " ".join(s[0].upper() + s[1:] for s in [lead.format(s=entity.said, **phrases), *sentences])
