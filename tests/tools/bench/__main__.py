"""``python -m tests.tools.bench``."""

from agentr.cli import main
from tests.tools.bench.command import app

if __name__ == "__main__":
    main(app)
