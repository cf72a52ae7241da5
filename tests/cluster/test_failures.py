"""What a person is told of a failure in another process: one sentence and a hint; the traceback is in the log that it
names."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray import exceptions
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayTaskError

from agentr.cluster.failures import answer_of, as_ours, cause_of
from agentr.commands.run import opened
from agentr.config.schema import Config
from agentr.errors import AgentrError, DataError, InfraError, ModelError, RunError
from agentr.methods import load, plan_of
from agentr.observe.progress import Reporter

TRACE = 'ray::Coordinator.run() (pid=7, ip=10.0.0.1)\n  File "units.py", line 3, in run\n    grow()\n'


def raised(cause: Exception) -> Exception:
    """What ``ray.get`` raises where a method of an actor raised ``cause``."""
    return RayTaskError("run", f"{TRACE}{type(cause).__name__}: {cause}", cause).as_instanceof_cause()


def died(constructor: str = "") -> ActorDiedError:
    """What it raises where the actor is gone."""
    if not constructor:
        return ActorDiedError()
    text = f"The actor died because of an error raised in its creation task, {TRACE}{constructor}"
    found = ActorDiedError()
    found.error_msg = text
    return found


@pytest.mark.parametrize(
    ("error", "kind", "message", "hint"),
    [
        (raised(DataError("the tree is torn", hint="Say it again.")), DataError, "the tree is torn", "Say it again."),
        (raised(KeyError("door")), InfraError, "the coordinator failed: KeyError: 'door'", ""),
        (raised(RuntimeError("CUDA out of memory.\nTried to")), InfraError, "failed: RuntimeError: CUDA out of memory.",
         "lower"),
        (raised(OSError(28, "No space left on device")), InfraError, "OSError: [Errno 28] No space left on device",
         "Free space"),
        (died("agentr.errors.ModelError: no such weights. Name others."), ModelError, "no such weights. Name others.",
         ""),
        (died("ValueError: 3"), InfraError, "the coordinator could not start: ValueError: 3", ""),
        (died(), InfraError, "the coordinator failed: ActorDiedError: ", "Start the same run again"),
        (exceptions.OutOfMemoryError("killed: the node runs low on memory"), InfraError, "OutOfMemoryError",
         "more memory"),
    ],
)  # fmt: skip
def test_an_error_of_an_actor_is_one_sentence(
    error: Exception, kind: type[AgentrError], message: str, hint: str
) -> None:
    found = cause_of(error, "the coordinator")
    assert type(found) is kind and message in found.message and hint in found.hint
    assert "\n" not in found.message and "ray::" not in found.message and "File" not in found.message


def answering(error: Exception) -> Any:
    def get(*_: object, **__: object) -> None:
        raise error

    return SimpleNamespace(get=get, exceptions=exceptions)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (raised(DataError("the tree is torn")), DataError, "^the tree is torn$"),
        (raised(KeyError("door")), RunError, "^the coordinator failed: KeyError: 'door'$"),
        (GetTimeoutError("x"), InfraError, r"^the coordinator did not answer within \d+ s$"),
        (ActorUnavailableError("x", None), ActorUnavailableError, ""),
    ],
)
def test_an_answer_that_is_an_error(error: Exception, kind: type[Exception], message: str) -> None:
    """What nobody foresaw is no failure of machinery: the same call would fail again."""
    with pytest.raises(kind, match=message):
        answer_of(answering(error), None, "the coordinator", 1.0)


def ended(tmp_path: Path, fail: Callable[[], None]) -> AgentrError:
    """The error with which a run ends whose work is ``fail``."""
    config: Config = load(None, [f"run.dir={tmp_path / 'run'}", "run.name=small"])
    services: Any = SimpleNamespace(take_over=lambda *_: None)
    with pytest.raises(AgentrError) as caught, opened(plan_of(config), Reporter(), services=services):
        fail()
    return caught.value


def test_the_traceback_of_what_nobody_foresaw_is_in_the_log_that_the_message_names(tmp_path: Path) -> None:
    def fail() -> None:
        raise raised(KeyError("door"))

    error = ended(tmp_path, fail)
    log = tmp_path / "run/logs/driver.log"
    assert error.message == "a part of the run failed: KeyError: 'door'" and error.hint == f"The traceback is in {log}."
    text = log.read_text()
    assert "units.py" in text and "the run ended: InfraError: a part of the run failed" in text
    lines = [json.loads(line) for line in (tmp_path / "run/logs/driver.jsonl").read_text().splitlines()]
    assert any("units.py" in line.get("exception", "") for line in lines), "agentr logs shows it too"


def test_what_has_a_traceback_behind_it_says_where_that_is(tmp_path: Path) -> None:
    def fail() -> None:
        raise InfraError("the head is gone", hint="Start it.") from raised(OSError("connection refused"))

    error = ended(tmp_path, fail)
    assert type(error) is InfraError and error.message == "the head is gone"
    assert error.hint == f"Start it. The traceback is in {tmp_path / 'run/logs/driver.log'}."
    assert "connection refused" in (tmp_path / "run/logs/driver.log").read_text()


def test_what_is_said_on_purpose_has_no_traceback(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise DataError("no rows", hint="Widen the tasks.")

    error = ended(tmp_path, fail)
    assert (error.message, error.hint) == ("no rows", "Widen the tasks.")
    assert "Traceback" not in (tmp_path / "run/logs/driver.log").read_text()
    with caplog.at_level(logging.ERROR):
        assert as_ours(error, tmp_path) is error and not caplog.records


def test_a_defect_in_the_driver_is_a_sentence_too(tmp_path: Path) -> None:
    def fail() -> None:
        {}["door"]

    error = ended(tmp_path, fail)
    assert (
        isinstance(error, RunError)
        and error.message == "the run failed: KeyError: 'door'"
        and "driver.log" in error.hint
    )
    assert "KeyError: " in (tmp_path / "run/logs/driver.log").read_text()


class Failing:
    """An actor that fails as it is told to."""

    def __init__(self, at_once: bool = False) -> None:
        if at_once:
            raise ModelError("no such weights", hint="Name others.")

    def fail(self, how: str) -> None:
        if how == "on purpose":
            raise DataError("the tree is torn", hint="Grow it anew.")
        if how == "unforeseen":
            raise KeyError("door")
        os._exit(1)


@pytest.mark.cluster
def test_what_real_actors_do_is_told_as_above(ray_session: None, tmp_path: Path) -> None:
    """The errors above are made up; these are Ray's."""
    import ray

    def fail(how: str, at_once: bool = False) -> AgentrError:
        actor = ray.remote(Failing).options(num_cpus=0).remote(at_once)
        try:
            answer_of(ray, actor.fail.remote(how), "the coordinator", 60.0)
        except Exception as error:  # noqa: BLE001 - as the joint of a run gets it
            return as_ours(error, tmp_path / "driver.log")
        raise AssertionError("it did not fail")

    torn = fail("on purpose")
    assert (type(torn), torn.message, torn.hint) == (DataError, "the tree is torn", "Grow it anew.")
    defect = fail("unforeseen")
    assert (
        isinstance(defect, RunError)
        and defect.message == "the coordinator failed: KeyError: 'door'"
        and "driver.log" in defect.hint
    )
    gone = fail("exit")
    assert isinstance(gone, InfraError) and "ActorDiedError" in gone.message and "Start the same run again" in gone.hint
    unready = fail("on purpose", at_once=True)
    assert isinstance(unready, ModelError) and unready.message == "no such weights. Name others."
    for error in (torn, defect, gone, unready):
        assert "\n" not in str(error) and "Traceback" not in error.message and "ray::" not in str(error), error
