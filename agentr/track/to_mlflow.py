"""MLflow: the server of ``MLFLOW_TRACKING_URI``; without one, files in the run directory."""

import os
from collections.abc import Sequence

from mlflow import MlflowClient  # type: ignore[import-not-found]
from mlflow.entities import Metric, Param  # type: ignore[import-not-found]

from agentr.track.points import Point
from agentr.track.tracker import PROJECT, About

#: Tag by which a run is found again.
_ID = "agentr.id"
#: What MLflow takes: parameters at a time, characters of one.
_PARAMS, _LONGEST = 100, 6000


class MLflow:
    def start(self, about: About) -> None:
        # its servers and databases need more than mlflow-skinny
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._client = MlflowClient(
            os.environ.get("MLFLOW_TRACKING_URI") or (about.folder / "mlflow").resolve().as_uri()
        )
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        experiment = self._client.get_experiment_by_name(name)
        place = experiment.experiment_id if experiment is not None else self._client.create_experiment(name)
        found = self._client.search_runs([place], f"tags.`{_ID}` = '{about.id}'")
        run = found[0] if found else self._client.create_run(place, run_name=about.name, tags={_ID: about.id})
        self._run = run.info.run_id
        self._client.update_run(self._run, "RUNNING")
        # Parameters of a run cannot change.
        new = [Param(key, str(value)[:_LONGEST]) for key, value in about.config.items() if key not in run.data.params]
        for first in range(0, len(new), _PARAMS):
            self._client.log_batch(self._run, params=new[first : first + _PARAMS])
        self._partly: tuple[int, set[str]] = (0, set())

    def held(self, points: Sequence[Point], logged: int) -> int:
        for point in points[logged:]:
            there = {name for name, number in point.numbers.items() if self._has(name, point.step, number)}
            if len(there) < len(point.numbers):
                self._partly = point.number, there
                return point.number - 1
        return len(points)

    def _has(self, name: str, step: int, number: float) -> bool:
        return any(
            metric.step == step and metric.value == number
            for metric in self._client.get_metric_history(self._run, name)
        )

    def log(self, point: Point) -> None:
        number, there = self._partly
        names = [name for name in point.numbers if number != point.number or name not in there]
        metrics = [Metric(name, point.numbers[name], int(1000 * point.time), point.step) for name in names]
        self._client.log_batch(self._run, metrics=metrics)

    def finish(self) -> None:
        self._client.set_terminated(self._run)
