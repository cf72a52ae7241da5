"""A run before it is started: what each stage takes, and what each device holds at its worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentr.config.policy import Device
from agentr.cost.evidence import Evidence, evidence
from agentr.cost.hardware import THIS, Hardware, hardware, measured_file
from agentr.cost.models import shape_of
from agentr.cost.needs import MemoryNeed, needs
from agentr.cost.shape import Shape
from agentr.cost.stages import StageForecast, StageForecaster
from agentr.errors import ConfigError
from agentr.rounds.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a run takes on some hardware.

    Attributes:
        shape: Of the model.
        stages: In the order in which they run.
        needs: Of each role.
        sources: Where counts are from, in words.
    """

    hardware: Hardware
    shape: Shape
    stages: list[StageForecast]
    needs: list[MemoryNeed]
    sources: list[str]

    @property
    def fits(self) -> bool:
        return all(need.fits for need in self.needs)

    def seconds(self) -> tuple[float, float, float]:
        """Returns the least, the expected and the most seconds."""
        stages = self.stages
        return sum(s.low for s in stages), sum(s.seconds.value for s in stages), sum(s.high for s in stages)

    def device_hours(self) -> tuple[float, float, float]:
        """Returns the same as hours of devices: of all of them, for as long as the run goes on."""
        low, mid, high = (each * self.hardware.count / 3600 for each in self.seconds())
        return low, mid, high


def forecast(plan: Plan, hardware: Hardware, known: Sequence[Evidence] | None = None) -> Forecast:
    """Returns what a run takes.

    Args:
        known: Evidence, the best first; by default what is found beside the run.

    Raises:
        ConfigError: The model's heads cannot be split over the GPUs of an engine.
        ModelError: The size of the model is not known.
    """
    shape = shape_of(plan.config.model)
    if shape.heads % (split := plan.config.policy.tensor_parallel_size):
        divisors = ", ".join(str(n) for n in range(1, 17) if shape.heads % n == 0)
        raise ConfigError(
            f"policy.tensor_parallel_size = {split} does not divide the {shape.heads} attention heads of {shape.name}",
            hint=f"Choose one of {divisors}.",
        )
    found = StageForecaster(plan, hardware, shape, evidence(plan) if known is None else known)
    stages = list(found.stages())
    return Forecast(
        hardware=hardware,
        shape=shape,
        stages=stages,
        needs=needs(plan, hardware, shape),
        sources=[f"counts of {', '.join(names)}: {source}" for source, names in found.counts.used.items()],
    )


def hardware_of(plan: Plan) -> Hardware | None:
    """Returns what a run will be on, as far as that is known: this machine once it was measured, or the GPUs of the
    cluster that this process has joined."""
    if not plan.config.trainer.use_gpu and plan.config.policy.device is not Device.gpu:
        return hardware(THIS) if measured_file().is_file() else None
    import ray

    resources = ray.cluster_resources() if ray.is_initialized() else {}
    kinds = [key.partition(":")[2] for key in resources if key.startswith("accelerator_type:")]
    try:
        return hardware(f"{int(resources.get('GPU', 1))}x{kinds[0]}") if len(kinds) == 1 else None
    except ConfigError:
        return None
