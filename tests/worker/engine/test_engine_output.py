"""An engine's output on its way to ours."""

import asyncio
import threading

from tailrace.worker.engine.output import LONGEST_LINE, OutputRelay


def relayed(*chunks: bytes, **options) -> bytes:
    seen: list[bytes] = []

    async def run() -> None:
        relay = OutputRelay("e| ", seen.append, **options)
        for chunk in chunks:
            relay.feed(chunk)
        await relay.close(10.0)

    asyncio.run(run())
    return b"".join(seen)


def test_lines_come_whole_however_the_bytes_do():
    text = b"one\ntwo\r\n\nlast"
    assert relayed(text) == b"e| one\ne| two\ne| \ne| last\n"
    assert relayed(*(bytes([byte]) for byte in text)) == relayed(text)


def test_an_endless_line_is_cut_and_the_next_one_is_whole():
    chunks = [b"x" * 60_000] * 5
    lines = relayed(*chunks, b"end\nnext\n").splitlines()
    assert lines == [b"e| " + b"x" * LONGEST_LINE + b" ...", b"e| next"]


def test_a_blocked_reader_blocks_nobody_and_lines_beyond_the_bound_are_counted():
    gate, seen = threading.Event(), []
    entered = threading.Event()

    def sink(text: bytes) -> None:
        entered.set()
        gate.wait()
        seen.append(text)

    async def run() -> None:
        relay = OutputRelay("", sink, bound=3)
        relay.feed(b"first\n")
        entered.wait()
        for number in range(10):
            relay.feed(b"%d\n" % number)
        assert list(relay.tail)[-1] == "9"
        gate.set()
        await relay.close(10.0)

    asyncio.run(run())
    assert b"".join(seen) == b"first\n0\n1\n2\n(7 lines dropped)\n"


def test_closing_does_not_wait_for_a_reader_that_never_reads():
    gate = threading.Event()

    async def run() -> None:
        relay = OutputRelay("", lambda text: gate.wait(), bound=3)
        relay.feed(b"line\n")
        await relay.close(0.01)

    asyncio.run(run())
    gate.set()


def test_a_reader_that_is_gone_does_not_stop_the_relay():
    tries = []

    def broken(text: bytes) -> None:
        tries.append(text)
        raise BrokenPipeError

    async def run() -> None:
        relay = OutputRelay("", broken)
        relay.feed(b"one\n")
        while not tries:
            await asyncio.sleep(0.001)
        relay.feed(b"two\n")
        await relay.close(10.0)

    asyncio.run(run())
    assert tries == [b"one\n", b"two\n"]


def test_the_tail_keeps_the_last_lines_for_a_report():
    relay = OutputRelay("", lambda text: None)
    relay.feed(b"".join(b"%d\n" % n for n in range(100)) + b"  \n")
    assert relay.last == "99"
    assert len(relay.tail) == 20
