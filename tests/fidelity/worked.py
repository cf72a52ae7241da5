"""What derivations give: the arithmetic of vectors, and the gradients of losses, by differences and without agentr or
torch."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: What a derivation may use.
ARITHMETIC = {
    **{name: getattr(math, name) for name in ("exp", "log", "sqrt")},
    **{name: getattr(statistics, name) for name in ("pstdev", "stdev")},
    "max": max,
    "min": min,
}
#: Half the difference of a logit over which a gradient is taken: errors are about 1e-10.
_STEP = 1e-5


def value(work: str, **more: Any) -> Any:
    """Works out a derivation."""
    return eval(work, {"__builtins__": {}}, {**ARITHMETIC, **more})


def loss_and_gradient(
    work: str, table: Sequence[Sequence[float]], reference: Sequence[Sequence[float]] | None = None
) -> dict[str, Any]:
    """Works out a loss, and how it changes with the logit of each token (columns) after each token (rows).

    Args:
        work: Uses ``p(i, j)``, the probability of token j after token i, ``q(i, j)``, the reference's, and ``held(x)``,
            which is x and has no gradient.
        table: The probabilities.
    """
    logits = [[math.log(entry) for entry in row] for row in table]
    first: list[float] = []

    def at(logits: Sequence[Sequence[float]], held: Callable[[float], float]) -> float:
        def p(i: int, j: int) -> float:
            return math.exp(logits[i][j]) / sum(map(math.exp, logits[i]))

        return value(work, p=p, q=lambda i, j: (reference or table)[i][j], held=held)

    def kept(x: float) -> float:
        first.append(x)
        return x

    loss = at(logits, kept)

    def moved(i: int, j: int, by: float) -> float:
        there = [list(row) for row in logits]
        there[i][j] += by
        values = iter(first)
        return at(there, lambda _: next(values))

    cells = range(len(table))
    gradient = [[(moved(i, j, _STEP) - moved(i, j, -_STEP)) / (2 * _STEP) for j in cells] for i in cells]
    return {"loss": loss, "gradient": gradient}


def worked(check: str, given: Mapping[str, Any], work: str) -> Any:
    """Returns what a case's derivation gives: of a loss, its gradient, too."""
    return (
        loss_and_gradient(work, given["table"], given.get("reference")) if check.startswith("losses.") else value(work)
    )
