"""What `breaker` runs once on a host: the board is there while it serves, and its states are metrics."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fakes import run
from tailrace.plugins.breaker.board import Board, Verdict, folder_in
from tailrace.plugins.breaker.circuit import SECOND
from tailrace.plugins.breaker.part import part
from tailrace.proxy.control import Refused
from tailrace.proxy.ground import Places


def test_states_and_the_end(tmp_path: Path):
    places = Places(tmp_path, tmp_path)

    async def body() -> None:
        async with part(places) as here:
            board = Board.open(folder_in(tmp_path))
            now = time.monotonic_ns()
            with board.locked():
                for name, verdict in (
                    ("closed", Verdict(False, now, now, 1, 1)),
                    ("half", Verdict(True, now, now - SECOND, 1, 1)),
                    ("open", Verdict(True, now, now + 60 * SECOND, 1, 1)),
                ):
                    slot = board.place(name)
                    assert slot is not None
                    board.write(slot, verdict)
            states = {labels["worker"]: value for _, labels, value in here.metrics()}
            assert states == {"closed": 0, "half": 1, "open": 2}
            assert list(here.unready()) == []
            with pytest.raises(Refused):
                await here.answer(0, "what", {})
            board.close()
        assert list(here.metrics()) == [], "asked once more when it has ended"
        assert not folder_in(tmp_path).exists()

    run(body())
