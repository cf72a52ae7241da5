"""The tasks, and their names in the numberings in use.

A **problem** is a task with a variation, ``boil/12``: variations differ in the substance, the room, the set-up. Four
ways to name it:

- ``boil/12``: the package's name and variation.
- ``agentgym/N``: AgentGym's server of today. N counts through 4,639 problems: 23 tasks in the order of their codes, all
  variations.
- ``agentr/N``: the numbering that AgentGym's evaluation ids and Agent-R's ``sciworld_N`` were made with, 4,339
  problems: the above without task 2-3. Under it all 200 ids are test variations of the package. Under ``agentgym/N``
  the same numbers, as far as they are above 1095, mean other problems, of which 66 are training variations: results on
  AgentGym's own server are such.
- ETO's ``["task-1-boil", 12]``: the old name of the task, with its number and with parentheses (`from_eto`).
"""

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: Code, name and number of variations of each task of scienceworld 1.2.3, in the order of the codes.
TASKS = (
    ("1-1", "boil", 30),
    ("1-2", "melt", 30),
    ("1-3", "freeze", 30),
    ("1-4", "change-the-state-of-matter-of", 30),
    ("2-1", "use-thermometer", 540),
    ("2-2", "measure-melting-point-known-substance", 436),
    ("2-3", "measure-melting-point-unknown-substance", 300),
    ("3-1", "power-component", 20),
    ("3-2", "power-component-renewable-vs-nonrenewable-energy", 20),
    ("3-3", "test-conductivity", 900),
    ("3-4", "test-conductivity-of-unknown-substances", 600),
    ("4-1", "find-living-thing", 300),
    ("4-2", "find-non-living-thing", 300),
    ("4-3", "find-plant", 300),
    ("4-4", "find-animal", 300),
    ("5-1", "grow-plant", 126),
    ("5-2", "grow-fruit", 126),
    ("6-1", "chemistry-mix", 32),
    ("6-2", "chemistry-mix-paint-secondary-color", 36),
    ("6-3", "chemistry-mix-paint-tertiary-color", 36),
    ("7-1", "lifespan-longest-lived", 125),
    ("7-2", "lifespan-shortest-lived", 125),
    ("7-3", "lifespan-longest-lived-then-shortest-lived", 125),
    ("8-1", "identify-life-stages-1", 14),
    ("8-2", "identify-life-stages-2", 10),
    ("9-1", "inclined-plane-determine-angle", 168),
    ("9-2", "inclined-plane-friction-named-surfaces", 1386),
    ("9-3", "inclined-plane-friction-unnamed-surfaces", 162),
    ("10-1", "mendelian-genetics-known-plant", 120),
    ("10-2", "mendelian-genetics-unknown-plant", 480),
)
CODES = {name: code for code, name, _ in TASKS}
COUNTS = {name: count for _, name, count in TASKS}
#: Tasks that AgentGym leaves out.
NOT_IN_AGENTGYM = frozenset({"5-1", "5-2", "9-1", "9-2", "9-3", "10-1", "10-2"})
#: Tasks outside the numbering of the published ids.
NOT_IN_AGENTR = NOT_IN_AGENTGYM | {"2-3"}
#: Tasks that ETO leaves out.
NOT_IN_ETO = frozenset({"2-3", "9-1", "9-2", "9-3", "10-1", "10-2"})
#: Variations of each task in ETO's test split: its first ten test variations.
ETO_TEST_SIZE = 10
#: The 200 numbers of AgentGym's evaluation and of Agent-R's sciworld_test.json.
EVALUATION = tuple(
    int(number)
    for number in """
    536 537 538 543 544 547 557 559 565 569 572 573 581 584 606 609 610 616 620 624 631 635 641 652 657 995 1002 1003
    1006 1017 1020 1023 1024 1026 1028 1029 1032 1033 1052 1055 1058 1065 1066 1068 1074 1088 1093 1095 1111 1112 1131
    1134 1135 1816 1821 1822 1824 1831 1835 1838 1844 1873 1879 1882 1897 1912 1914 1915 1919 1931 1934 1938 1940 1949
    1953 1954 1955 1969 1988 1994 2008 2015 2016 2029 2487 2488 2496 2497 2498 2500 2503 2504 2506 2511 2512 2513 2521
    2527 2531 2546 2548 2552 2555 2559 2563 2569 2573 2577 2581 2582 2589 2619 2621 2625 2631 2633 2862 2864 2866 2871
    2875 2876 2887 2888 2893 2896 2899 2901 2904 2910 2912 2915 2917 2924 2931 2932 3168 3174 3191 3195 3197 3200 3207
    3210 3216 3223 3231 3464 3465 3471 3482 3483 3485 3488 3490 3491 3494 3496 3515 3518 3519 3523 3524 3533 3766 3782
    3789 3794 3811 3813 3814 3815 3828 3861 3867 3895 3931 4048 4050 4059 4159 4170 4175 4176 4178 4283 4284 4287 4288
    4292 4294 4295 4296 4297 4299 4307 4312 4327 4335 4336 """.split()
)


