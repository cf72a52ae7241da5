"""Settings with which processes spend less of a CPU on what is not their work."""

import ctypes
import gc

#: Makes OpenMP's waiting threads sleep after a few microseconds of spinning. With the default they spin on: an engine
#: took 19.5 s instead of 4.8 s when another process ran; with this setting 9 s (5-6 s alone). Two threads of a trainer
#: were slower than one. OpenMP reads the setting when a process loads it, with torch.
OPENMP = {"GOMP_SPINCOUNT": "2000"}

# Options of glibc's mallopt(3).
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> None:
    """Makes this process keep the memory of freed tensors for later ones. Does nothing without glibc.

    By default the C library returns large blocks to the system and takes new pages for the next tensor, which the
    system fills with zeros: over a fourth of the time of an engine, and up to a half of a trainer's.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 2**28)


def give_back_memory() -> None:
    """Gives the system what `keep_freed_memory` kept. Does nothing without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        gc.collect()
        trim(0)


def multiplies_bf16() -> bool:
    """Whether this processor has instructions that multiply in bfloat16. Without them torch still does it: of a step of
    nano it then takes 1.7 times what float32 takes (AVX-512), or goes from number to number."""
    import torch

    has = torch.cpu.get_capabilities()
    return any(has.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"))


def look_for_cycles_rarely() -> None:
    """Makes this process look for unreachable cycles after 50,000 new objects instead of 700, and not among those that
    are there now.

    A coordinator makes many small objects, keeps most of them, and leaves few cycles: looking was a sixth of what its
    event loop computed.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
