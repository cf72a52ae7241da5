"""The stepping thread, which owns vLLM's engine.

vLLM's in-process engine is synchronous and not thread-safe. A single thread owns it from construction to the end and
takes its work from a queue: requests join the batch between two decoding steps (continuous batching), and a *barrier*
(a weight reload) runs once everything queued before it has finished, before anything queued after it starts. So a
request sees one set of weights from its first token to its last, without a lock.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from agentr.errors import AgentrError, InfraError, ModelError, first_line
from agentr.logs import own_output

log = logging.getLogger(__name__)


@dataclass
class Batch:
    """The sequences of one request. The future gets their final outputs, in order."""

    prompt_ids: list[int]
    params: Sequence[Any]
    check: Callable[[], None]
    """Called in the thread before the batch is admitted; its exception goes to the caller."""
    future: Future[list[Any]] = field(default_factory=Future)
    outputs: dict[int, Any] = field(default_factory=dict)


@dataclass
class Barrier:
    """A call that has the engine to itself."""

    run: Callable[[Any], Any]
    future: Future[Any] = field(default_factory=Future)


class Stepper:
    """A thread that builds an engine and decodes until closed.

    Invariants: every future handed out is resolved exactly once, also when the thread dies; a cancelled batch is
    aborted in the engine at the next step.

    Args:
        build: Makes the vLLM engine; called in the thread, because some of torch's settings hold for one thread.

    Raises:
        ModelError: ``build`` failed; the cause is attached.
    """

    def __init__(self, build: Callable[[], Any], name: str) -> None:
        self._build = build
        self._queue: deque[Batch | Barrier] = deque()
        self._live: dict[str, tuple[Batch, int]] = {}
        self._wake = threading.Condition()
        self._closed = False
        self._count = 0
        self._step_began = 0.0
        self.problem: BaseException | None = None
        self.busy_s = 0.0
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._main, args=(started,), name=name, daemon=True)
        self._thread.start()
        started.result()

    @property
    def running(self) -> int:
        """Number of sequences in the engine."""
        return len(self._live)

    @property
    def queued(self) -> int:
        """Number of batches and barriers that were not admitted yet."""
        return len(self._queue)

    @property
    def stalled_s(self) -> float:
        """Duration of the step or barrier in progress, in seconds; 0 between steps."""
        began = self._step_began
        return time.monotonic() - began if began else 0.0

    def submit(self, work: Batch | Barrier) -> None:
        """Queues work.

        Raises:
            InfraError: The thread has died or was closed.
        """
        with self._wake:
            if self._closed or self.problem is not None:
                raise self._dead()
            self._queue.append(work)
            self._wake.notify()

    def close(self, timeout_s: float = 60.0) -> None:
        """Fails unfinished work and ends the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(timeout_s)

    # ------------------------------------------------------------------------------------------------------------------

    def _main(self, started: Future[None]) -> None:
        try:
            engine = self._build()
        except Exception as error:  # noqa: BLE001 - handed to the constructor, whatever it is
            failure = ModelError(
                f"vLLM could not load the model: {first_line(error)}", hint=f"vLLM's report is in {own_output()}."
            )
            failure.__cause__ = error
            started.set_exception(error if isinstance(error, AgentrError) else failure)
            return
        started.set_result(None)
        try:
            while self._wait_for_work():
                self._admit(engine)
                self._decode(engine)
        except Exception as error:
            log.exception("The engine failed.")
            self.problem = error
        self._fail_all()
        engine.engine_core.shutdown()

    def _wait_for_work(self) -> bool:
        with self._wake:
            self._wake.wait_for(lambda: self._closed or self._queue or self._live)
            return not self._closed

    def _admit(self, engine: Any) -> None:
        """Admits queued work up to the first barrier that has to wait for running sequences."""
        while self._queue:
            work = self._queue[0]
            if isinstance(work, Barrier):
                if self._live:
                    return
                self._queue.popleft()
                self._pass(work, engine)
            else:
                self._queue.popleft()
                self._add(work, engine)

    def _add(self, batch: Batch, engine: Any) -> None:
        if batch.future.cancelled():
            return
        from vllm.exceptions import VLLMValidationError

        try:
            batch.check()
            for index, params in enumerate(batch.params):
                self._count += 1
                engine.add_request(str(self._count), {"type": "token", "prompt_token_ids": batch.prompt_ids}, params)
                self._live[str(self._count)] = (batch, index)
        # vLLM refuses this request; the engine is as it was
        except (AgentrError, VLLMValidationError, ValueError, TypeError) as error:
            self._abort(batch, engine)
            refusal = (
                error if isinstance(error, AgentrError) else ModelError(f"vLLM refused a request: {first_line(error)}")
            )
            _settle(batch.future, error=refusal)
        except Exception as error:
            _settle(batch.future, error=InfraError(f"an engine failed while it took a request: {first_line(error)}"))
            raise

    def _pass(self, barrier: Barrier, engine: Any) -> None:
        self._step_began = time.monotonic()
        try:
            value = barrier.run(engine)
        except AgentrError as error:
            _settle(barrier.future, error=error)
        except Exception as error:
            # Weights may be half replaced: nothing that this engine says can be trusted any more.
            _settle(barrier.future, error=InfraError(f"an engine failed while it loaded weights: {first_line(error)}"))
            raise
        else:
            _settle(barrier.future, value=value)
        finally:
            self._step_began = 0.0

    def _decode(self, engine: Any) -> None:
        if not self._live:
            return
        self._step_began = began = time.monotonic()
        for output in engine.step():
            if not output.finished:
                continue
            batch, index = self._live.pop(output.request_id)
            batch.outputs[index] = output
            if len(batch.outputs) == len(batch.params):
                _settle(batch.future, value=[batch.outputs[i] for i in range(len(batch.params))])
        for batch in {id(b): b for b, _ in self._live.values() if b.future.cancelled()}.values():
            self._abort(batch, engine)
        self._step_began = 0.0
        self.busy_s += time.monotonic() - began

    def _abort(self, batch: Batch, engine: Any) -> None:
        keys = [key for key, (owner, _) in self._live.items() if owner is batch]
        for key in keys:
            del self._live[key]
        engine.abort_request(keys)

    def _fail_all(self) -> None:
        with self._wake:  # from here on submit() refuses
            self._closed = True
            waiting = [work.future for work in self._queue] + [batch.future for batch, _ in self._live.values()]
            self._queue.clear()
            self._live.clear()
        for future in dict.fromkeys(waiting):
            _settle(future, error=self._dead())

    def _dead(self) -> InfraError:
        if self.problem is None:
            return InfraError("the engine was closed.")
        return InfraError(
            f"the engine's stepping thread died: {type(self.problem).__name__}: {first_line(self.problem)}"
        )


def _settle(future: Future[Any], *, value: Any = None, error: BaseException | None = None) -> None:
    """Resolves a future, unless its owner has cancelled it."""
    if future.done() or not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)
