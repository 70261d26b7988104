"""A server that stands still as after SIGSTOP, and connections that are accepted and never heard."""

import asyncio
import json

import pytest
from fakes import run, until
from sim_client import CHAT, HELLO, STREAM, begin, connect, contents, fetch, get, head_of, read_answer, running, turns
from tailrace.worker.sim import Fault, ManualClock

CONTROL = "/sim/control"


def silent(reader: asyncio.StreamReader) -> bool:
    return reader._buffer == b"" and not reader.at_eof()  # type: ignore[attr-defined]


async def heard(reader: asyncio.StreamReader, end: bytes = b"0\r\n\r\n") -> bytes:
    return await asyncio.wait_for(reader.readuntil(end), 5)


def test_frozen_server_says_nothing_and_goes_on_where_it_stood() -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock, itl_ms=10) as sim:
            reader, writer = await begin(sim)
            await until(lambda: sim.scheduler.running == 1)
            clock.advance(0.025)
            raw = await heard(reader, b'"content":"')
            await turns()
            raw += await reader.read(65536)
            assert contents(read_answer(raw)) == 3
            assert (await fetch(sim, CONTROL, {"do": "freeze"})).json["frozen"] is True

            # Nobody is refused, and nobody is answered, not even /health.
            late_reader, late_writer = await begin(sim)
            health_reader, health_writer = await connect(sim)
            health_writer.write(head_of("GET", "/health", b"", {}))
            for _ in range(10):
                clock.advance(10)
                await turns(2)
            assert silent(reader)
            assert silent(late_reader)
            assert silent(health_reader)
            shown = (await get(sim, CONTROL)).json
            assert (shown["frozen"], shown["running"], shown["waiting"]) == (True, 1, 0)

            assert (await fetch(sim, CONTROL, {"do": "thaw"})).json["frozen"] is False
            assert (await heard(health_reader, b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
            await until(lambda: sim.scheduler.running == 2)
            # The next token is due when it would have been, had time stood still.
            clock.advance(0.004)
            assert sim.metrics.generation_tokens == 3 + 1
            clock.advance(0.2)
            raw += await heard(reader)
            assert (contents(read_answer(raw)), read_answer(raw).ended) == (9, True)
            assert read_answer(await heard(late_reader)).ended
            for one in (writer, late_writer, health_writer):
                one.close()

    run(ask())


def test_freeze_strikes_in_the_middle_and_thaws_by_itself() -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock, itl_ms=10) as sim:
            sim.fail(Fault(fail="freeze", after_tokens=2, count=1, for_s=3))
            reader, writer = await begin(sim)
            await until(lambda: sim.scheduler.running == 1)
            clock.advance(2.9)
            assert sim.engine.stillness.frozen
            assert sim.metrics.generation_tokens == 2
            clock.advance(0.3)
            assert not sim.engine.stillness.frozen
            assert contents(read_answer(await heard(reader))) == 9
            writer.close()

    run(ask())


def test_control_is_heard_by_a_frozen_server_however_it_comes() -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.freeze()

            reader, writer = await connect(sim)
            body = b'{"fail": "none"}'
            writer.write(head_of("POST", CONTROL, body, {}))
            await turns()
            assert sim.engine.stillness.frozen
            writer.write(body)
            assert b'"frozen":false' in await heard(reader, b'"faults":[]}')
            writer.close()
            assert (await fetch(sim, CHAT, STREAM)).ended

    run(ask())


def test_control_on_a_kept_connection_and_a_request_behind_it() -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.freeze()
            reader, writer = await connect(sim)
            writer.write(head_of("GET", CONTROL, b"", {}))
            await heard(reader, b'"faults":[]}')
            writer.write(head_of("GET", "/health", b"", {}))
            await turns()
            writer.write(head_of("GET", CONTROL, b"", {}))
            await turns()
            # What stands before it has to be answered first.
            assert silent(reader)
            sim.thaw()
            assert (await heard(reader, b'"faults":[]}')).startswith(b"HTTP/1.1 200 OK\r\n")
            writer.close()

    run(ask())


def test_signal_to_a_frozen_server_waits() -> None:
    async def ask() -> None:
        async with running() as sim:
            sim.freeze()
            sim.terminate(20)
            assert sim.engine.state == "serving"
            sim.heal()
            assert sim.engine.state == "draining"

    run(ask())


def test_idle_connection_of_a_frozen_server_ends_after_the_thaw() -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock, keep_alive_s=5) as sim:
            reader, writer = await connect(sim)
            writer.write(head_of("GET", "/health", b"", {}))
            await heard(reader, b"\r\n\r\n")
            sim.freeze()
            clock.advance(60)
            await turns()
            assert silent(reader)
            sim.thaw()
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()

    run(ask())


