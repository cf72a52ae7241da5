"""Common knowledge of households: which rooms hold what, and where things usually lie. Read from ``catalogue.yaml``.

The generator draws from it and the expert searches by it, so what a demonstration does can be learnt from
demonstrations.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from env_servers.alfred.problem import Receptacle, Thing


@dataclass(frozen=True)
class Kind:
    """A kind of thing.

    Attributes:
        usual: Kinds of receptacles where it usually lies, most likely first.
        also: Further kinds of receptacles that can hold it.
        can: See `problem.Thing`.
    """

    rooms: frozenset[str]
    usual: tuple[str, ...]
    also: tuple[str, ...]
    can: frozenset[str]


@dataclass(frozen=True)
class Catalogue:
    """See the module's text. ``rooms``: kind of receptacle -> least and most of it, for each room."""

    rooms: dict[str, dict[str, tuple[int, int]]]
    openable: frozenset[str]
    kinds: dict[str, Kind]

    def receptacle(self, kind: str, place: int) -> Receptacle:
        return Receptacle(kind, place, kind in self.openable)

    def thing(self, kind: str) -> Thing:
        return Thing(kind, self.kinds[kind].can)

    @property
    def fits(self) -> dict[str, frozenset[str]]:
        """Kind of receptacle -> the kinds of things that may be put there."""
        receptacles = {receptacle for room in self.rooms.values() for receptacle in room}
        return {
            r: frozenset(name for name, kind in self.kinds.items() if r in kind.usual + kind.also)
            for r in sorted(receptacles)
        }

    def usual(self, kind: str) -> tuple[str, ...]:
        """Kinds of receptacles where a kind of thing usually lies; empty for a kind that is not listed."""
        return self.kinds[kind].usual if kind in self.kinds else ()

    def search_order(self, kind: str) -> tuple[str, ...]:
        """All that may hold it, likeliest first."""
        return self.usual(kind) + (self.kinds[kind].also if kind in self.kinds else ())


@cache
def catalogue() -> Catalogue:
    """The catalogue; read once per process."""
    with (Path(__file__).parent / "catalogue.yaml").open(encoding="utf-8") as file:
        data = yaml.safe_load(file)
    kinds = {
        name: Kind(
            rooms=frozenset(entry["rooms"].split()),
            usual=tuple(entry["usual"].split()),
            also=tuple(entry.get("also", "").split()),
            can=frozenset(entry.get("can", "").split()) | {"use" if entry.get("fixed") else "take"},
        )
        for name, entry in data["objects"].items()
    }
    rooms = {room: {kind: (low, high) for kind, (low, high) in kinds.items()} for room, kinds in data["rooms"].items()}
    return Catalogue(rooms, frozenset(data["openable"].split()), kinds)
