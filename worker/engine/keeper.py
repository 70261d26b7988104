"""The process between sidecar and engine, which outlives a killed sidecar by as long as it takes to end the engine.

It is run as a script, by path, with the standard library only. It is the parent of all that the engine forks, whatever
the engine does: as a subreaper it inherits every orphan, so that "no child left" proves that nothing is left. That
matters because a vLLM whose API server is killed leaves EngineCore and workers alive, and with them the GPU's memory.

    keeper.py CONTROL_FD STATUS_FD GRACE COMMAND...

On STATUS_FD it writes `pid N`, then `exit CODE` the moment the engine ended (negative: by that signal), `error TEXT` if
the command could not be run, `stuck PIDS` if somebody survives SIGKILL.

On CONTROL_FD it reads `g` (run the command: sent once the sidecar holds a pidfd, so that the pid cannot be reused
before), `t` (end it), `k` (kill it now), and the end of the file: the sidecar is gone, so end it. Ending is SIGTERM to
the engine, and SIGKILL to everything left when the engine has ended or the grace is over.

SIGTERM and SIGINT do not end a keeper: a service manager that signals all of a group must not cut the sidecar's drain
short.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PARENT_GONE = signal.SIGUSR1
GIVE_UP = 60.0
"""Seconds after which a process that survives SIGKILL (stuck in a driver) is reported and left."""

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Set a process attribute; failing is no error, as then only a killed sidecar is handled worse."""
    _libc.prctl(option, value, 0, 0, 0)


class Keeper:
    """One engine process and its descendants."""

    def __init__(self, control: int, status: int, grace: float, command: list[str]) -> None:
        self.control = control
        self.status = status
        self.grace = grace
        self.command = command
        self.leader = 0
        self.ended = False
        self.go = -1

    def say(self, text: str) -> None:
        """Tell the sidecar, if it still listens."""
        with contextlib.suppress(OSError):
            os.write(self.status, text.encode(errors="replace") + b"\n")

    def run(self, parent: int) -> None:
        """Start the engine, keep it, and leave nothing behind."""
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, PARENT_GONE):
            signal.signal(number, lambda *_: None)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        prctl(PR_SET_PDEATHSIG, PARENT_GONE)
        self.fork()
        # Not before the fork: the engine would start out deaf to a SIGTERM that comes at once.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self.say(f"pid {self.leader}")
        if self.wait(wake_read, parent):
            self.terminate(wake_read)
        self.sweep()

    def fork(self) -> None:
        """Fork the engine; it waits for the sidecar's go before it becomes the command."""
        go_read, self.go = os.pipe2(os.O_CLOEXEC)
        keeper = os.getpid()
        self.leader = os.fork()
        if self.leader:
            os.close(go_read)
            with contextlib.suppress(OSError):
                os.setpgid(self.leader, self.leader)
            return
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, PARENT_GONE):
                signal.signal(number, signal.SIG_DFL)
            # SIGTERM, not SIGKILL: with the keeper gone too, only the engine itself can still end its children.
            prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            os.close(self.go)
            if os.getppid() == keeper and os.read(go_read, 1):
                os.execvp(self.command[0], self.command)  # noqa: S606
        except OSError as error:
            self.say(f"error {self.command[0]}: {error.strerror}")
        finally:
            os._exit(127)

    def wait(self, wake: int, parent: int) -> bool:
        """Wait for the engine's end (False) or for a reason to end it softly (True)."""
        while not self.reap():
            ready, _, _ = select.select([self.control, wake], [], [])
            if wake in ready:
                os.read(wake, 4096)
                if os.getppid() != parent:
                    return True
            if self.control in ready:
                order = os.read(self.control, 16)
                if not order or b"t" in order:
                    return b"k" not in order
                if b"g" in order:
                    os.write(self.go, b"g")
                if b"k" in order:
                    return False
        return False

    def terminate(self, wake: int) -> None:
        """Ask the engine to end, and give it the grace. Only its first process is asked: that one ends the others."""
        deadline = time.monotonic() + self.grace
        # One that still waits for its go ends by this.
        os.close(self.go)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.leader, signal.SIGTERM)
        watched = [wake, self.control]
        while not self.reap() and (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select(watched, [], [], left)
            if wake in ready:
                os.read(wake, 4096)
            if self.control in ready:
                order = os.read(self.control, 16)
                if b"k" in order:
                    return
                if not order:
                    watched = [wake]

    def reap(self) -> bool:
        """Collect whoever ended; True once that includes the engine."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self.leader:
                    self.ended = True
                    self.say(f"exit {os.waitstatus_to_exitcode(status)}")
        return self.ended

    def sweep(self) -> None:
        """Kill every descendant until the kernel says that no child is left."""
        deadline = time.monotonic() + GIVE_UP
        pause = 0.001
        while time.monotonic() < deadline:
            if not self.ended:
                with contextlib.suppress(OSError):
                    os.killpg(self.leader, signal.SIGKILL)
            for pid in children(os.getpid()):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self.reap()
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            time.sleep(pause)
            pause = min(pause * 2, 0.1)
        left = " ".join(map(str, children(os.getpid())))
        self.say(f"stuck {left}")


def children(parent: int) -> list[int]:
    """The processes whose parent this is; orphans of its descendants among them, as it is their subreaper."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name in brackets may hold anything, so fields are counted from its last bracket.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[1]) == parent:
                    found.append(int(entry.name))
    return found


if __name__ == "__main__":
    born_to = os.getppid()
    fds = [int(sys.argv[1]), int(sys.argv[2])]
    for fd in fds:
        os.set_inheritable(fd, False)
    Keeper(fds[0], fds[1], float(sys.argv[3]), sys.argv[4:]).run(born_to)
