"""A person plays in the terminal: the same tasks, the same server, the same answers as an agent gets.

Every action forks the state before it, so ``:undo`` goes back to what was really there.
"""

import random
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from agentr.config.schema import TaskSelection
from agentr.envs.client import EnvClient, Session
from agentr.envs.session import Recorded
from agentr.errors import ConfigError
from agentr.types import CallStatus, Task
from env_servers.observation import OtherAnswer
from env_servers.protocol import EnvironmentSpec

HELP = (
    "Type an action, or :1 .. for a suggested one. :actions shows all suggestions, :undo takes the last action back, "
    ":expert shows a demonstration, :help this, :quit ends."
)
#: Suggestions shown after each observation.
SHOWN = 8


async def choose(client: EnvClient, split: str, task_id: str) -> Task:
    """The task with this id, of whichever split has it; a random one of ``split`` if no id is given.

    Raises:
        ConfigError: There is no such split.
    """
    spec = await client.spec()
    if task_id:
        return Task(spec.name, task_id, split)
    split = split or next(iter(spec.splits))
    return random.choice(await client.tasks(TaskSelection(split=split)))


async def play(
    client: EnvClient,
    task: Task,
    console: Console,
    read: Callable[[], str],
    path: Sequence[Recorded] = (),
    others: Sequence[OtherAnswer] = (),
) -> float:
    """Plays one task and returns the reward at which it was left, in [0, 1].

    Args:
        read: The next line that the person types; raises EOFError at the end of input.
        path: Actions to begin after: they are carried out first, and each must give the recorded observation.
        others: What other models answered a program on the way.

    Raises:
        InfraError: No server answered, or an observation was not the recorded one.
    """
    spec = await client.spec()
    states = [await client.open(task, path, others=others)]
    _introduce(console, spec, task)
    if path:
        console.print(states[0].opening, markup=False)
    for turn in path:
        console.print(f"> {turn.action}", markup=False, style="bold")
        console.print(turn.observation, markup=False)
    if path:
        console.rule(f"{len(path)} actions as recorded; from here on it is you", style="dim")
    try:
        while True:
            now = states[-1]
            suggested = [] if now.last.done else await now.suggestions()
            _show(console, spec, now, suggested)
            try:
                line = read().strip()
            except (EOFError, KeyboardInterrupt):
                return now.last.reward
            match line:
                case "":
                    continue
                case ":quit" | ":q":
                    return now.last.reward
                case ":help":
                    console.print(HELP, markup=False)
                case ":undo" if len(states) > 1:
                    await states.pop().close()
                case ":undo":
                    console.print("This is the beginning.")
                case ":actions":
                    _list(console, suggested)
                case ":expert":
                    await _demonstrate(console, client, now)
                case _:
                    action = _chosen(line, suggested)
                    if action is None:
                        console.print(f"There is no {line}. {HELP}", markup=False)
                    elif now.last.done:
                        console.print("The episode is over: :undo or :quit.")
                    else:
                        states += await now.expand([action])
    finally:
        await client.close_all(states)


def _chosen(line: str, suggested: list[str]) -> str | None:
    """The action that a line stands for; None for a command that there is not."""
    if not line.startswith(":"):
        return line
    number = line[1:]
    return suggested[int(number) - 1] if number.isdecimal() and 0 < int(number) <= len(suggested) else None


def _introduce(console: Console, spec: EnvironmentSpec, task: Task) -> None:
    console.rule(Text(f"{spec.title}, task {task.id}"))
    console.print(spec.instruction, markup=False, style="dim")
    console.print(HELP, markup=False, style="dim")


def _show(console: Console, spec: EnvironmentSpec, session: Session, suggested: list[str]) -> None:
    seen = session.last
    console.print()
    console.print(seen.observation, markup=False, style="" if seen.valid else "yellow")
    facts = [f"action {len(session.history)} of {spec.step_limit}", f"reward {seen.reward:g}"]
    facts += [] if seen.status is CallStatus.ok else [f"status {seen.status}"]
    facts += [f"{name} {score:g}" for name, score in seen.scores.items()]
    console.print(", ".join(facts), style="dim")
    if seen.done:
        won = seen.reward >= spec.reward.success
        console.print("solved" if won else "over, not solved", style="green" if won else "red")
    _list(console, suggested[:SHOWN])
    if len(suggested) > SHOWN:
        console.print(f"  and {len(suggested) - SHOWN} more: :actions", style="dim")


def _list(console: Console, suggested: list[str]) -> None:
    for number, action in enumerate(suggested, start=1):
        console.print(f"  [dim]:{number}[/dim] {escape(action)}", markup=True)


async def _demonstrate(console: Console, client: EnvClient, session: Session) -> None:
    """Shows how the expert goes on from here, or else its episode from the beginning."""
    try:
        steps = await session.expert() or await client.expert(session.task)
    except ConfigError as error:
        console.print(error.message, markup=False)
        return
    for thought, action in steps or []:
        console.print(f"  [dim]{escape(thought)}[/dim]\n  {escape(action)}", markup=True)
    if steps is None:
        console.print("The environment has no expert for this task.")
