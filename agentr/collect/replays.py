"""Whether a program repeats itself, seen before a run."""

from agentr.envs.client import EnvClient
from agentr.types import Task

#: Calls that are played twice, and what they are answered where the task has no demonstration.
CALLS, ANSWER = 4, "I do not know."


async def replays(env: EnvClient, task: Task) -> str:
    """Plays a task twice with the same answers, and returns a sentence: whether the program repeated itself, or up to
    which call, and because of what.

    Raises:
        InfraError: The program does not run.
    """
    turns = [action for _, action in await env.expert(task) or ()][:CALLS]
    session, played = await env.open(task), 0
    for turn in [*turns, *[ANSWER] * (CALLS - len(turns))]:
        # the second is another answer behind the same calls: for it the program is begun again
        following, other = await session.expand([turn, f"{turn} "])
        env.free([session, other])
        if other.last.asked is not None and other.last.asked.refused:
            env.free([following])
            return (
                f"the program does not repeat itself, so few branches can be taken: {other.last.asked.refused}. Pin "
                "what differs (time, chance, order), or name it in env.options.ignore"
            )
        session, played = following, played + 1
        if session.last.done:
            break
    env.free([session])
    return f"a task was begun again with the same answers, and {played} of {played} calls were the same"
