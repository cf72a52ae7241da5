"""An example or more for each command of the command line, as its help shows them.
A test reads each as the command would."""

import typer

#: By the command's name.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "agentr run configs/demo.yaml",
        "agentr run configs/demo.yaml run.seed=1 run.dir=runs/demo-1",
        "agentr run configs/agent_r_llama3_8b.yaml --dry-run",
        "agentr run configs/agent_r_llama3_8b.yaml --dry-run --show",
        "agentr run configs/demo.yaml --dry-run --origins",
        "agentr run configs/demo.yaml --dry-run --check-cluster cluster=cpu_cluster",
        "agentr run configs/demo.yaml --only rounds/01/collect",
        "agentr run configs/demo.yaml --dataset data run.dir=runs/mine",
    ),
    "plan": (
        "agentr plan configs/demo.yaml",
        "agentr plan configs/agent_r_llama3_8b.yaml --on 4xH100 --price 2.50 --within 6h",
        "agentr plan configs/agent_r_llama3_8b.yaml --on 8xA100-80 --explain 'round 1: train'",
        "agentr plan configs/demo.yaml --pilot 20",
        "agentr plan --measure",
    ),
    "resume": ("agentr resume runs/demo", "agentr resume runs/demo collect.in_flight=16"),
    "compare": (
        "agentr compare configs/compare/sft.yaml configs/compare/eto.yaml --base configs/compare/tasks/textcraft.yaml "
        "--seeds 0,1,2",
        (
            "agentr compare configs/compare/eto.yaml --base configs/compare/tasks/textcraft.yaml --vary "
            "method.pairs.tasks=15,30,60"
        ),
        "agentr compare --out runs/compare --power 5",
    ),
    "submit": (
        "agentr submit configs/demo.yaml --address http://head:8265 cluster=cpu_cluster run.dir=/shared/runs/demo",
        "agentr submit configs/demo.yaml --address http://head:8265 --dry-run",
    ),
    "stop": ("agentr stop /shared/runs/demo --address http://head:8265",),
    "status": ("agentr status", "agentr status runs/demo", "agentr status runs/compare --json"),
    "ui": ("agentr ui runs", "agentr ui runs --host 0.0.0.0 --token SECRET"),
    "report": (
        "agentr report runs/demo",
        "agentr report runs/demo runs/grpo_textcraft",
        "agentr report runs/demo --tree TASK --out tree.html",
        "agentr report runs/demo --task TASK",
        "agentr report runs/demo --round 2 --row 17",
        "agentr report runs/demo --round 1 --stage collect --tree TASK --node 4",
    ),
    "list": ("agentr list", "agentr list methods", "agentr list webshop"),
    "config": ("agentr config schema",),
    "config schema": ("agentr config schema",),
    "init": ("agentr init my_environment", "agentr init my_agent --agent"),
    "search": (
        "agentr search --run runs/demo --tree TASK --turn 3 --policy rounds/02",
        "agentr search --run runs/demo --tree TASK --turn 3 --iterations 40 --set collect.in_flight=4",
    ),
    "logs": (
        "agentr logs runs/demo --stage collect --level warning",
        "agentr logs /shared/runs/demo --address http://head:8265 --follow",
    ),
    "import": ("agentr import pairs.json --config configs/demo.yaml --out data",),
    "export": (
        "agentr export runs/demo --round 2 --format trl --out rows.jsonl",
        "agentr export runs/demo --format agent_r_trees --out trees",
    ),
    "doctor": ("agentr doctor runs/demo", "agentr doctor runs/demo --repair --stage rounds/02/train"),
    "pack": ("agentr pack runs/demo --for-sharing",),
    "unpack": ("agentr unpack demo.tar.zst --out runs",),
    "prune": ("agentr prune runs/demo --keep 'last 2'",),
    "verify": ("agentr verify --method agent_r",),
    "envs": ("agentr envs play textcraft",),
    "envs play": ("agentr envs play textcraft --split train", "agentr envs play --run runs/demo --tree TASK --turn 3"),
    "envs check": ("agentr envs check textcraft", "agentr envs check http://127.0.0.1:8400"),
    "envs demos": ("agentr envs demos textcraft --limit 100 --out demos.jsonl",),
    "bench": ("agentr bench collect",),
    "bench collect": ("agentr bench collect --trees 64",),
}


def show_examples(app: typer.Typer, above: str = "") -> None:
    """Puts the examples of all commands below their help."""
    for command in app.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "")
        command.epilog = _epilog(f"{above}{name}")
    for group in app.registered_groups:
        group.epilog = _epilog(f"{above}{group.name}")
        if group.typer_instance is not None:
            show_examples(group.typer_instance, f"{above}{group.name} ")


def _epilog(name: str) -> str:
    return "\n\n".join(["For example:", *EXAMPLES.get(name, ())])
