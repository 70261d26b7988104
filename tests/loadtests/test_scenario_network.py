"""Hosts behind the bridge: one that is cut off loses every packet, and no request to it escapes the wiretap."""

from __future__ import annotations

import subprocess
import sys

from conftest import LOADTESTS

SCRIPT = """
import asyncio, sys
sys.path[:0] = [{loadtests!r}, {bench!r}]
from pathlib import Path
from scenario import http, network
from scenario.programs import Program
from scenario.wiretap import Wiretap

async def main(folder):
    host = network.Host(1)
    host.plug_in()
    command = (*host.prefix, sys.executable, "-m", "http.server", "8001", "--bind", "0.0.0.0")
    server = Program("server", command, Path(folder) / "log")
    server.start()
    at = host.address + ":8001"
    await server.ready(lambda: http.answers(at, "/"), 20)
    taps = [Wiretap(network.BRIDGE, port) for port in (8001, 8002)]
    assert (await http.ask(at, "/x", {{}}))[0] == 501
    assert await host.inside(lambda: Path("/proc/self/net/dev").exists())
    _, writer = await asyncio.open_connection(host.address, 8001)
    host.cut_off()
    writer.write(b"POST /y HTTP/1.1\\r\\n\\r\\n")
    await asyncio.sleep(0.7)  # TCP says it again after 0.2 s, and after 0.4 s more
    for _ in range(2):
        try:
            await http.ask(at, "/", limit=0.3)
        except OSError as error:
            assert "no answer within" in str(error), error
        else:
            raise AssertionError("it answers")
    host.rejoin()
    await server.ready(lambda: http.answers(at, "/"), 20)
    assert [len(tap.requests) for tap in taps] == [2, 0], "two requests were sent, to one of the ports"
    writer.close()
    await server.stop()
    host.unplug()
    network.remove_bridge()
    network.build_bridge()
    host.plug_in()  # as the next stage does, under the same names
    host.unplug()

assert network.isolate() is None
network.build_bridge()
asyncio.run(main(sys.argv[1]))
"""


def test_a_host_is_cut_off_and_comes_back(tmp_path: object) -> None:
    script = SCRIPT.format(loadtests=str(LOADTESTS), bench=str(LOADTESTS / "bench"))
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
