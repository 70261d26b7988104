"""When the `retry` plugin has another worker asked, when it does not, and what that costs."""

from __future__ import annotations

import asyncio

import pytest
from fakes import run
from racing import Course, racing
from retrying import http, retrying
from tailrace.plugins.retry import Config, Retry
from tailrace.proxy.fault import DRAINED, Fault, Whose, bad_answer, fallen_silent, timed_out

pytestmark = pytest.mark.interpreted


def refuse(worker, told, name=b"retry-after"):
    """A worker's 503 that says when to come again, byte by byte what it sends."""
    worker.status(503, b"{}", b"%b: %b" % (name, told))


@racing
async def test_another_worker_is_asked(course):
    c = course(retrying(), workers="abc").start()
    c.a.accept()
    c.a.lose()
    c.b.accept()
    c.b.fail(http(500))
    c.c.accept()
    c.c.answer()
    assert [attempt.why for attempt in c.call.tries] == ["first", "retry", "retry"]
    assert c.finish() == [(1, "failed"), (2, "failed"), (3, "won")]


@pytest.mark.parametrize(
    "fault",
    [
        http(400, Whose.CLIENT),
        http(404, Whose.CLIENT),
        http(501),
        Fault(kind="worker_refused", whose=Whose.GATEWAY, status=502, code="x", message="x"),
        timed_out("first_content", 30.0),
        timed_out("unary", 600.0),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}",
)
def test_what_is_not_repeated(fault, monkeypatch):
    """What its caller caused, what another worker would answer the same, and what is slow."""

    async def body():
        c = Course(monkeypatch, retrying()).start()
        c.a.accept()
        c.a.fail(fault)
        assert c.fault is fault
        assert c.finish() == [(1, "failed")]

    run(body())


@pytest.mark.parametrize(
    "fault",
    [http(429), http(503), http(408), bad_answer("x"), fallen_silent("x"), DRAINED],
    ids=lambda fault: fault.kind,
)
def test_what_is_repeated(fault, monkeypatch):
    async def body():
        c = Course(monkeypatch, retrying()).start()
        c.a.accept()
        c.a.fail(fault)
        assert c.b.inflight == 1
        c.finish()

    run(body())


@racing
async def test_TMO_08_slow_failures_only_where_configured_and_once(course):
    c = course(retrying(slow=True), workers="abc").start()
    c.a.accept()
    connection = c.a.connections.connections[0]
    c.a.sink.on_quiet(11.0, 11.0)
    assert connection.closed
    assert c.b.inflight == 1
    c.b.accept()
    c.b.sink.on_quiet(11.0, 11.0)
    assert c.fault.kind == "first_content_timeout"
    assert c.finish() == [(1, "failed"), (2, "failed")]


@pytest.mark.parametrize("body", [{"store": True}, None], ids=["store", "upload"])
def test_HDG_03_what_has_effects_is_repeated_only_unseen(body, monkeypatch):
    async def main():
        for sent in (True, False):
            c = Course(monkeypatch, retrying())
            if body is None:
                c.call.body, c.call.route.name = None, "transcriptions"
            else:
                c.call.body.update(body)
            c.start()
            c.a.accept()
            c.a.lose(sent=sent)
            assert len(c.call.tries) == (1 if sent else 2)
            if not sent:
                c.b.accept()
                c.b.lose(sent=True)
                assert len(c.call.tries) == 2
            c.finish()

    run(main())


@racing
async def test_HDG_03_unsent_twice_is_tried_twice_again(course):
    c = course(retrying(), workers="abc")
    c.call.body["store"] = True
    c.start()
    for worker in (c.a, c.b):
        worker.refuse()
    c.c.accept()
    c.c.answer()
    assert c.finish() == [(1, "failed"), (2, "failed"), (3, "won")]


@racing
async def test_pauses_grow_and_are_drawn(course):
    plugin = Retry(Config(back_off=0.1, back_off_limit=0.3))
    c = course(plugin).start()
    fault = http(500)
    for tries, least, most in ((1, 0.05, 0.1), (2, 0.1, 0.2), (3, 0.15, 0.3)):
        drawn = {plugin._pause(c.call, c.call.tries * tries, fault) for _ in range(50)}
        assert len(drawn) > 1
        assert least <= min(drawn)
        assert max(drawn) <= most
    c.finish()


@racing
async def test_no_pause_for_what_only_waited_or_was_not_sent(course):
    for fault in (fallen_silent("x"), timed_out("first_token", 1.0), DRAINED):
        c = course(Retry(Config(back_off=5.0))).start()
        c.a.accept()
        c.a.fail(fault)
        assert c.b.inflight == 1
        c.finish()
    c = course(Retry(Config(back_off=5.0))).start()
    c.a.refuse()
    assert c.b.inflight == 1
    c.finish()


