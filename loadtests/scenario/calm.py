"""The undisturbed answers: each prompt asked once of an engine that nothing happens to, with no gateway between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from openloop.connections import Connections, Endpoint
from openloop.dialects import DIALECTS
from openloop.record import Record

from scenario.prompts import Prompts
from scenario.shot import Heard, Shot

LIMIT = 600 * 1_000_000_000

Answers = dict[tuple[str, int], Heard]


class CalmError(Exception):
    """Not even an undisturbed engine gives whole answers."""


async def answers(at: str, prompts: Mapping[str, Prompts], *, at_once: int = 64) -> Answers:
    """What the engine at this address says to each prompt of each load."""
    host, _, port = at.rpartition(":")
    loop = asyncio.get_running_loop()
    left = sum(each.count for each in prompts.values())
    done: asyncio.Future[None] = loop.create_future()

    def finished(record: Record) -> None:
        nonlocal left
        record.listener = None
        left -= 1
        if not left:
            done.set_result(None)

    connections = Connections(
        Endpoint(host, int(port), host, None),
        DIALECTS["chat"],
        stream=True,
        keepalive=True,
        limit=at_once,
        timeout=LIMIT,
        on_finished=finished,
    )
    shots = []
    for name, each in prompts.items():
        for number in range(each.count):
            now = time.monotonic_ns()
            shot = Shot(number, 0, True, now, 0, each.lengths[number], load=name, prompt=number)
            shot.listener = shot.hear
            shots.append(shot)
            connections.send(shot, each.request(number))
    await done
    await connections.close()
    if broken := next((shot for shot in shots if not shot.ok), None):
        raise CalmError(f"{broken.load} {broken.prompt}: {broken.outcome} {broken.status} {broken.detail}")
    return {(shot.load, shot.prompt): shot.heard for shot in shots}
