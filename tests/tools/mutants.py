"""Changes the code in small ways, drawn by a seed, and says which of them no fast test notices: ``make mutants``.

``[tool.mutmut]`` in ``pyproject.toml`` names what is changed, and which tests there are; of these, those that run a
function are asked of its changes.
"""

import argparse
import fnmatch
import importlib
import os
import random
from collections.abc import Iterable
from typing import Any

mutmut: Any = importlib.import_module("mutmut.__main__")  # has no public interface; make mutants installs it

CHILDREN = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "of", nargs="?", default="*", help="pattern of the names of changes, such as 'agentr.evaluate.*'"
    )
    parser.add_argument("--draw", type=int, default=200, help="how many changes")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    in_any_order = mutmut.PytestRunner._pytest_args_regular_run

    def in_order(runner: Any, tests: Iterable[str]) -> list[str]:
        """The same order each time: first the tests of the changed package, which notice most changes."""
        package = os.environ["MUTANT_UNDER_TEST"].removeprefix("agentr.").partition(".")[0]
        return in_any_order(runner, sorted(tests, key=lambda test: (not test.startswith(f"tests/{package}/"), test)))

    mutmut.PytestRunner._pytest_args_regular_run = in_order
    with mutmut.CatchOutput(spinner_title="Generating mutants"):
        mutmut.copy_src_dir()
        mutmut.create_mutants(CHILDREN)
    known = sorted(
        fnmatch.filter((name for _, name, _ in mutmut.collect_source_file_mutation_data(mutant_names=())[0]), asked.of)
    )
    drawn = sorted(random.Random(asked.seed).sample(known, min(asked.draw, len(known))))
    mutmut._run(drawn, CHILDREN)

    found, _ = mutmut.collect_source_file_mutation_data(mutant_names=drawn)
    outcomes = {name: mutmut.status_by_exit_code[code] for _, name, code in found}
    noticed = [name for name, outcome in outcomes.items() if outcome in ("killed", "timeout", "segfault")]
    for name in sorted(outcomes.keys() - noticed):
        print(f"\n{name}: {outcomes[name]}\n{mutmut.get_diff_for_mutant(name)}")
    print(f"\n{len(noticed)} of {len(drawn)} changes were noticed (drawn from {len(known)}, seed {asked.seed})")


if __name__ == "__main__":
    main()
