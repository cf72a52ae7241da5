"""What presets are trained with is what trainings are tested with."""

from tests.train.conftest import one_process, start

__all__ = ["one_process", "start"]
