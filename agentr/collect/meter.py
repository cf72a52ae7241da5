"""What a coordinator's trees take, counted as they grow, for `agentr.cluster.metrics`."""

from collections import Counter
from collections.abc import Iterator

from agentr.cluster import metrics
from agentr.cluster.metrics import MetricSample, by_bucket, by_label, histogram
from agentr.collect.units import StageProgress
from agentr.policy.base import Policy
from agentr.policy.router import Router
from agentr.search.tree import Origin, Tree
from agentr.types import Cost

#: Turns whose ids an engine has decoded, so that it holds all of them but the last.
_DECODED = (Origin.POLICY, Origin.CONTINUATION)


class Meter:
    """Counters of one event loop. Others may read them.

    Attributes:
        causes: How often something was tried again, by cause; who calls engines and servers counts here.
    """

    def __init__(self) -> None:
        self.spent = Cost()
        self.again = 0
        self.policy_s = histogram()
        self.env_s = histogram()
        self.causes: Counter[str] = Counter(dict.fromkeys(metrics.CAUSES, 0))
        self._stage = (0, StageProgress())

    def begin(self, progress: StageProgress) -> None:
        """Looks at the progress of another stage from now on."""
        earlier, before = self._stage
        self._stage = (earlier + before.retried, progress)

    def turns(self, tree: Tree, node: int, cost: Cost, policy_s: float, env_s: float) -> None:
        """Counts the turns that were drawn after a node. Called before they are in the tree."""
        if not cost.calls:
            return
        spent, computed = self.spent, cost.prompt_tokens - cost.cached_tokens
        spent.calls += cost.calls
        spent.prompt_tokens += cost.prompt_tokens
        spent.cached_tokens += cost.cached_tokens
        spent.completion_tokens += cost.completion_tokens
        self.again += max(0, computed - unseen(tree, node))
        self.policy_s.observe(policy_s)
        self.env_s.observe(env_s)

    def samples(self, policy: Policy | None, lag_s: float) -> Iterator[MetricSample]:
        """Yields the present values.

        Args:
            lag_s: Of the event loop.
        """
        spent, (retried, progress) = self.spent, self._stage
        prefilled = spent.prompt_tokens - spent.cached_tokens
        yield MetricSample(metrics.EXPANSIONS, spent.calls)
        yield from by_label(
            metrics.TOKENS, generated=spent.completion_tokens, prefilled=prefilled, cached=spent.cached_tokens
        )
        yield MetricSample(metrics.AGAIN, self.again)
        yield from by_bucket(metrics.POLICY_SECONDS, self.policy_s)
        yield from by_bucket(metrics.ENV_SECONDS, self.env_s)
        yield from by_label(metrics.RETRIES, **{**self.causes, "tree": retried + progress.retried})
        yield MetricSample(metrics.LAG, lag_s)
        if isinstance(policy, Router):
            out = len(policy.problems())
            yield from by_label(metrics.CALLS, running=policy.running, waiting=policy.waiting)
            yield from by_label(metrics.ENGINES, ready=len(policy.states()) - out, out_of_service=out)


def unseen(tree: Tree, node: int) -> int:
    """Returns how many tokens of a node's prompt no earlier call of this tree had: what a perfect cache of the tree
    computes."""
    tokens, nodes = 0, tree.nodes
    while True:
        here = nodes[node]
        if here.expansions or here.children:  # its prompt was computed
            return tokens
        if not node:
            return tokens + len(tree.prompt_ids)
        if tree.hiding is not None and tree.hiding.changes(here):  # what was decoded stood after something else
            tokens += tree.length(here) + tree.hiding.opened
        else:
            tokens += len(here.bridge_ids) + (1 if here.origin in _DECODED else len(here.token_ids))
        node = here.parent
