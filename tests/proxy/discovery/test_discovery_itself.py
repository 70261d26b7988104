"""A gateway that is found among its own workers: the log says so, once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from fakes import decoded, run, until
from tailrace.proxy.discovery.endpoint import Endpoint, Found
from tailrace.proxy.discovery.itself import Itself
from tailrace.proxy.gateway import running

OWN, OTHER = "http://127.0.0.1:8080", "http://127.0.0.1:8081"


def test_it_is_said_once_of_each(caplog: pytest.LogCaptureFixture) -> None:
    itself = Itself()
    itself.look(Found({"file x": (Endpoint(OWN),)}))
    assert not caplog.messages
    itself.listens(["127.0.0.1:8080"])
    itself.listens(["127.0.0.1:8081"])
    for found in ((OTHER,), (OTHER, OWN), (), (OWN,)):
        itself.look(Found({"file x": tuple(map(Endpoint, found))}))
    assert caplog.messages == [f"worker {OWN}, found by file x, is this gateway itself: its calls come back to it"]


def test_a_gateway_that_is_listed_in_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    file = tmp_path / "w.yaml"
    file.write_text("[unix:/tmp/other]")
    socket = tmp_path / "s"
    settings = decoded(
        f"listen: 'unix:{socket}'\npools: {{p: {{workers: [{{file: {file}}}]}}}}\n"
        "models: {m: {pool: p}}\nplugins: []\n"
    )

    async def body() -> None:
        async with running(settings):
            assert not caplog.messages
            file.write_text(f"[unix:{socket}]")
            await until(lambda: caplog.messages, "the line")
            assert "is this gateway itself" in caplog.messages[0]

    run(body())
