"""What presets are trained with is what trainings are tested with."""

from tests.train.conftest import one_process, process_group, start

__all__ = ["one_process", "process_group", "start"]
