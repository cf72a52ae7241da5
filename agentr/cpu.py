"""How engines and trainers share a CPU with everything else that runs on it."""

from __future__ import annotations

import ctypes

#: OpenMP's threads spin for a few microseconds while they wait for one another, then sleep. By default they spin on, and where another
#: process wants a core, an engine took four times as long (19.5 s in place of 4.8 s; so 9 s, and 5 to 6 s alone) and two threads of a
#: trainer were slower than one. Read when a process loads OpenMP, with torch.
OPENMP = {"GOMP_SPINCOUNT": "2000"}

# Options of glibc's mallopt(3).
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> None:
    """Lets this process keep the memory of freed tensors for the next ones.

    By default the C library hands large blocks back to the system and takes new pages for the next tensor, which the system fills with
    zeros: over a fourth of the time of an engine, and up to a half of a trainer's. Does nothing where the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 2**28)
