"""What the entry points have in common: they read a configuration, and work on the cluster that the job runs on."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from agentr.cluster import ray_private
from agentr.errors import AgentrError, ConfigError
from agentr.methods import load, plan_of
from agentr.rounds.plan import Plan
from agentr.store.trust import VARIABLE


def main(
    command: Sequence[str] | Callable[[Plan], None], about: str | None, arguments: Sequence[str] | None = None
) -> int:
    """Runs a command; the exit code is 0 only if it finished.

    Args:
        command: Of ``agentr``, such as ``run``, with options; or what is done with the plan of a run.
        about: The help text.
        arguments: CONFIG, KEY=VALUE..., and options of the command; by default those of this process.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "config", metavar="CONFIG", nargs="?", type=Path, help="YAML file, relative to the working directory"
    )
    parser.add_argument("--config", dest="named", type=Path, help="the same")
    parser.add_argument("--secrets", default="", help="where the submission left the values of environment variables")
    options, rest = parser.parse_known_args(arguments)
    config = options.named or options.config
    if options.named and options.config:  # the first override stood where the file may stand
        rest = [str(options.config), *rest]
    if config is None:
        parser.error("which configuration?")
    try:
        if options.secrets:
            os.environ.update(take_secrets(options.secrets))
        if "--trust" in rest:  # not every command has the option
            rest.remove("--trust")
            os.environ[VARIABLE] = "1"
        overrides = [item for item in rest if "=" in item and not item.startswith("-")]
        loaded = load(config, overrides, files=False)
        if not Path(loaded.run.dir).is_absolute():
            raise ConfigError(
                f"run.dir = {loaded.run.dir!r} is relative, and a job's working directory is a temporary copy",
                hint="Give an absolute path that every node can reach: run.dir=/abs/path",
            )
        address = [] if loaded.cluster.address else ["cluster.address=auto"]
        if callable(command):
            command(plan_of(load(config, [*overrides, *address])))
            return 0
    except AgentrError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    from agentr import cli

    sys.argv = ["agentr", *command, str(config), *rest, *address]
    cli.main()
    return 0


def take_secrets(uri: str) -> dict[str, str]:
    """Takes what a submission has handed over; it is there no more afterwards.

    Raises:
        ConfigError: It is not there.
    """
    found = ray_private.take(uri)
    if found is None:
        raise ConfigError(
            "the secrets that were submitted are gone: a job can take them once", hint="Submit the run again."
        )
    return json.loads(found)
