"""W3C trace context: what is taken for one, and what goes on."""

from __future__ import annotations

import pytest
from tailrace.proxy.trace.context import DRAWN, SAMPLED, TraceContext, drawn, drawn_spans, parse, without

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("value", "flags"),
    [
        (f"00-{TRACE}-{SPAN}-01", 1),
        (f"00-{TRACE}-{SPAN}-00", 0),
        (f"00-{TRACE}-{SPAN}-03", 3),
        (f"00-{TRACE}-{SPAN}-ff", 3),  # of what nobody knows nothing goes on
        (f"cc-{TRACE}-{SPAN}-01", 1),  # a later version, read as far as it is known
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-holds", 1),
    ],
)
def test_a_context_is_read(value: str, flags: int) -> None:
    assert parse(value.encode()) == (TRACE, SPAN, flags)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-+1",
        f"00-{TRACE}-{SPAN}-0_",
        f"00-{TRACE[:16]}_{TRACE[17:]}-{SPAN}-01",
        f"00_{TRACE}-{SPAN}-01",
        f"00-{TRACE}_{SPAN}-01",
        f"00-{TRACE}-{SPAN}_01",
        f"00-{TRACE}-{SPAN}-01".replace("4", "\u0664"),
        f"00-{TRACE}-{SPAN}-01 ",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01x",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_what_is_none_is_none(value: str) -> None:
    assert parse(value.encode()) is None


def test_attempts_have_spans_of_their_own_that_belong_to_one_call() -> None:
    trace = TraceContext("req_1", TRACE, drawn_spans(), SPAN, SAMPLED)
    ids = [trace.span_id(number) for number in range(4)]
    assert len(set(ids)) == 4
    assert all(len(each) == 16 and int(each, 16) for each in ids)
    assert trace.line(2) == f"traceparent: 00-{TRACE}-{ids[2]}-01\r\n".encode()
    assert parse(trace.line(3).split(b": ")[1].strip()) == (TRACE, ids[3], 1)


def test_calls_have_other_traces_and_spans() -> None:
    many = [drawn() for _ in range(1000)]
    assert {len(each) for each in many} == {DRAWN}
    assert len({each[:32] for each in many}) == len({each[32:] for each in many}) == 1000
    assert all(parse(f"00-{each[:32]}-{each[32:]}00-01".encode()) for each in many)
    assert len({drawn_spans() for _ in range(1000)}) == 1000


LINES = b"accept: */*\r\nx-traceparent: 1\r\ntraceparent-like: y\r\n"


@pytest.mark.parametrize(
    ("lines", "rest", "count"),
    [
        (LINES, LINES, 0),
        (b"", b"", 0),
        (b"TraceParent: x\r\n" + LINES, LINES, 1),
        (LINES + b"traceparent: x\r\n", LINES, 1),
        (b"traceparent:x\r\n" + LINES + b"TRACEPARENT: y\r\ntraceparent: z\r\n", LINES, 3),
        (b"traceparent: x\r\ntraceparent: y\r\n", b"", 2),
        (b"a: traceparent: x\r\n", b"a: traceparent: x\r\n", 0),
    ],
)
def test_a_clients_own_lines_are_left_out(lines: bytes, rest: bytes, count: int) -> None:
    assert without(b"traceparent:", lines) == (rest, count)
