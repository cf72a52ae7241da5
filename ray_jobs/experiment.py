"""An experiment as a Ray job. Submitting it again continues it:

ray job submit --working-dir . -- python -m ray_jobs.experiment --config configs/demo.yaml run.dir=/abs/path
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from agentr.errors import AgentrError, ConfigError
from agentr.launch.run import run
from agentr.observe.progress import Reporter
from agentr.recipes import load


def main(arguments: list[str] | None = None) -> int:
    """Runs the experiment on the cluster that the job runs on; the exit code is 0 only if it finished."""
    parser = argparse.ArgumentParser(prog="python -m ray_jobs.experiment", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="YAML file, relative to the working directory")
    parser.add_argument("--allow-config-change", action="store_true", help="continue although the configuration changed")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    try:
        config = load(options.config, options.overrides)
        if not Path(config.run.dir).is_absolute():
            raise ConfigError(
                f"run.dir = {config.run.dir!r} is relative, and a job's working directory is a temporary copy",
                hint="Give an absolute path that every node can reach: run.dir=/abs/path",
            )
        config.cluster.address = config.cluster.address or "auto"
        run(config, Reporter(), allow_change=options.allow_config_change)
    except AgentrError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
