"""The process that logs a run to one tracker: ``python -m agentr.track.feed NAME RUN``, started and ended by the run's
driver.

A process of its own, because the trackers' libraries print, hang when the network does, and want to be waited for at
the end of theirs. It finds points in the run directory, and ends when the driver says so on its standard input (`END`),
or at once when the driver is gone. What a person should know is on its standard output; all else that is printed goes
to the log.
"""

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

from agentr.config.secrets import without_secrets
from agentr.errors import DataError, first_line
from agentr.read.run import Run
from agentr.secrets import clean_output, quoted
from agentr.store.files import read_json, write_json
from agentr.store.seal import hash_of
from agentr.track.points import Points
from agentr.track.tracker import About, Tracker, tracker

#: What the driver writes when there is nothing more to come.
END = "end"
#: Seconds between two looks for new points.
POLL_S = 1.0
#: Points after which it is noted how many were logged.
NOTE_EVERY = 100


class Feed:
    """Tells one tracker the points of a run, each once.
    ``tracking/<tracker>.json`` says under which id, and how many were logged."""

    def __init__(self, name: str, root: Path) -> None:
        self.run = Run(root)
        self.note = self.run.layout.tracking / f"{name}.json"
        kept = {}
        with suppress(DataError):  # nothing was logged yet
            kept = read_json(self.note)
        # The first event of a run is like no other's, and it is in its mirror: so a run that is restored goes on as
        # itself.
        self.id = kept.get("id") or hash_of(self.run.events()[0])[:16]
        self.logged = int(kept.get("logged", 0))
        self.points = Points(self.run.layout, name)

    def about(self) -> About:
        config = {
            key.replace("[", ".").replace("]", ""): value for key, value in without_secrets(self.run.config).items()
        }
        return About(self.id, self.run.name, config, self.run.layout.tracking)

    def work(self, tracker: Tracker, ending: threading.Event) -> None:
        """Logs what there is and what comes, until ``ending`` is set."""
        self.points.collect()  # a tracker that goes on is asked what it has of what there is
        tracker.start(self.about())
        self.logged = tracker.held(self.points.all, min(self.logged, len(self.points.all)))
        self._keep()
        last = False
        while not last:
            last = ending.wait(POLL_S)
            self.points.collect()
            for point in self.points.all[self.logged :]:
                tracker.log(point)
                self.logged = point.number
                if self.logged % NOTE_EVERY == 0 or self.logged == len(self.points.all):
                    self._keep()
        tracker.finish()

    def _keep(self) -> None:
        write_json(self.note, {"id": self.id, "logged": self.logged})


def _listen(ending: threading.Event) -> None:
    """Waits for the driver's word. Without a driver nothing more is logged: another one may be under way."""
    word = sys.stdin.readline().strip()
    if word != END:
        os._exit(1)
    ending.set()


def main(name: str, root: str) -> int:
    clean_output()
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    ending = threading.Event()
    threading.Thread(target=_listen, args=(ending,), daemon=True).start()
    try:
        Feed(name, Path(root)).work(tracker(name), ending)
    except Exception as error:  # noqa: BLE001 - whatever a library raises: it is said, and tried again
        print(quoted(f"{type(error).__name__}: {first_line(error)}"), file=said, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
