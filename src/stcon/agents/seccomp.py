"""Which system calls a confined program may make: an allow list as a seccomp filter. Anything else fails with EPERM.

What is left out is the point. No sockets of any kind, no new processes and no other program (`fork`, `execve`), so that
nothing outlives the program and it has no child to do what it may not; no signal to another process, neither by `kill`
nor by `fcntl(F_SETOWN)`; no `chmod`, `chown`, links or times by path, which Landlock does not cover; no `io_uring`,
whose operations a filter does not see; no `ptrace`, namespaces, mounts, keys, `bpf`, `memfd_create`.

Source: seccomp(2); Linux, Documentation/userspace-api/seccomp_filter.rst. Numbers: asm/unistd_64.h (x86-64),
asm-generic/unistd.h (AArch64).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Instruction: TypeAlias = tuple[int, int, int, int | Literal["pid"]]  # code, jump if true, jump if false, constant

# name → number on x86-64, on AArch64 (None: there is no such call)
ALLOWED: dict[str, tuple[int | None, int | None]] = {
    # files: which ones is for Landlock to say
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68),
    "lseek": (8, 62), "open": (2, None), "openat": (257, 56), "close": (3, 57), "stat": (4, None), "fstat": (5, 80),
    "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291), "statfs": (137, 43), "fstatfs": (138, 44),
    "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, None),
    "readlinkat": (267, 78), "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50),
    "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None), "unlinkat": (263, 35),
    "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "symlink": (88, None), "symlinkat": (266, 36),
    "ftruncate": (77, 46), "fsync": (74, 82), "fdatasync": (75, 83), "dup": (32, 23), "dup2": (33, None),
    "dup3": (292, 24), "pipe": (22, None), "pipe2": (293, 59), "poll": (7, None), "ppoll": (271, 73),
    "select": (23, None), "pselect6": (270, 72), "copy_file_range": (326, 285), "sendfile": (40, 71),
    "umask": (95, 166),
    # memory, threads, time, signals to itself
    "mmap": (9, 222), "munmap": (11, 215), "mprotect": (10, 226), "mremap": (25, 216), "madvise": (28, 233),
    "brk": (12, 214), "membarrier": (324, 283), "futex": (202, 98), "set_robust_list": (273, 99), "rseq": (334, 293),
    "set_tid_address": (218, 96), "arch_prctl": (158, None), "sched_yield": (24, 124), "sched_getaffinity": (204, 123),
    "getcpu": (309, 168), "exit": (60, 93), "exit_group": (231, 94), "restart_syscall": (219, 128), "wait4": (61, 260),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigtimedwait": (128, 137),
    "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132), "pause": (34, None), "alarm": (37, None),
    "setitimer": (38, 103), "getitimer": (36, 102), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "nanosleep": (35, 101), "gettimeofday": (96, 169), "time": (201, None),
    "times": (100, 153), "getrusage": (98, 165), "sysinfo": (99, 179), "uname": (63, 160), "getrandom": (318, 278),
    "getrlimit": (97, 163), "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173), "getuid": (102, 174),
    "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177), "getresuid": (118, 148),
    "getresgid": (120, 150), "getgroups": (115, 158), "getpgrp": (111, None), "getpgid": (121, 155),
    "getsid": (124, 156),
}  # fmt: skip

# calls that depend on an argument: name → (number on x86-64, on AArch64), which argument, its values
PID: Literal["pid"] = "pid"  # stands for the program's own process
WITH_ARGUMENT: dict[str, tuple[tuple[int, int], int, tuple[int | Literal["pid"], ...]]] = {
    "kill": ((62, 129), 0, (PID,)),
    "tgkill": ((234, 131), 0, (PID,)),  # abort(3)
    "prlimit64": ((302, 261), 0, (0,)),  # 0: its own limits, which it cannot raise
    "prctl": ((157, 167), 0, (15, 16)),  # PR_SET_NAME, PR_GET_NAME
    # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC; not F_SETOWN and F_SETSIG: SIGIO to any process
    "fcntl": ((72, 25), 1, (0, 1, 2, 3, 4, 1030)),
    "ioctl": ((16, 29), 1, (0x5401, 0x5413, 0x541B, 0x5450, 0x5451)),  # TCGETS, TIOCGWINSZ, FIONREAD, FIONCLEX, FIOCLEX
}
CLONE = (56, 220)
CLONE_THREAD = 0x10000
CLONE3, OPENAT2 = 435, 437  # their arguments are out of a filter's reach; ENOSYS makes the C library use the older call

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16  # in struct seccomp_data; arguments have 8 bytes, their low half first
_X32 = 0x40000000  # set in the numbers of x86-64's other ABI, which would pass under other numbers
_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38


def architectures() -> tuple[str, ...]:
    """The machines that there is a filter for, as `platform.machine` names them."""
    return tuple(_AUDIT_ARCH)


def seccomp_filter(machine: str) -> list[Instruction]:
    """The filter as instructions of classic BPF; "pid" stands for the number of the process that installs it.

    Args:
        machine: one of `architectures`.
    """
    column = architectures().index(machine)
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NR_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
    ]
    for numbers in ALLOWED.values():
        if (number := numbers[column]) is not None:
            program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    for both, argument, values in WITH_ARGUMENT.values():
        tests: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument)]
        for value in values:
            tests += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW)]
        program += _only_for(both[column], [*tests, (_RETURN, 0, 0, _ERRNO | _EPERM)])
    threads: list[Instruction] = [
        (_LOAD, 0, 0, _ARGUMENTS_AT),
        (_ANY_BIT, 0, 1, CLONE_THREAD),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
    ]
    program += _only_for(CLONE[column], threads)
    for number in (CLONE3, OPENAT2):
        program += _only_for(number, [(_RETURN, 0, 0, _ERRNO | _ENOSYS)])
    return [*program, (_RETURN, 0, 0, _ERRNO | _EPERM)]


def _only_for(number: int, then: list[Instruction]) -> list[Instruction]:
    """`then`, which ends in returns, for one system call."""
    return [(_EQUAL, 0, len(then), number), *then]
