"""Makes the table of docs/cost.md that compares predictions with published speeds.

``python -m tests.docs.costs`` writes the page anew.
"""

from tests.cost.test_speed import ROWS, SET, UNKNOWN, tokens_per_s
from tests.docs.pages import ROOT, refreshed

PAGE = ROOT / "docs" / "cost.md"


def make(name: str) -> str:
    """Returns a line for each published speed: tokens a second of all GPUs together."""
    assert name == "published"
    lines = [f"{'what':42}{'on':12}{'published':>11}{'predicted':>11}{'ratio':>7}"]
    for row, found in ROWS.items():
        if row in UNKNOWN:
            continue
        predicted, published = tokens_per_s(found), found["tokens_per_s"]
        what = f"{found['kind']} {found['model'].rpartition('/')[2]}{', LoRA' if found.get('rank') else ''}"
        on = f"{found['gpus']}x{found['gpu']}"
        mark = " *" if row in SET else ""
        lines.append(f"{what:42}{on:12}{published:>11.0f}{predicted:>11.0f}{predicted / published:>7.2f}{mark}")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE, make), encoding="utf-8")
