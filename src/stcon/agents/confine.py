"""Runs one Python program confined: started by `stcon.agents.sandbox` as ``python -I -S confine.py SPECIFICATION``.

Stands alone, on the standard library, since it sees no installed package. The program comes on standard input; the
specification (JSON) has

- ``folder``: where it runs, the only place where it may write;
- ``read``: files and folders that it may read besides (the interpreter's own);
- ``limits``: resource limits by name, hard and soft alike;
- ``filter``: the seccomp filter (`stcon.agents.seccomp`).

In this order: limits, no new privileges, no capabilities, Landlock, seccomp. What fails is said on standard error and
ends the process with `UNCONFINED` before the program is read by the interpreter.

Source: landlock(7), seccomp(2), capabilities(7).
"""

import ctypes
import json
import os
import resource
import sys
import traceback
import types

UNCONFINED = 97  # the exit code of a machine that cannot confine

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446  # on every architecture
_PATH_BENEATH = 1
# rights on files by the version of Landlock that brought them
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_RIGHTS = ((1, (1 << 13) - 1), (2, 1 << 13), (3, 1 << 14), (5, 1 << 15))
_OF_FILES = 1 << 0 | 1 << 1 | _READ_FILE | 1 << 14 | 1 << 15  # rights that a file, not a folder, can have
_WRITE_FILE = 1 << 1
_NOT_IN_FOLDER = 1 << 0 | 1 << 6 | 0b111 << 9 | 1 << 15  # execute; make devices, sockets, pipes; ioctl on devices
_NETWORK = 0b11  # bind and connect, since version 4
_SCOPES = 0b11  # abstract sockets and signals, since version 6

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction))]


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("rights", ctypes.c_uint64), ("place", ctypes.c_int32)]


def _call(what: str, result: int) -> int:
    """`result`, unless it says that `what` failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _prctl(what: str, option: int, *arguments: object) -> None:
    padded = [*arguments, *([0] * (4 - len(arguments)))]
    _call(what, _libc.prctl(option, *(ctypes.c_ulong(one) if isinstance(one, int) else one for one in padded)))


def _limit(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


def _drop_capabilities() -> None:
    """Not even root's process may do what root may."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _call("capset", _libc.syscall(ctypes.c_long(_CAPSET[os.uname().machine]), header, nothing))


def _restrict_files(folder: str, read: list[str]) -> None:
    """Landlock: `folder` for all, `read` for reading, nothing else to be opened, made, moved or removed."""
    version = _call("landlock", _libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1))
    handled = sum(right for since, right in _RIGHTS if since <= version)
    rules = _Ruleset(handled, _NETWORK if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _call("landlock", _libc.syscall(_LANDLOCK_CREATE, ctypes.byref(rules), ctypes.c_size_t(size), 0))
    granted = [(folder, handled & ~_NOT_IN_FOLDER), ("/dev/null", _WRITE_FILE | _READ_FILE)]
    for place, rights in [*granted, *((place, _READ_FILE | _READ_DIR) for place in read)]:
        number = os.open(place, os.O_PATH | os.O_CLOEXEC)
        allowed = rights if os.path.isdir(place) else rights & _OF_FILES
        rule = _Beneath(allowed & handled, number)
        _call("landlock", _libc.syscall(_LANDLOCK_ADD, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
        os.close(number)
    _call("landlock", _libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)


def _filter_calls(instructions: list[list]) -> None:  # type: ignore[type-arg]
    """seccomp, for this and every thread to come."""
    own = [[os.getpid() if field == "pid" else field for field in instruction] for instruction in instructions]
    array = (_Instruction * len(own))(*(_Instruction(*instruction) for instruction in own))
    program = _Filter(len(own), array)
    _prctl("seccomp", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program))


def confine(specification: dict) -> None:  # type: ignore[type-arg]
    """Give up what the specification does not grant; there is no way back."""
    os.chdir(specification["folder"])
    _limit(specification["limits"])
    _prctl("no_new_privs", _PR_SET_NO_NEW_PRIVS, 1)
    _drop_capabilities()
    _restrict_files(specification["folder"], specification["read"])
    _filter_calls(specification["filter"])


def run(source: str) -> int:
    """Run the program as ``__main__``; errors are shown without this file's own frames."""
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.path.insert(0, "")
    sys.argv = ["program"]
    try:
        exec(compile(source, "program", "exec"), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(type(error), error, trace)
        return 1
    return 0


def main() -> int:
    """The process."""
    source = sys.stdin.read()
    try:
        confine(json.loads(sys.argv[1]))
    except (OSError, ValueError, KeyError, AttributeError) as error:
        print(f"cannot confine programs here: {error}", file=sys.stderr)
        return UNCONFINED
    return run(source)


if __name__ == "__main__":
    sys.exit(main())
