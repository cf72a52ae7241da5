"""Makes the parts of docs/your_model_and_gpu.md that ``agentr plan`` and ``agentr run --dry-run`` print.

``python -m tests.docs.estimates`` writes the page anew.
"""

import io
from functools import cache

from agentr.commands.plan import plan_run, renderable, short
from agentr.console import Console
from agentr.cost.hardware import hardware
from agentr.cost.propose import propose
from agentr.methods import load, plan_of
from agentr.words import span
from tests.docs.pages import ROOT, refreshed

PAGE = ROOT / "docs" / "your_model_and_gpu.md"

#: Shipped configurations for GPUs, and what they are planned for.
LARGE = ("agent_r_llama3_8b", "agent_r_qwen2_5_7b", "eto_llama2_7b", "dense_policy_llama3_8b", "et_agent_qwen2_5_7b")
MACHINES = ("1x4090", "1xH100", "2xH100", "4xH100", "8xH100")


def make(name: str) -> str:
    """Returns what a command prints, or the table of all shipped configurations for GPUs. Runs that lie about are no
    evidence here."""
    if name == "all":
        return table()
    command, config, *rest = name.split()
    plan = plan_of(load(ROOT / config))
    if command == "run":
        return short(plan, None)
    console = Console(width=126, record=True, file=io.StringIO())
    console.print(renderable(plan_run(plan, hardware(rest[-1]), known=[])))
    return "\n".join(line.rstrip() for line in console.export_text().splitlines())


@cache
def table() -> str:
    """Returns what is proposed for each shipped configuration on each machine."""
    lines = [f"{'configuration':24}{'on':9}{'hours':>12}{'device-hours':>14}   what is trained, and how"]
    for name in LARGE:
        plan = plan_of(load(ROOT / f"configs/{name}.yaml"))
        for on in MACHINES:
            found = propose(plan, hardware(on), [])
            if found is None:
                lines.append(f"{name:24}{on:9}{'-':>12}{'-':>14}   does not fit")
                continue
            told = found.forecast
            keys = dict(override.split("=") for override in found.overrides)
            what = ["adapters"] if any(key.endswith("lora.rank") for key in keys) else ["all weights"]
            what += [f"{keys['policy.engines']} engine(s)"] if "policy.engines" in keys else []
            what += [f"of {keys[key]} GPUs" for key in ("policy.tensor_parallel_size",) if key in keys]
            what += [
                f"{key.rpartition('.')[2]} {value}" for key, value in keys.items() if key == "train.0.micro_batch_size"
            ]
            what += [f"share {keys['trainer.share']}" for _ in range("trainer.share" in keys)]
            hours = told.device_hours()[1]
            lines.append(f"{name:24}{on:9}{span(told.seconds()[1]):>12}{hours:>14.3g}   {', '.join(what)}")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE, make), encoding="utf-8")
