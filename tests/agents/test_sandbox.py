"""The sandbox: what its tools do, and every way out of it that we could think of."""

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stcon.agents.sandbox import Limits, Sandbox, ToolFailure, Unconfined
from stcon.agents.seccomp import ALLOWED, WITH_ARGUMENT, architectures, seccomp_filter


def can_confine():
    """Whether this machine can, and if not why."""
    try:
        with Sandbox() as sandbox:
            sandbox.run_python("")
    except Unconfined as error:
        return str(error)
    return ""


WHY_NOT = can_confine()
confined = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it can")


@pytest.fixture
def sandbox():
    with Sandbox() as found:
        yield found


@pytest.fixture
def outside(tmp_path):
    """A file that no tool may reach."""
    path = tmp_path / "secret.txt"
    path.write_text("secret")
    path.chmod(0o640)
    return path


# ------------------------------------------------------------------------------------------------- files


def test_files_are_written_and_read(sandbox):
    """Folders on the way are made, a second writing replaces the first, long files are cut with a note."""
    sandbox.write_file("a/b.txt", "one, longer")
    sandbox.write_file("a/b.txt", "é")
    assert sandbox.read_file("./a//b.txt") == "é"
    sandbox.write_file("long.txt", "x" * 20_000)
    assert sandbox.read_file("long.txt").endswith("[3,616 more bytes]")


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../x",
        "a/../../x",
        "..",
        ".",
        "",
        "a\0b",
        "a/",
        "a\\..\\b",
        "x" * 300,
        "a/" * 40 + "b",
        3,
        "\ud800",
    ],
)
def test_paths_out_of_the_folder_are_refused(sandbox, path):
    """Absolute paths, parents and what is no path: the message is for the model, nothing is opened."""
    for use in (lambda: sandbox.read_file(path), lambda: sandbox.write_file(path, "x")):
        with pytest.raises(ToolFailure):
            use()
    assert list(sandbox.folder.iterdir()) == []


def test_links_are_never_followed(sandbox, outside):
    """Links that a program left behind lead nowhere: to files, to folders, to nothing yet, over several steps."""
    (sandbox.folder / "file").symlink_to(outside)
    (sandbox.folder / "folder").symlink_to(outside.parent)
    (sandbox.folder / "new").symlink_to(outside.with_name("new"))
    (sandbox.folder / "twice").symlink_to("folder")
    for path in ("file", "folder/secret.txt", "new", "twice/secret.txt"):
        for use in (lambda path=path: sandbox.read_file(path), lambda path=path: sandbox.write_file(path, "x")):
            with pytest.raises(ToolFailure):
                use()
    assert outside.read_text() == "secret"
    assert [one.name for one in outside.parent.iterdir()] == [outside.name]


def test_pipes_and_folders_are_no_files(sandbox):
    """A pipe is not waited for; a folder is not a file."""
    os.mkfifo(sandbox.folder / "pipe")
    (sandbox.folder / "folder").mkdir()
    started = time.monotonic()
    for path in ("pipe", "folder"):
        for use in (lambda path=path: sandbox.read_file(path), lambda path=path: sandbox.write_file(path, "x")):
            with pytest.raises(ToolFailure):
                use()
    assert time.monotonic() - started < 5


def test_writing_is_bounded():
    """A file, the folder and the number of files have limits."""
    with Sandbox(Limits(file=10_000, folder=50_000, entries=8)) as sandbox:
        with pytest.raises(ToolFailure, match="no room"):
            sandbox.write_file("a", "x" * 10_001)
        for number in range(4):
            sandbox.write_file(f"f{number}", "x" * 10_000)
        with pytest.raises(ToolFailure, match="no room"):
            sandbox.write_file("b", "x" * 10_000)
    with Sandbox(Limits(entries=3)) as sandbox:
        sandbox.write_file("a/b/c", "")
        with pytest.raises(ToolFailure, match="no room"):
            sandbox.write_file("d", "")


def test_folder_is_removed():
    """Nothing stays, however deep; what links point at stays."""
    with Sandbox() as sandbox:
        folder = sandbox.folder
        here = os.getcwd()
        try:
            os.chdir(folder)
            for _ in range(150):
                os.mkdir("deep" * 10)
                os.chdir("deep" * 10)
        finally:
            os.chdir(here)
    assert not folder.exists()


# ------------------------------------------------------------------------------------------------- programs


@confined
def test_programs_run_in_the_folder(sandbox):
    """They print, read and write files there, import the standard library and files there, and fail with a trace."""
    sandbox.write_file("lib.py", "def double(x):\n    return 2 * x\n")
    source = """
import csv, datetime, decimal, hashlib, json, math, pathlib, random, re, statistics, tempfile, threading
from lib import double
pathlib.Path("out.json").write_text(json.dumps(double(21)))
thread = threading.Thread(target=print, args=("from a thread",))
thread.start(); thread.join()
with tempfile.NamedTemporaryFile() as file: file.write(b"x")
print(hashlib.sha256(b"x").hexdigest()[:8], input.__name__, flush=True)
"""
    ran = sandbox.run_python(source)
    assert (ran.code, ran.why) == (0, "")
    assert ran.output == "from a thread\n2d711642 input\n"
    assert sandbox.read_file("out.json") == "42"
    failed = sandbox.run_python("def f():\n    return 1 / 0\nf()")
    assert failed.code == 1
    assert "ZeroDivisionError" in failed.output
    assert "confine" not in failed.output
    assert sandbox.run_python("import sys; sys.exit(3)").code == 3
    assert "SyntaxError" in sandbox.run_python("def").output


# each is run inside, and must fail; what it returns says that it did not
ATTEMPTS = {
    "see an open file": "return [n for n in range(3, 64) if is_open(n)]",
    "read a file": "return open(SECRET).read()",
    "read a file by the process's folder": "return open('/proc/self/root' + SECRET).read()",
    "read a file by a link": "os.symlink(SECRET, 'l1'); return open('l1').read()",
    "read a file by a linked folder": "os.symlink('/', 'l2'); return open('l2' + SECRET).read()",
    "read a file by a parent": "return open('../' * 20 + SECRET).read()",
    "read a file by a hard link": "os.link(SECRET, 'l3'); return open('l3').read()",
    "read a file from a changed folder": "os.chdir('/'); return open(SECRET[1:]).read()",
    "read a file through a path's number": "n = os.open(SECRET, os.O_PATH); return open(f'/proc/self/fd/{n}').read()",
    "list a folder": "return os.listdir('/')",
    "list another sandbox": "return os.listdir(os.path.dirname(HOME))",
    "see the parent's environment": "return open(f'/proc/{os.getppid()}/environ').read()",
    "write the parent's memory": "return open(f'/proc/{os.getppid()}/mem', 'r+b')",
    "read the parent's memory": "return readv(os.getppid())",
    "write a file": "open(SECRET, 'w').write('x'); return True",
    "append to a file": "open(SECRET, 'a').write('x'); return True",
    "make a file": "open(SECRET + '2', 'w'); return True",
    "make a file in /tmp": "open('/tmp/stcon-was-here', 'w'); return True",
    "make a file in /dev/shm": "open('/dev/shm/stcon-was-here', 'w'); return True",
    "truncate a file": "os.truncate(SECRET, 0); return True",
    "remove a file": "os.unlink(SECRET); return True",
    "rename a file": "os.rename(SECRET, SECRET + '3'); return True",
    "move a file in": "os.rename(SECRET, 'mine'); return True",
    "move a file out": "open('m', 'w'); os.rename('m', SECRET + '4'); return True",
    "change a file's mode": "os.chmod(SECRET, 0o777); return True",
    "change a file's mode by its number": "os.fchmod(os.open(json.__file__, os.O_RDONLY), 0o777); return True",
    "change a file's owner": "os.chown(SECRET, 65534, 65534); return True",
    "change a file's times": "os.utime(SECRET, (0, 0)); return True",
    "set an attribute": "os.setxattr(SECRET, 'user.x', b'1'); return True",
    "make a device": "os.mknod('dev', 0o666 | stat.S_IFCHR, os.makedev(1, 1)); return True",
    "make a pipe": "os.mkfifo('pipe'); return True",
    "make the file set-user-id": "open('s', 'w'); os.chmod('s', 0o4755); return True",
    "change the root": "os.chroot('.'); return True",
    "mount": "return call(165, b'none', b'/', b'tmpfs', 0, 0)",
    "leave by another namespace": "return call(272, 0x10000000)",
    "open a socket": "return socket.socket()",
    "open a datagram socket": "return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "open a local socket": "return socket.socket(socket.AF_UNIX)",
    "open a raw socket": "return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "open a netlink socket": "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "open a pair of sockets": "return socket.socketpair()",
    "connect by name": "return socket.create_connection(('localhost', 80))",
    "fork": "return os.fork() or os._exit(0)",
    "fork a terminal": "return os.forkpty()",
    "start a program": "return subprocess.run(['/bin/true'])",
    "start a program by the shell": "return os.system('true') == 0",
    "spawn a program": "return os.posix_spawn('/bin/true', ['true'], {})",
    "become a program": "os.execv('/bin/true', ['true'])",
    "become a program in memory": "return os.memfd_create('x')",
    "start a pool": "return multiprocessing.Pool(1)",
    "signal the parent": "os.kill(os.getppid(), 0); return True",
    "stop the parent": "os.kill(os.getppid(), signal.SIGSTOP); return True",
    "signal everyone": "os.kill(-1, 0); return True",
    "signal the group": "os.killpg(0, 0); return True",
    "signal the parent's thread": "return call(234, os.getppid(), os.getppid(), 0)",
    "signal the parent by tkill": "return call(200, os.getppid(), 0)",
    "signal the parent by a file": "n = os.pidfd_open(os.getppid()); signal.pidfd_send_signal(n, 0); return True",
    "signal the parent by input": "r, w = os.pipe(); fcntl.fcntl(r, fcntl.F_SETOWN, os.getppid()); return True",
    "signal the parent by ioctl": "r, _ = os.pipe(); fcntl.ioctl(r, 0x8901, struct.pack('i', os.getppid())); return 1",
    "push input to the terminal": "fcntl.ioctl(0, 0x5412, b'x'); return True",
    "trace the parent": "return call(101, 16, os.getppid(), 0, 0)",
    "limit the parent": "resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1)); return True",
    "slow the parent": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19); return True",
    "raise a limit": "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, 1 << 40)); return True",
    "become another user": "os.setuid(12345); return True",
    "set up a ring": "return call(425, 8, ctypes.create_string_buffer(120))",
    "load a program into the kernel": "return call(321, 0, ctypes.create_string_buffer(128), 128)",
    "watch events": "return call(298, ctypes.create_string_buffer(128), 0, -1, -1, 0)",
    "fault by hand": "return call(323, 0)",
    "add a key": "return call(248, b'user', b'x', b'y', 1, -3)",
    "share memory": "return call(29, 0, 4096, 0o1777)",
    "read the kernel's log": "return call(103, 3, ctypes.create_string_buffer(64), 64)",
    "set the clock": "time.clock_settime(time.CLOCK_REALTIME, 0); return True",
    "name the machine": "socket.sethostname('x'); return True",
    "restart the machine": "return call(169, 0, 0, 0)",
    "take the filter off": "return call(157, 22, 0, 0)",
    "gain a capability": "return call(126, (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[8] * 6))",
    "see the environment": "return [name for name in os.environ if 'SECRET' in name]",
}

PROGRAM = """
import ctypes, fcntl, json, multiprocessing, os, resource, signal, socket, stat, struct, subprocess, time
SECRET, HOME = {secret!r}, os.environ["HOME"]
libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return ("done", result)

def readv(pid):
    return call(310, pid, ctypes.create_string_buffer(16), 1, ctypes.create_string_buffer(16), 1, 0)

def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True

{functions}
found = {{}}
for name, attempt in attempts.items():
    os.chdir(HOME)
    try:
        found[name] = repr(attempt()) if attempt() else ""
    except (OSError, ValueError):
        found[name] = ""
os.chdir(HOME)
with open("found.json", "w") as file:
    json.dump(found, file)
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each attempt brought; they share a process, the names of which are those of x86-64's calls."""
    secret = tmp_path_factory.mktemp("outside") / "secret.txt"
    secret.write_text("secret")
    secret.chmod(0o640)
    before = secret.stat()
    names = [f"def attempt_{number}():\n    {source}" for number, source in enumerate(ATTEMPTS.values())]
    table = ", ".join(f"{name!r}: attempt_{number}" for number, name in enumerate(ATTEMPTS))
    source = PROGRAM.format(secret=str(secret), functions="\n".join([*names, f"attempts = {{{table}}}"]))
    os.environ["STCON_SECRET"] = "secret"
    try:
        with Sandbox(Limits(cpu_s=30, wall_s=60)) as sandbox:
            ran = sandbox.run_python(source)
            assert ran.code == 0, ran
            result = json.loads((sandbox.folder / "found.json").read_text())
    finally:
        del os.environ["STCON_SECRET"]
    after = secret.stat()
    assert secret.read_text() == "secret"
    assert [(before.st_mode, before.st_uid, before.st_mtime)] == [(after.st_mode, after.st_uid, after.st_mtime)]
    assert [one.name for one in secret.parent.iterdir()] == ["secret.txt"]
    return result


@confined
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the attempts use the numbers of x86-64's system calls")
@pytest.mark.parametrize("name", ATTEMPTS)
def test_there_is_no_way_out(found, name):
    """Each attempt fails inside, with an error that the program can see and go on from."""
    assert found[name] == ""


@pytest.mark.skipif(platform.machine() != "x86_64" or os.geteuid() != 0, reason="as root most attempts would succeed")
def test_the_attempts_succeed_unconfined(tmp_path):
    """The attempts are ones: without the sandbox they bring what they are after (those that harm nobody)."""
    (secret := tmp_path / "secret.txt").write_text("secret")
    harmless = [
        "read a file", "read a file by the process's folder", "read a file by a link", "read a file by a linked folder",
        "read a file by a parent", "read a file through a path's number", "list a folder", "open a socket",
        "see the parent's environment", "open a local socket", "open a pair of sockets", "fork", "start a program",
        "become a program in memory", "signal the parent", "signal the parent by input", "set up a ring", "make a pipe",
    ]  # fmt: skip
    functions = "\n".join(f"def attempt_{n}():\n    {ATTEMPTS[name]}" for n, name in enumerate(harmless))
    table = ", ".join(f"{name!r}: attempt_{n}" for n, name in enumerate(harmless))
    source = PROGRAM.format(secret=str(secret), functions=f"{functions}\nattempts = {{{table}}}")
    source = source.replace("repr(attempt()) if attempt() else", "repr(attempt()) or")  # once each
    environment = {**os.environ, "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", source], cwd=tmp_path, env=environment, check=True, timeout=60)
    result = json.loads((tmp_path / "found.json").read_text())
    assert [name for name in harmless if not result[name]] == []


@confined
@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("while True: pass", "processor time"),
        ("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", "processor time"),
        ("import time\ntime.sleep(60)", "stopped after"),
        (
            "import signal, time\nfor n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(60)",
            "stopped after",
        ),
        ("while True: print('x' * 1000)", ""),
        ("x = []\nwhile True: x.append(bytearray(1 << 24))", ""),
        (
            "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()",
            "stopped after",
        ),
        ("open('big', 'wb').write(b'x' * (1 << 24))", ""),
        ("for n in range(100): open(f'f{n}', 'wb').write(b'x' * (1 << 22))", "bytes were written"),
        ("for n in range(10 ** 6): open(f'f{n}', 'w').close()", "files"),
        ("import os\nwhile True:\n    os.mkdir('d' * 200); os.chdir('d' * 200)", "files"),
        (
            "import mmap, os\nkept = []\nwhile True:\n    f = open('f', 'w+b'); f.write(b'x' * (1 << 22)); f.flush()\n"
            "    kept.append(mmap.mmap(f.fileno(), 4096)); f.close(); os.unlink('f')",
            "bytes were written",
        ),
        ("import os\nkept = []\nwhile True: kept.append(os.open('.', os.O_RDONLY))", ""),
        ("import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): return f() + 1\nf()", ""),
        ("import os\nos.abort()", ""),
    ],
    ids=[
        "a busy loop", "a busy loop that takes the signal", "sleep", "sleep without signals", "endless output",
        "memory", "threads", "a big file", "many big files", "many files", "deep folders", "files without a name",
        "open files", "deep recursion", "abort",
    ],
)  # fmt: skip
def test_what_takes_too_much_is_ended(source, why):
    """Programs without an end, or without measure, fail within their limits and leave the machine as it was."""
    limits = Limits(cpu_s=1, wall_s=2 if "stopped after" in why else 30, memory=256 << 20, entries=300)
    with Sandbox(limits) as sandbox:
        started = time.monotonic()
        ran = sandbox.run_python(source)
        assert ran.code != 0
        assert why in ran.why
        assert time.monotonic() - started < 40
        assert len(ran.output) <= limits.shown + 10
        files = [os.path.join(place, name) for place, _, names in os.walk(sandbox.folder) for name in names]
        used = sum(os.lstat(file).st_blocks * 512 for file in files)
        assert used < limits.folder + (200 << 20)  # what can be written between two looks


@confined
@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 has that other way to make system calls")
def test_calls_by_other_numbers_end_the_program(sandbox):
    """The numbers of x86-64's second ABI name no allowed call; they end the program."""
    source = "import ctypes\nprint(ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 + 41), 2, 1, 0))"
    ran = sandbox.run_python(source)
    assert ran.code < 0
    assert ran.output == ""


@confined
def test_nothing_outlives_a_program(sandbox):
    """When a program is over, or ended, no process is left that has its folder."""
    sandbox.run_python("import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()")
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd").startswith(str(sandbox.folder)):
                left.append(process.name)
        except OSError:
            continue
    assert left == []


@confined
def test_a_machine_that_cannot_confine_runs_nothing(sandbox, monkeypatch):
    """Where a step of the confinement fails the program is not run, and the refusal says what failed."""
    monkeypatch.setattr("stcon.agents.sandbox.seccomp_filter", lambda machine: [(0xFFFF, 0, 0, 0)])
    with pytest.raises(Unconfined, match="seccomp"):
        sandbox.run_python("open('ran', 'w')")
    assert list(sandbox.folder.iterdir()) == []
    monkeypatch.setattr("stcon.agents.sandbox.platform.machine", lambda: "riscv64")
    with pytest.raises(Unconfined, match="riscv64"):
        sandbox.run_python("open('ran', 'w')")


@pytest.mark.parametrize("machine", architectures())
def test_filter_allows_what_is_listed_alone(machine):
    """The filter, run by hand: a call passes if it is listed (with a listed argument, where one counts), else fails."""
    program, column = seccomp_filter(machine), architectures().index(machine)
    audit = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]
    plain = {numbers[column] for numbers in ALLOWED.values()} - {None}
    special = {both[column]: (argument, values) for both, argument, values in WITH_ARGUMENT.values()}

    def decide(number, arguments=(0, 0), arch=audit):
        words = {0: number, 4: arch, 16: arguments[0], 24: arguments[1]}
        at = value = 0
        while True:
            code, yes, no, constant = program[at]
            constant = 4242 if constant == "pid" else constant
            if code == 0x06:
                return constant
            if code == 0x20:
                value = words[constant]
                at += 1
                continue
            holds = {0x15: value == constant, 0x35: value >= constant, 0x45: bool(value & constant)}[code]
            at += 1 + (yes if holds else no)

    allow, kill, errno = 0x7FFF0000, 0x80000000, 0x00050000
    for number in range(600):
        if number in plain:
            assert decide(number) == allow
        elif number in special:
            argument, values = special[number]
            for value in (*values, 77):
                words = tuple((4242 if value == "pid" else value) if one == argument else 5 for one in (0, 1))
                assert decide(number, words) == (allow if value in values else errno | 1)
        elif number in {435, 437}:
            assert decide(number) == errno | 38
        elif number == (56, 220)[column]:
            assert decide(number, (0x10F00, 0)) == allow
            assert decide(number, (17, 0)) == errno | 1
        else:
            assert decide(number) == errno | 1
    assert decide(0x40000000) == kill
    assert decide(0, arch=0x40000003) == kill
