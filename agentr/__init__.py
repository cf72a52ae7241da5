"""agentr: distributed self-training of language-model agents on their own search trees. A run is read so::

    import agentr

    run = agentr.open("runs/demo")
    run.rounds[2].collect.table()  # an Arrow table; .to_pandas() for pandas

``open``, what it returns (``agentr.read``) and ``train_agent`` are the public interface: names and columns stay as they
are within a version of the stored form, and what is to go warns for one release before it goes. Reading takes no lock,
starts nothing and never changes a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentr.read.run import Run

__version__ = "0.1.0"


def open(path: str | Path) -> Run:
    """Opens a run directory for reading, also while a driver works on it.

    Raises:
        DataError: The folder holds no run (the error names runs below it), or one of another format.
    """
    from agentr.read.run import Run

    return Run(path)


def train_agent(
    command: Sequence[str],
    tasks: Mapping[str, str | Path],
    reward: str = "",
    *,
    out: str | Path = "",
    config: str | Path | None = None,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    **options: Any,
) -> Run:
    """Trains a program that asks a model, as ``agentr run`` does with the environment ``program``; a run that was
    stopped goes on. Files are relative to the current folder.

    Args:
        command: The program and its arguments.
        tasks: A file of tasks for each split. ``train`` is trained on; the first other one is evaluated on, where
            ``config`` and ``overrides`` name none.
        reward: ``FILE.py:FUNCTION``; without it the program says what it has earned (docs/your_agent.md).
        out: The run directory; empty means ``run.dir``, or ``runs/<run.name>``.
        config: A YAML file for everything else; without it, the defaults of docs/configuration.md.
        overrides: Keys with their values, as a mapping or as texts ``key=value``, such as ``method.type=rft``.
        options: Other options of the environment, such as ``workdir``.

    Returns:
        The run, opened.

    Raises:
        AgentrError: With what was wrong and what to do. What was finished before is kept.
    """
    import json

    from agentr.commands.run import run, run_dir
    from agentr.methods import load, plan_of
    from agentr.models.load import check_context
    from agentr.observe.progress import Reporter

    given: dict[str, Any] = {"env.name": "program"}
    if config is None:
        given["eval.tasks.split"] = next((split for split in tasks if split != "train"), "train")
    options = {"command": [*command], "tasks": {**tasks}, "reward": reward, **options}
    given |= {f"env.options.{name}": value for name, value in options.items()} | ({"run.dir": out} if out else {})
    keys = overrides if isinstance(overrides, Mapping) else {}
    texts = [f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in (given | {**keys}).items()]
    loaded = load(None if config is None else Path(config), [*texts, *([] if keys else overrides)])
    check_context(loaded.model)
    run(plan_of(loaded), Reporter())
    return open(run_dir(loaded.run))