@racing
async def test_the_only_worker_is_asked_again_after_a_pause(course):
    c = course(Retry(Config(back_off=0.02)), workers="a").start()
    c.a.accept()
    c.a.fail(http(500))
    assert len(c.call.tries) == 1
    await asyncio.sleep(0.04)
    c.a.accept()
    c.a.answer()
    assert c.finish() == [(1, "failed"), (2, "won")]


@pytest.mark.parametrize("told", [(b"0.05",), (b"50", b"retry-after-ms")], ids=["s", "ms"])
def test_retry_after_is_a_floor_on_its_worker(told, monkeypatch):
    """Others are asked meanwhile; where only it is left, its time is waited for."""

    async def body():
        plugin = retrying()
        two, one = Course(monkeypatch, plugin), Course(monkeypatch, plugin, workers="a")
        two.start()
        two.a.accept()
        refuse(two.a, *told)
        assert two.b.inflight == 1
        two.finish()
        one.start()
        one.a.accept()
        refuse(one.a, *told)
        assert len(one.call.tries) == 1
        await asyncio.sleep(0.03)
        assert len(one.call.tries) == 1
        await asyncio.sleep(0.04)
        assert len(one.call.tries) == 2
        assert one.finish() == [(1, "failed"), (2, "cancelled")]

    run(body())


@racing
async def test_retry_after_of_another_call_counts(course):
    """A worker that asked to be left alone gets no further attempt, of no call."""
    plugin = retrying()
    first = course(plugin, workers="abc").start()
    first.a.accept()
    first.a.fail(http(500))
    first.b.accept()
    refuse(first.b, b"60")
    assert first.c.inflight == 1
    first.finish()
    second = course(plugin, workers="a")
    b, c = first.b, first.c
    second.workers += [b, c]
    b.pools = c.pools = [second.call.entry.pool]
    second.start()
    second.a.accept()
    second.a.fail(http(500))
    assert (b.inflight, c.inflight) == (0, 1)
    second.race.cancel()


@racing
async def test_a_worker_is_not_left_alone_for_a_day_nor_once_it_answers(course):
    plugin = retrying()
    first = course(plugin, workers="ab").start()
    first.a.accept()
    refuse(first.a, b"31000000")
    [until] = plugin._means.held.values()
    assert until <= first.call.client.loop.time() + 30.0
    first.b.accept()
    first.b.status(200, b"{}")
    first.finish()
    assert plugin._means.held
    second = course(plugin, workers="a")
    second.workers[:] = [first.a]
    second.start()
    second.a.accept()
    second.a.status(200, b"{}")
    second.finish()
    assert not plugin._means.held


@racing
async def test_no_word_of_a_worker_is_no_wish_to_be_left_alone(course):
    """The fault of a refused connection has a Retry-After for clients, which is the gateway's own."""
    plugin = retrying()
    c = course(plugin, workers="a").start()
    c.a.refuse()
    assert c.call.tries[0].fault.retry_after == 1.0
    assert not plugin._means.held
    c.finish()


@racing
async def test_a_retry_after_that_is_too_long_is_not_waited_for(course):
    c = course(retrying(), workers="a").start()
    c.a.accept()
    refuse(c.a, b"3")
    assert c.fault.status == 503
    assert c.finish() == [(1, "failed")]


@pytest.mark.parametrize("told", [b"soon", b"-1", b"0", b"inf", b"nan", b"", b"Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_retry_after_that_says_nothing(told, monkeypatch):
    async def body():
        c = Course(monkeypatch, retrying(), workers="a").start()
        c.a.accept()
        refuse(c.a, told)
        assert len(c.call.tries) == 2
        c.finish()

    run(body())


@racing
async def test_HDG_06_the_most_useful_fault_is_told(course):
    c = course(retrying(attempts=2)).start()
    c.a.accept()
    c.a.lose()
    c.b.accept()
    c.b.status(429, b"{}", b"retry-after: 7")
    assert (c.fault.status, c.fault.retry_after) == (429, 7.0)
    assert c.fault.headers == ((b"retry-after", b"7"),)
    assert c.finish() == [(1, "failed"), (2, "failed")]


@racing
async def test_fewer_attempts(course):
    c = course(retrying(attempts=2), workers="abc").start()
    for worker in (c.a, c.b):
        worker.accept()
        worker.lose()
    assert c.fault is not None
    assert c.finish() == [(1, "failed"), (2, "failed")]
