"""A fictional world: a few hundred named things and the facts that tie them together.

It is the default corpus (`passages.py` writes it) and the source of the default questions
(`env_servers/searchqa/questions.py` asks for it). Being invented, it can be published with the code, and no language
model knows its answers without searching. Everything follows from ``fiction.yaml`` and fixed seeds: the same world in
every process.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

import yaml

SPEC = Path(__file__).parent / "fiction.yaml"


@dataclass(frozen=True)
class Relation:
    """A fact that every entity of a kind has; ``fiction.yaml`` explains the texts.

    Attributes:
        to: Kind of the entities that are its values; empty where values are words or numbers.
        rule: How values are drawn.
    """

    name: str
    kind: str
    noun: str
    asks: tuple[str, ...]
    says: tuple[str, ...] = ()
    which: tuple[str, str] | None = None
    same: tuple[str, ...] = ()
    to: str = ""
    rule: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Fact:
    """One thing that is so.

    Attributes:
        value: The answer to the relation's question; the name of an entity where the relation has ``to``.
        answers: ``value`` and other spellings of it.
        phrase: The value as it stands in a sentence ("412 kilometres", "the River Keltow").
    """

    subject: str
    relation: Relation
    value: str
    answers: tuple[str, ...]
    phrase: str


@dataclass(frozen=True)
class Entity:
    """A named thing.

    Attributes:
        said: The name as it stands in a sentence, with its article.
        refers: Other ways to speak of it in its own passage.
        facts: By relation, in the order of ``fiction.yaml``.
    """

    name: str
    kind: str
    said: str
    refers: tuple[str, ...]
    facts: dict[str, Fact] = field(default_factory=dict)


class World:
    """All entities, by name and by kind.

    Attributes:
        kinds: Kind -> its part of ``fiction.yaml`` (leads, fillers).
        relations: Kind -> relation name -> relation.
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.kinds: dict[str, dict[str, Any]] = spec["kinds"]
        self.relations = {
            kind: {name: _relation(name, kind, about) for name, about in data["relations"].items()}
            for kind, data in self.kinds.items()
        }
        self.entities: dict[str, Entity] = {}
        self.of_kind: dict[str, list[Entity]] = {kind: self._name_entities(kind, spec["words"]) for kind in self.kinds}
        relations = [relation for of_kind in self.relations.values() for relation in of_kind.values()]
        # needs the facts of what it chooses among
        for relation in sorted(relations, key=lambda relation: "among" in relation.rule):
            self._draw_facts(relation)
        for entity in self.entities.values():
            ordered = {name: entity.facts[name] for name in self.relations[entity.kind] if name in entity.facts}
            entity.facts.clear()
            entity.facts.update(ordered)

    @staticmethod
    @cache
    def fiction() -> World:
        """The one world of this package."""
        return World(yaml.safe_load(SPEC.read_text(encoding="utf-8")))

    def _name_entities(self, kind: str, words: Mapping[str, list[str]]) -> list[Entity]:
        rng = random.Random(f"names/{kind}")
        about = self.kinds[kind]
        made: list[Entity] = []
        while len(made) < about["count"]:
            pattern = rng.choice(about["names"])
            name = pattern.format_map({slot: rng.choice(words[slot]) for slot in _slots(pattern)})
            if name not in self.entities:
                refers = about.get("refers") or ["she" if "{women}" in pattern else "he", name.rsplit(" ", 1)[-1]]
                entity = Entity(name, kind, f"the {name}" if about.get("article") else name, tuple(refers))
                self.entities[name] = entity
                made.append(entity)
        return made

    def _draw_facts(self, relation: Relation) -> None:
        rng = random.Random(f"facts/{relation.kind}/{relation.name}")
        rule = relation.rule
        for entity in self.of_kind[relation.kind]:
            if rng.random() >= rule.get("share", 1.0):
                continue
            if relation.to:
                value = rng.choice(self._candidates(relation, entity)).name
            elif "words" in rule:
                value = rng.choice(rule["words"])
            else:
                number = self._number(rule, entity, rng)
                value = f"{number:,}" if rule.get("thousands") else str(number)
            entity.facts[relation.name] = self._fact(entity, relation, value)

    def _candidates(self, relation: Relation, entity: Entity) -> list[Entity]:
        candidates = self.of_kind[relation.to]
        if "among" in relation.rule:
            candidates = [other for other in candidates if other.facts[relation.rule["among"]].value == entity.name]
        return candidates

    def _number(self, rule: Mapping[str, Any], entity: Entity, rng: random.Random) -> int:
        if "after" not in rule:
            return rng.randint(*rule["range"])
        via, year, least, most = rule["after"]
        earlier = self.entities[entity.facts[via].value].facts[year].value
        return int(earlier) + rng.randint(least, most)

    def _fact(self, entity: Entity, relation: Relation, value: str) -> Fact:
        if relation.to:
            short = self.kinds[relation.to].get("short")
            answers = (
                (value, value.removeprefix(f"{short} "), f"{value.removeprefix(f'{short} ')} {short}")
                if short
                else (value,)
            )
            return Fact(entity.name, relation, value, answers, self.entities[value].said)
        unit = relation.rule.get("unit", ())
        return Fact(
            entity.name, relation, value, (value, *(f"{value} {name}" for name in unit)), " ".join([value, *unit[:1]])
        )


def _relation(name: str, kind: str, about: Mapping[str, Any]) -> Relation:
    rule = dict(about)
    texts = {key: tuple(rule.pop(key, ())) for key in ("asks", "says", "same")}
    which = rule.pop("which", None)
    return Relation(
        name,
        kind,
        rule.pop("noun"),
        to=rule.pop("to", ""),
        which=(which[0], which[1]) if which else None,
        rule=rule,
        **texts,
    )


def _slots(pattern: str) -> list[str]:
    return [slot for _, slot, _, _ in Formatter().parse(pattern) if slot]
