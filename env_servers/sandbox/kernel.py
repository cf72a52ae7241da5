"""The system calls that Python 3.11 has no function for, and the seccomp filter. Linux on x86_64 and aarch64."""

import ctypes
import errno
import os
import signal
import struct
from functools import cache

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
ALL_NAMESPACES = (
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET
)

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 0x1, 0x2, 0x4, 0x1000, 0x4000, 0x40000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID = 0x1, 0x2
_MNT_DETACH = 2
_ADDR_NO_RANDOMIZE, _PERSONALITY_UNCHANGED = 0x0040000, 0xFFFFFFFF
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522

#: Machine -> (audit number, system calls by name). What a call may do to the kernel beyond computing is refused: other
#: namespaces, other processes' memory, sockets that a network namespace does not hold (vsock), and memory that no
#: rlimit counts (memfd, SysV).
_MACHINES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {
            "socket": 41,
            "clone": 56,
            "clone3": 435,
            "unshare": 272,
            "setns": 308,
            "mount": 165,
            "umount2": 166,
            "pivot_root": 155,
        }
        | {
            "chroot": 161,
            "open_tree": 428,
            "move_mount": 429,
            "fsopen": 430,
            "fsconfig": 431,
            "fsmount": 432,
            "mount_setattr": 442,
        }
        | {"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "keyctl": 250, "add_key": 248}
        | {
            "request_key": 249,
            "bpf": 321,
            "perf_event_open": 298,
            "userfaultfd": 323,
            "io_uring_setup": 425,
            "memfd_create": 319,
        }
        | {"memfd_secret": 447, "shmget": 29, "msgget": 68, "semget": 64, "mq_open": 240, "open_by_handle_at": 304},
    ),
    "aarch64": (
        0xC00000B7,
        {
            "socket": 198,
            "clone": 220,
            "clone3": 435,
            "unshare": 97,
            "setns": 268,
            "mount": 40,
            "umount2": 39,
            "pivot_root": 41,
        }
        | {
            "chroot": 51,
            "open_tree": 428,
            "move_mount": 429,
            "fsopen": 430,
            "fsconfig": 431,
            "fsmount": 432,
            "mount_setattr": 442,
        }
        | {"ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "keyctl": 219, "add_key": 217}
        | {
            "request_key": 218,
            "bpf": 280,
            "perf_event_open": 241,
            "userfaultfd": 282,
            "io_uring_setup": 425,
            "memfd_create": 279,
        }
        | {"memfd_secret": 447, "shmget": 194, "msgget": 186, "semget": 190, "mq_open": 180, "open_by_handle_at": 265},
    ),
}
MACHINES = tuple(_MACHINES)


@cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library


def _checked(what: str, result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _syscall(what: str, number: int, *arguments: object) -> int:
    return _checked(what, _libc().syscall(ctypes.c_long(number), *arguments))


def fork_into(namespaces: int) -> int:
    """``fork`` whose child starts in new namespaces: its process id, or 0 in the child.
    The caller must have one thread only.

    The child is made without Python's fork hooks: it may call ``os.fork`` for a complete one, and must end with
    ``os._exit``.
    """
    number = _MACHINES[os.uname().machine][1]["clone"]
    return _syscall("clone", number, *(ctypes.c_ulong(v) for v in (namespaces | signal.SIGCHLD, 0, 0, 0, 0)))


def unshare(namespaces: int) -> None:
    """Moves this process into new namespaces."""
    _checked("unshare", _libc().unshare(namespaces))


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """``mount(2)``."""
    _checked(
        f"mount {kind or source} on {target}",
        _libc().mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()),
    )


def unmount(target: str) -> None:
    """Takes a mount and all below it out of sight; its last user frees it."""
    _checked(f"umount {target}", _libc().umount2(target.encode(), _MNT_DETACH))


def pivot_root(new: str, old: str) -> None:
    """Makes ``new`` the root of the file system and puts the old root at ``old``."""
    _syscall("pivot_root", _MACHINES[os.uname().machine][1]["pivot_root"], new.encode(), old.encode())


def restrict_mount(target: str, attributes: int, *, recursive: bool, lifted: int = 0) -> None:
    """Adds attributes to a mount, and to all below it, and takes away those that are ``lifted``."""
    number = _MACHINES[os.uname().machine][1]["mount_setattr"]
    data = struct.pack("QQQQ", attributes, lifted, 0, 0)
    flags = ctypes.c_uint(_AT_RECURSIVE if recursive else 0)
    _syscall("mount_setattr", number, ctypes.c_int(_AT_FDCWD), target.encode(), flags, data, ctypes.c_size_t(len(data)))


def stop_moving_addresses() -> bool:
    """Has what this process executes from now on, and its descendants, always loaded at the same addresses.

    Returns whether that is a change. Where the kernel does not let one (as under a container's default filter), it is
    none.
    """
    now = _libc().personality(ctypes.c_ulong(_PERSONALITY_UNCHANGED))
    return (
        now >= 0 and not now & _ADDR_NO_RANDOMIZE and _libc().personality(ctypes.c_ulong(now | _ADDR_NO_RANDOMIZE)) >= 0
    )


def drop_capabilities() -> None:
    """Gives up all capabilities of this process, and the ways to regain any by executing a file."""
    _checked("prctl", _libc().prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), *[ctypes.c_ulong(0)] * 3))
    _checked("capset", _libc().capset(struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24)))


def filter_system_calls() -> None:
    """Installs the seccomp filter for this process and its descendants; needs ``drop_capabilities`` first."""
    program = _filter(*_MACHINES[os.uname().machine])
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _checked(
        "seccomp",
        _libc().prctl(
            _PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), header, ctypes.c_ulong(0), ctypes.c_ulong(0)
        ),
    )


def _filter(machine: int, calls: dict[str, int]) -> bytes:
    """The filter as classic BPF over ``struct seccomp_data`` (number at 0, architecture at 4, first argument at 16)."""

    def load(offset: int) -> tuple[int, int, int, int]:
        return (0x20, 0, 0, offset)

    def jump(test: int, value: int, yes: int, no: int) -> tuple[int, int, int, int]:
        return (test, yes, no, value)

    def refuse(code: int) -> tuple[int, int, int, int]:
        return (0x06, 0, 0, 0x00050000 | code)

    equal, at_least, any_bit = 0x15, 0x35, 0x45
    allow, kill = (0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x80000000)
    program = [load(4), jump(equal, machine, 1, 0), kill, load(0), jump(at_least, 0x40000000, 0, 1), kill]
    # AF_UNIX is 1
    program += [jump(equal, calls["socket"], 0, 4), load(16), jump(equal, 1, 1, 0), refuse(errno.EPERM), allow]
    program += [
        jump(equal, calls["clone"], 0, 4),
        load(16),
        jump(any_bit, ALL_NAMESPACES, 0, 1),
        refuse(errno.EPERM),
        allow,
    ]
    # the C library then takes clone, whose flags can be seen
    program += [jump(equal, calls["clone3"], 0, 1), refuse(errno.ENOSYS)]
    for name, number in calls.items():
        if name not in ("socket", "clone", "clone3"):
            program += [jump(equal, number, 0, 1), refuse(errno.EPERM)]
    return b"".join(struct.pack("HBBI", *line) for line in [*program, allow])
