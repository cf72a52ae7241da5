"""The live sessions of one tree."""

import asyncio

from agentr.envs.client import EnvClient, Recorded, Session
from agentr.search import Tree


class Sessions:
    """The live sessions of one tree, by node.
    A session that is not there any more is opened again by replaying the path.

    Args:
        spare: Sessions of expanded nodes that stay open, those used last: for strategies that come back to a node.
    """

    def __init__(self, tree: Tree, env: EnvClient, root: Session | None = None, spare: int = 0) -> None:
        self._tree = tree
        self._env = env
        self._spare = spare
        # In the order of use.
        self._open: dict[int, Session] = {} if root is None else {0: root}
        self._opening = asyncio.Lock()

    async def at(self, node: int) -> Session:
        """The session that stands at ``node``.

        Raises:
            InfraError: It could not be opened, or the replay saw something else than what is recorded.
        """
        async with self._opening:  # several expansions of one node wait for one session
            session = self._open.pop(node, None)
            if session is None:
                path = [Recorded(n.played, n.observation) for n in self._tree.path(node) if n.played]
                others = self._tree.others(node)
                session = await self._env.open(self._tree.task, path, opening=self._opening_call(), others=others)
            self._open[node] = session
            return session

    def _opening_call(self) -> str | None:
        """What a program asked first, where that is known to the letter."""
        asked = self._tree.root.asked
        last = asked.messages[-1] if asked is not None and asked.messages else None
        return None if last is None or last["role"] == "assistant" else last["content"]

    def keep(self, node: int, session: Session) -> None:
        self._open[node] = session

    async def along(self, leaf: int) -> None:
        """Opens a session at each turn above ``leaf`` that has none, in one walk."""
        for node in self._tree.path(leaf)[:-1]:
            if node.id not in self._open:
                above = await self.at(node.parent)
                self._open[node.id] = (await above.expand([node.played]))[0] if node.played else above

    def cut(self, size: int) -> None:
        """Takes the tree's last nodes off again, so that ``size`` are left, and closes what stands there."""
        self._tree.cut(size)
        above = {id(session) for node, session in self._open.items() if node < size}
        dropped = {id(self._open[node]): self._open.pop(node) for node in list(self._open) if node >= size}
        self._env.free([session for key, session in dropped.items() if key not in above])

    def drop_finished(self) -> None:
        """Closes the sessions of nodes that will not be expanded (again)."""
        nodes = self._tree.nodes
        expanded = [i for i in self._open if nodes[i].expansions and not nodes[i].terminal]
        over = [i for i in self._open if nodes[i].terminal] + expanded[: max(0, len(expanded) - self._spare)]
        dropped = {id(s): s for s in (self._open.pop(i) for i in over)}
        still_used = {id(s) for s in self._open.values()}
        self._env.free([s for key, s in dropped.items() if key not in still_used])

    def close(self) -> None:
        sessions, self._open = {id(s): s for s in self._open.values()}, {}
        self._env.free(list(sessions.values()))
