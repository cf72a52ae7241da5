"""The benchmarks as one calls them."""

from typer.testing import CliRunner

from tests.tools.bench.command import app


def bench(*arguments: str) -> str:
    """Runs ``python -m tests.tools.bench`` in this process and returns what it writes."""
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout
