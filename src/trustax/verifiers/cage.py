"""Runs a stranger's program where it can do no harm. A script of its own that imports nothing of the package.

Namespaces of its own (user, network, processes, mounts, IPC), every file system read-only but 16 MB of memory, /proc
hidden, limits on time, memory, files and descriptors, and a system-call filter: no new processes, no sockets, no
signals, no tracing. What can't be had is refused: the exit is then a message, never a run without it.
"""

import contextlib
import ctypes
import io
import json
import os
import platform
import resource
import select
import signal
import struct
import sys
import time
import types

_NEW = {"mount": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
_MS_REC_PRIVATE, _MS_NOSUID_NODEV = 0x4000 | 0x40000, 2 | 4
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _RDONLY = 442, -100, 0x8000, 1
_PDEATHSIG, _NO_NEW_PRIVS, _SECCOMP, _FILTER = 1, 38, 22, 2
_CLONE_THREAD = 0x10000
_MAX_OUTPUT = 1 << 20
# Forbidden system calls by number: fork vfork execve execveat ptrace socket socketpair kill tkill tgkill unshare setns
# mount bpf pidfd_send_signal process_vm_readv/writev keyctl add_key. clone only for threads; clone3 "does not exist".
_CALLS = {
    "x86_64": (
        0xC000003E,
        56,
        (57, 58, 59, 322, 101, 41, 53, 62, 200, 234, 272, 308, 165, 321, 424, 310, 311, 250, 248),
    ),
    "aarch64": (0xC00000B7, 220, (221, 281, 117, 198, 199, 129, 130, 131, 97, 268, 40, 280, 424, 270, 271, 219, 217)),
}
_CLONE3, _IO_URING = 435, (425, 426, 427)
_EPERM, _ENOSYS = 1, 38

libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def enter_namespaces() -> None:
    """Leave the machine: no network, no other process, nothing to write on."""
    uid, gid = os.getuid(), os.getgid()
    _check(libc.unshare(sum(_NEW.values())), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    _check(libc.mount(b"none", b"/", None, _MS_REC_PRIVATE, None), "mount private")
    attributes = struct.pack("QQQQ", _RDONLY, 0, 0, 0)
    _check(libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, attributes, len(attributes)), "mount read-only")
    for folder, options in ((b"/tmp", b"size=16m,nr_inodes=1024"), (b"/proc", b"size=0,nr_inodes=2")):
        _check(libc.mount(b"tmpfs", folder, b"tmpfs", _MS_NOSUID_NODEV, options), f"mount {folder.decode()}")
    os.chdir("/tmp")


def _filter(architecture: int, clone: int, forbidden: tuple[int, ...]) -> bytes:
    """Classic BPF: kill on another architecture, errors for what is forbidden, everything else allowed."""
    load, jump_if, jump_set, give = 0x20, 0x15, 0x45, 0x06
    allow, error, kill = 0x7FFF0000, 0x00050000, 0x80000000
    code = [(load, 0, 0, 4), (jump_if, 1, 0, architecture), (give, 0, 0, kill), (load, 0, 0, 0)]
    # x32 calls carry a bit of their own on x86-64.
    code += [(0x35, 0, 1, 0x40000000), (give, 0, 0, kill)]
    for number in (*forbidden, *_IO_URING):
        code += [(jump_if, 0, 1, number), (give, 0, 0, error | _EPERM)]
    code += [(jump_if, 0, 1, _CLONE3), (give, 0, 0, error | _ENOSYS)]
    code += [(jump_if, 0, 4, clone), (load, 0, 0, 16), (jump_set, 1, 0, _CLONE_THREAD), (give, 0, 0, error | _EPERM)]
    code += [(give, 0, 0, allow), (give, 0, 0, allow)]
    return b"".join(struct.pack("HBBI", *line) for line in code)


def lock(limit_s: float, memory_bytes: int) -> None:
    """Limits and the filter, from which there is no way back."""
    seconds = int(limit_s) + 1
    limits = {
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_FSIZE: 16 << 20,
        resource.RLIMIT_NOFILE: 32,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 8,
        resource.RLIMIT_STACK: min(8 << 20, memory_bytes),
    }
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))
    _check(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    program = ctypes.create_string_buffer(_filter(*_CALLS[platform.machine()]))
    header = struct.pack("HxxxxxxP", (len(program) - 1) // 8, ctypes.addressof(program))
    _check(libc.prctl(_SECCOMP, _FILTER, header, 0, 0), "seccomp")


def run_tests(program: str, tests: list[dict]) -> list[dict]:
    """Each test's output or value; one that raises has an error instead."""
    compiled = compile(program, "program.py", "exec")
    functions: dict = {}
    results = []
    for test in tests:
        try:
            result = (
                _called(compiled, test, functions) if "call" in test else {"output": _printed(compiled, test["input"])}
            )
            json.dumps(result)
        except BaseException as error:  # noqa: BLE001  the program may raise anything, SystemExit included
            result = {"error": type(error).__name__}
        results.append(result)
    return results


def _called(compiled: types.CodeType, test: dict, functions: dict) -> dict:
    if not functions:
        functions["__name__"] = "program"
        exec(compiled, functions)
    return {"value": functions[test["call"]](*test["args"])}


def _printed(compiled: types.CodeType, given: str) -> str:
    printed = io.StringIO()
    sys.stdin = io.StringIO(given)
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        exec(compiled, {"__name__": "__main__"})
    return printed.getvalue()[:_MAX_OUTPUT]


def _child(job: dict, pipe: int) -> None:
    libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    nowhere = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    lock(job["limit_s"], job["memory_bytes"])
    try:
        answer = json.dumps({"results": run_tests(job["program"], job["tests"])})
    except BaseException as error:  # noqa: BLE001
        answer = json.dumps({"failure": "program", "error": type(error).__name__})
    view = memoryview(answer.encode())
    while view:
        view = view[os.write(pipe, view) :]
    os._exit(0)


def main() -> dict:
    """Read a job, run it inside, and return what the child said before the clock ran out."""
    job = json.load(sys.stdin)
    if platform.machine() not in _CALLS:
        return {"failure": "cage", "error": f"no system-call filter for {platform.machine()}"}
    try:
        enter_namespaces()
    except OSError as error:
        return {"failure": "cage", "error": str(error)}
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            _child(job, writing)
        finally:
            os._exit(70)
    os.close(writing)
    said, deadline = b"", time.monotonic() + job["limit_s"]
    while len(said) <= 64 << 20:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            return {"failure": "timeout"}
        chunk = os.read(reading, 1 << 16)
        if not chunk:
            break
        said += chunk
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 70:
        return {"failure": "cage", "error": "limits or filter were refused"}
    try:
        return json.loads(said)
    except ValueError:
        return {"failure": "program", "error": "it ended before its tests did"}


if __name__ == "__main__":
    print(json.dumps(main()))