@dataclass(frozen=True)
class Problem:
    """A task with a variation."""

    task: str
    variation: int

    def __str__(self) -> str:
        return f"{self.task}/{self.variation}"

    @property
    def part(self) -> str:
        """The package's split that the variation belongs to."""
        return next(name for name in ("train", "dev", "test") if self.variation in variations(self.task, name))


@cache
def variations(task: str, part: str) -> range:
    """The variations of ``train``, ``dev`` or ``test``, by the package's rule: halves and quarters in order.

    A quarter is rounded down, and what is left over belongs to test.
    """
    count = COUNTS[task]
    quarter = count // 4
    bounds = {"train": (0, 2 * quarter), "dev": (2 * quarter, 3 * quarter), "test": (3 * quarter, count)}
    return range(*bounds[part])


@cache
def numbered(numbering: str) -> tuple[Problem, ...]:
    """The problems of ``agentgym`` or ``agentr``, by number."""
    excluded = {"agentgym": NOT_IN_AGENTGYM, "agentr": NOT_IN_AGENTR}[numbering]
    return tuple(Problem(name, i) for code, name, count in TASKS if code not in excluded for i in range(count))


def problems(part: str) -> list[Problem]:
    """All problems of one of the package's splits: the first variation of each task, then the second of each, and so
    on."""
    found = [(place, Problem(name, i)) for _, name, _ in TASKS for place, i in enumerate(variations(name, part))]
    return [problem for _, problem in sorted(found, key=lambda item: item[0])]


def eto_test() -> list[Problem]:
    """ETO's 211 test problems."""
    return [
        Problem(name, i)
        for code, name, _ in TASKS
        if code not in NOT_IN_ETO
        for i in variations(name, "test")[:ETO_TEST_SIZE]
    ]


def from_eto(path: Path) -> list[Problem]:
    """The problems of one of ETO's index files.

    Raises:
        RuntimeError: There is no such file.
        ValueError: It is not such a file, or names a task or variation that there is not.
    """
    if not path.is_file():
        raise RuntimeError(
            f"{path} is missing: it is in eval_agent/data/sciworld of https://github.com/Yifan-Song793/ETO"
        )
    try:
        found = [
            Problem(re.sub(r"^task-\w+?-|[()]", "", name), variation)
            for name, variation in json.loads(path.read_text(encoding="utf-8"))
        ]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is no list of [task, variation]: {error}") from error
    if unknown := [p for p in found if not (isinstance(p.variation, int) and 0 <= p.variation < COUNTS.get(p.task, 0))]:
        raise ValueError(f"{path} names problems that ScienceWorld does not have: {', '.join(map(str, unknown[:3]))}")
    return found


def parse(task_id: str) -> Problem | None:
    """The problem that an id names, or None."""
    match = re.fullmatch(r"([a-z0-9-]+)/([0-9]{1,4})", task_id)
    if match is None:
        return None
    name, number = match[1], int(match[2])
    if name in ("agentgym", "agentr"):
        listed = numbered(name)
        return listed[number] if number < len(listed) else None
    return Problem(name, number) if number < COUNTS.get(name, 0) else None
