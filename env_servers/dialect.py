"""The client's side of AgentGym's protocol: the words in which one of its servers is asked, and answers.

An environment's dialect is the module ``agentgym.py`` in its folder: ``routes`` is the server's side
(`env_servers/agentgym.py`), and ``CLIENT`` the client's, which `registry.client_dialect` finds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ClientDialect:
    """The requests and answers of one of AgentGym's environments.

    Attributes:
        key: Name of a game's id.
        create: Body of ``/create``.
        reset: Body of ``/reset`` beside the id, from the task's number.
        opening: The first observation, from the answer to ``/reset``.
        text: Key of the observation in the answer to ``/step``.
        reward: Key of the reward that counts.
        actions: Key of the actions that the answers list; empty if they list none.
        closes: Whether there is a ``/close``.
    """

    key: str = "id"
    create: Callable[[], dict[str, Any]] = dict
    reset: Callable[[int], dict[str, Any]] = lambda index: {"data_idx": index}
    opening: Callable[[Any], str] = lambda answer: answer["observation"]
    text: str = "observation"
    reward: str = "reward"
    actions: str = ""
    closes: bool = True