def test_large_body_does_not_pile_up_in_a_frozen_server() -> None:
    async def ask() -> None:
        async with running(max_model_len=10_000_000) as sim:
            sim.freeze()
            _, writer = await connect(sim)
            body = json.dumps(STREAM | {"messages": [{"role": "user", "content": "a " * 8_000_000}]}).encode()
            writer.write(head_of("POST", CHAT, body, {"connection": "close"}) + body)
            await turns(200)
            [connection] = sim._connections
            # What one read brings over the bound, and no more.
            assert 65_536 <= len(connection._kept) < 1_000_000
            assert writer.transport.get_write_buffer_size() > 1_000_000
            writer.transport.abort()
            # It takes no notice, as a stopped process does not.
            await turns()
            assert sim.connections == 1
            sim.thaw()
            await until(lambda: sim.connections == 0)

    run(ask())


def test_new_connections_are_accepted_and_never_heard() -> None:
    async def ask() -> None:
        async with running() as sim:
            old_reader, old_writer = await connect(sim)
            old_writer.write(head_of("GET", "/health", b"", {}))
            await heard(old_reader, b"\r\n\r\n")
            await fetch(sim, CONTROL, {"fail": "accept_hang", "count": 2})
            assert (await get(sim, CONTROL)).json["faults"] == [{"fail": "accept_hang", "count": 2}]
            deaf = [await begin(sim) for _ in range(2)]
            await turns()
            assert (await fetch(sim, CHAT, STREAM)).ended
            old_writer.write(head_of("GET", "/health", b"", {}))
            await heard(old_reader, b"\r\n\r\n")
            assert all(silent(reader) for reader, _ in deaf)
            assert (sim.engine.load, sim.scheduler.running) == (0, 0)
            # For good: not even once nothing is wrong any more.
            sim.heal()
            await turns()
            assert all(silent(reader) for reader, _ in deaf)
            for _, writer in (*deaf, (None, old_writer)):
                writer.close()

    run(ask())


@pytest.mark.parametrize("seconds", [None, 2.0])
def test_silence_may_end(seconds: float | None) -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock, itl_ms=10) as sim:
            sim.fail(Fault(fail="hang", count=1, for_s=seconds))
            hung, hung_writer = await begin(sim)
            await until(lambda: sim.engine.load == 1)
            sim.fail(Fault(fail="stall", after_tokens=2, count=1, for_s=seconds))
            stalled, stalled_writer = await begin(sim, CHAT, HELLO | {"stream": True, "max_tokens": 9})
            await until(lambda: sim.scheduler.running == 1)
            clock.advance(1.9)
            await turns()
            assert sim.metrics.generation_tokens == 2
            assert silent(hung)
            clock.advance(0.5)
            await turns()
            assert sim.metrics.generation_tokens == (18 if seconds else 2)
            if seconds:
                assert read_answer(await heard(hung)).ended
                assert contents(read_answer(await heard(stalled))) == 9
            for writer in (hung_writer, stalled_writer):
                writer.close()

    run(ask())


def test_nobody_is_answered_late_who_has_left() -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with running(clock, itl_ms=10) as sim:
            sim.fail(Fault(fail="hang", count=1, for_s=1))
            _, writer = await begin(sim)
            await until(lambda: sim.engine.load == 1)
            writer.close()
            await until(lambda: sim.engine.load == 0)
            clock.advance(1.01)
            assert (sim.scheduler.running, sim.engine.load) == (0, 0)

    run(ask())
