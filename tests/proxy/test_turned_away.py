"""Connections that are turned away: counted by reason, and told of now and then."""

from __future__ import annotations

import errno
import logging
import os
from typing import Any

import pytest
from fakes import RawClient, gateway, run, until, yaml_for
from scrape import Scrape
from tailrace.proxy import turned_away


@pytest.mark.parametrize(("reason", "most"), [("connections", 2), ("connections_per_address", 1)])
@pytest.mark.parametrize("own_loop", [False, True])
def test_a_limit_is_counted_and_told(reason: str, most: int, own_loop: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        yaml = yaml_for("http://127.0.0.1:1", more=f"limits: {{{reason}: {most}}}\n")
        if own_loop:  # the accept loop that TLS, PROXY headers and several processes have
            yaml = yaml.replace("[127.0.0.1:0]", "[{address: 127.0.0.1:0, proxy_protocol: true}]")
        async with gateway(yaml) as process:
            url = process.doors[0].shown
            head = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" if own_loop else b""
            kept = [RawClient(url) for _ in range(most)]
            for client in kept:
                await client.__aenter__()
                await client.send(head)
            await until(lambda: len(process.service.connections) == most)
            for _ in range(3):
                async with RawClient(url) as client:
                    await client.send(head)
                    assert await client.read_until_close() == b""
            process.service.metrics.write()
            assert Scrape(process).value("connections_refused_total", reason=reason) == 3
            for client in kept:
                await client.close()

    with caplog.at_level(logging.WARNING):
        run(body())
    (line,) = [record.getMessage() for record in caplog.records if "turned away" in record.getMessage()]
    assert f"`limits.{reason}`" in line


def test_it_is_told_when_files_run_out(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def none_left(_fd: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    class Counts:
        reasons: list[str] = []

        def turned_away(self, reason: str, times: float = 1.0) -> None:
            self.reasons += [reason] * int(times)

    counts: Any = Counts()
    away = turned_away.TurnedAway(counts)
    with caplog.at_level(logging.WARNING):
        away.visit(0.0)
        assert counts.reasons == []
        monkeypatch.setattr(os, "dup", none_left)
        away.visit(0.2)
        away.visit(0.4)
    assert counts.reasons == ["files", "files"]
    assert ["may open no more files" in record.getMessage() for record in caplog.records] == [True]
