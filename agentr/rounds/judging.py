"""The model of ``method.judge``, as the rewards of a run ask it, and its trial before the run.

Answers are kept in the run directory (``judged.jsonl``) as they come, by what was asked, with what was spent so far:
what is started again asks nothing twice, comes to the same rewards, and has the rest of the budget.
"""

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path

from agentr.collect.advisor import Answers, asking
from agentr.config.policy import AdvisorConfig
from agentr.errors import AgentrError, RunError
from agentr.policy.chat import ChatCodec
from agentr.rewards import Rewards
from agentr.rewards.judge import Example, How, opening, turns
from agentr.rounds.experiment import Experiment
from agentr.rounds.online_config import OnlineConfig
from agentr.rounds.warm_start import demonstrations
from agentr.secrets import Secret, SecretKind
from agentr.store.files import read_lines
from agentr.types import Outcome

#: Demonstrations that a judge is tried on.
TRIED = 4
#: Share of the pairs of a right and a wrong answer that a judge is to order so.
TOLD_APART = 0.75


class Asker:
    """Asks a model behind an API several questions at the same time.

    Args:
        codec: Without tools.
        file: Holds the answers.
    """

    def __init__(self, config: AdvisorConfig, codec: ChatCodec, file: Path) -> None:
        self._config, self._codec, self._file = config, codec, file

    def __call__(self, questions: Sequence[str]) -> list[str | AgentrError]:
        """Returns the answer to each question, or why there is none.

        Raises:
            ConfigError: The variable with the key is not set.
            RunError: There is none, and it is required.
        """
        answers = asyncio.run(self._asked(questions)) if questions else []
        lost = next((answer for answer in answers if isinstance(answer, AgentrError)), None)
        if lost is not None and self._config.required:
            hint = "Or set method.judge.required=false."
            raise RunError(f"the judge did not answer: {lost}", hint=hint) from lost
        return answers

    async def _asked(self, questions: Sequence[str]) -> list[str | AgentrError]:
        config, api, known = self._config, self._config.openai, read_lines(self._file)
        spent = max((line.get("spent", 0.0) for line in known), default=0.0)
        # a question's deadline begins when it is its turn
        name, turn = f"{api.base_url} {api.model}", asyncio.Semaphore(api.concurrency)
        key = {api.api_key_env: Secret.read(SecretKind.API, api.api_key_env)}
        async with asking(config, self._codec, key, spent) as policy:
            answers = Answers("judge", name, config, self._codec, policy, self._file, known, whole=False)

            async def one(question: str) -> str | AgentrError:
                try:
                    async with turn:
                        return (await answers.get(question, 0, "", ""))["answer"]
                except AgentrError as error:
                    return error

            return list(await asyncio.gather(*map(one, questions)))


def rewards_of(config: OnlineConfig, experiment: Experiment) -> Rewards:
    """Returns the rewards of a method in a run, which may ask a judge."""
    rewards = Rewards.of(config.rewards, config.gate)
    if rewards.judges:
        rewards.asking(Asker(config.judge, experiment.codec.plain, experiment.store.layout.judged))
    return rewards


def try_judges(config: OnlineConfig, experiment: Experiment) -> None:
    """Tries the judges of a method on answers that are known to be right or wrong, and says what came of it; warns of
    one that does not tell them apart."""
    for judge in rewards_of(config, experiment).judges:
        examples = judge.examples or _demonstrated(experiment, judge.how)
        share, pairs, problem = judge.tried(examples) if examples else (0.0, 0, "")
        said = f"the judge orders {100 * share:.0f} % of {pairs} pairs of a right and a wrong answer so"
        if not pairs:
            why = f": {problem}" if problem else ": there are no answers that are known to be right and wrong (checks)"
            experiment.reporter.message(f"the judge was not tried{why}", "yellow")
        elif share < TOLD_APART or problem:
            hint = "its rewards may mean nothing: choose another model, or a plainer rubric"
            why = f"; {problem}" if problem else ""
            experiment.reporter.message(f"{said}{why}; {hint}", "yellow")
        else:
            experiment.reporter.message(said)


def _demonstrated(experiment: Experiment, how: How) -> list[Example]:
    """Demonstrations as they are, which are right, and with the turns of another task's one, which are wrong."""
    if not experiment.plan.config.warm_start.enabled:
        return []
    won = (
        (opening(tree.messages), turns(tree.path(leaf.id)))
        for tree in demonstrations(experiment)
        for leaf in tree.ended()
        if leaf.outcome is Outcome.SUCCESS
    )
    first = list(dict(itertools.islice(won, TRIED)).items())
    others = first[1:] + first[:1]
    pairs = [(task, done, other) for (task, done), (_, other) in zip(first, others, strict=True) if done != other]
    return [
        Example(task, text, right) for task, *both in pairs for text, right in zip(both, (True, False), strict=True)
    ]
