"""The numbers that minigrid's generator draws, and where in it."""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

#: Where in the generator a number is drawn, from which range, and how often that was so before.
Place = tuple[Any, ...]
#: Draws a number from ``low`` to below ``high``; a whole one, or any.
Draw = Callable[[float, float, bool], float]


class Impossible(BaseException):
    """The numbers make no level. No error of those that minigrid catches."""


class Tape:
    """Takes the place of a level's random generator.

    minigrid draws integers, and now and then a number from an interval. Where a level turns out to be impossible it
    begins anew, with a new grid; what was drawn before does not count.

    Args:
        environment: minigrid's, whose generator it becomes.
        draw: Draws the numbers that are not known.
        attempts: How often a level may begin.
        known: Numbers by their places.

    Attributes:
        drawn: The numbers of the level.
        places: Where they were drawn.
    """

    def __init__(
        self, environment: Any, draw: Draw, attempts: float = 1, known: Mapping[Place, float] | None = None
    ) -> None:
        self.drawn: list[float] = []
        self.places: list[Place] = []
        self._environment, self._draw, self._left, self._known = environment, draw, attempts, known or {}
        self._count: Counter[Place] = Counter()
        self._put: list[Any] = []
        self._grid: Any = None
        environment.grid, environment.np_random = None, self

    def integers(self, low: int, high: int) -> numpy.int64:
        return numpy.int64(self._next(low, high, True))  # two levels ask whether two numbers are the same object

    def uniform(self, low: float, high: float) -> float:
        return self._next(low, high, False)

    def _next(self, low: float, high: float, whole: bool) -> float:
        grid = self._environment.grid
        if grid is not self._grid:
            self._grid = grid
            self._left -= 1
            if self._left < 0:
                raise Impossible
            for of_the_last in (self.drawn, self.places, self._count, self._put):
                of_the_last.clear()
            grid.set = self._putting(grid.set)
        place = (*self._lines(), low, high)
        self._count[place] += 1
        place = (*place, self._count[place])
        known = self._known.get(place)
        self.places.append(place)
        self.drawn.append(self._draw(low, high, whole) if known is None else known)
        return self.drawn[-1]

    def _lines(self) -> Place:
        """The lines that are being run, and how much stands on the grid: things are put there by the same lines."""
        lines, frame = [], sys._getframe(3)
        while frame is not None and frame.f_code.co_name != "reset":
            lines.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        return (*lines, len(self._put))

    def _putting(self, put: Callable[..., None]) -> Callable[..., None]:
        def noting(i: int, j: int, thing: Any) -> None:
            self._put.append(thing)
            put(i, j, thing)

        return noting


def given(numbers: Sequence[float]) -> Draw:
    """Returns what gives these numbers, one after the other.

    Raises:
        Impossible: In its turn, where one is missing, or not in its range.
    """
    left = iter(numbers)

    def draw(low: float, high: float, whole: bool) -> float:
        number = next(left, None)
        if type(number) not in ((int,) if whole else (int, float)) or not low <= number < high:  # type: ignore[operator]
            raise Impossible
        return number  # type: ignore[return-value]

    return draw
