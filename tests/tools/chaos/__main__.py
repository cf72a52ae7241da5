"""``python -m tests.tools.chaos``."""

from agentr.cli import main
from tests.tools.chaos.command import app

if __name__ == "__main__":
    main(app)
