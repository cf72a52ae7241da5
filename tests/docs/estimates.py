"""Makes the parts of docs/your_model_and_gpu.md that ``agentr run CONFIG --dry-run`` prints below a configuration.

``python -m tests.docs.estimates`` writes the page anew.
"""

from agentr.cost.bounds import estimate
from agentr.methods import load, plan_of
from tests.docs.pages import ROOT, refreshed

PAGE = ROOT / "docs" / "your_model_and_gpu.md"


def make(name: str) -> str:
    """Returns the estimate of a configuration, named by its path."""
    return estimate(plan_of(load(ROOT / name))).text()


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE, make), encoding="utf-8")
