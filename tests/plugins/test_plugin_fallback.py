"""Where the `fallback` plugin sends calls that fail, for what trouble, and what answers say of it."""

from __future__ import annotations

import orjson
import pytest
from fakes import CHAT, PATH, RawClient, Upstream, chat_answer, gateway, json_answer, run, sse_answer, stream_of, until
from tailrace.plugins.fallback import trouble_of
from tailrace.proxy.fault import (
    DRAINED,
    Fault,
    Whose,
    connect_failed,
    connection_lost,
    fallen_silent,
    false_end,
    no_worker,
    timed_out,
)

BIG, SMALL, SPARE = (json_answer(chat_answer(text)) for text in ("big", "small", "spare"))
DOWN = json_answer({"error": {"message": "broken"}}, 500)
BUSY = json_answer({"error": {"message": "busy"}}, 503)
WRONG = json_answer({"error": {"message": "wrong"}}, 400)


def http(status, whose=Whose.ENGINE, kind="http_error"):
    return Fault(kind=kind, whose=whose, status=status, code="x", message="x")


@pytest.mark.parametrize(
    ("fault", "trouble"),
    [
        (no_worker("m"), "unavailable"),
        (connect_failed("x"), "unavailable"),
        (DRAINED, "unavailable"),
        (http(429), "overloaded"),
        (http(503), "overloaded"),
        (http(503, kind="overloaded"), "overloaded"),
        (connection_lost(sent=True), "lost"),
        (false_end("x"), "lost"),
        (fallen_silent("x"), "lost"),
        (timed_out("first_content", 1.0), "timeout"),
        (http(500), "error"),
        (http(400, Whose.CLIENT), None),
    ],
    ids=lambda value: f"{value.kind}-{value.status}" if isinstance(value, Fault) else "",
)
def test_trouble(fault, trouble):
    assert trouble_of(fault) == trouble


class Fleet:
    """A model `big` with a spare pool, a model `small`, and a gateway with these plugins."""

    def __init__(self, big, plugins, small=SMALL, spare=SPARE):
        self.big, self.small, self.spare = (Upstream(script) for script in (big, small, spare))
        self._plugins = plugins

    async def __aenter__(self):
        for upstream in (self.big, self.small, self.spare):
            await upstream.__aenter__()
        yaml = f"""
listen: [127.0.0.1:0]
models: {{big: {{pool: main}}, small: {{workers: ['{self.small.url}']}}, other: {{pool: spare}}}}
pools: {{main: {{workers: ['{self.big.url}']}}, spare: {{workers: ['{self.spare.url}']}}}}
plugins: {self._plugins}
"""
        self._gateway = gateway(yaml)
        self.process = await self._gateway.__aenter__()
        return self

    async def __aexit__(self, *_):
        await self._gateway.__aexit__(None, None, None)
        for upstream in (self.big, self.small, self.spare):
            await upstream.__aexit__(None)

    async def ask(self, path=PATH, **more):
        async with RawClient(self.process.doors[0].shown) as client:
            return await client.post(path, {**CHAT, "model": "big", **more})

    def seen(self):
        return tuple(len(upstream.requests) for upstream in (self.big, self.small, self.spare))

    @property
    def plugin(self):
        return self.process.service.chain.pipeline.links[0].plugin

    def counted(self, place=0):
        """What a plugin has asked, and what of that was answered, in the order of its choices."""
        metrics = list(self.process.service.chain.pipeline.links[place].plugin.metrics())
        return tuple(
            [value for name, _, value in metrics if name == wanted] for wanted in ("asked_total", "answered_total")
        )


def fallback(choices, more=""):
    return f"[{{fallback: {{to: [{choices}]{more}}}}}]"


def text_of(answer):
    return answer.json()["choices"][0]["message"]["content"]


def test_the_first_that_can_be_had():
    async def body():
        async with Fleet(DOWN, fallback("{model: small}, {pool: spare}")) as fleet:
            answer = await fleet.ask()
            assert (answer.status, text_of(answer)) == (200, "small")
            assert answer.header("x-tailrace-fallback") == "model=small"
            assert fleet.seen() == (1, 1, 0)
            assert orjson.loads(fleet.small.requests[0].body)["model"] == "small"
            assert fleet.small.requests[0].header("x-tailrace-attempt") == "2"
            counted = {(name, labels["to"]): value for name, labels, value in fleet.plugin.metrics()}
            assert counted["asked_total", "model=small"] == counted["answered_total", "model=small"] == 1
            assert counted["asked_total", "pool=spare"] == 0

    run(body())


def test_each_once_and_then_the_next():
    async def body():
        async with Fleet(DOWN, fallback("{model: small}, {pool: spare}"), small=DOWN) as fleet:
            answer = await fleet.ask()
            assert (text_of(answer), answer.header("x-tailrace-fallback")) == ("spare", "pool=spare")
            assert orjson.loads(fleet.spare.requests[0].body)["model"] == "big", "another pool serves the same model"
            assert fleet.seen() == (1, 1, 1)

    run(body())


def test_only_what_began_is_counted():
    async def body():
        poor = "{retry: {budget: {share: 0, per_second: 0}}}"
        async with Fleet(DOWN, f"[{{fallback: {{to: [{{model: small}}]}}}}, {poor}]") as fleet:
            assert (await fleet.ask()).status == 500
            assert fleet.seen() == (1, 0, 0)
            assert fleet.counted() == ([0], [0]), "it was not allowed"
        async with Fleet(DOWN, fallback("{model: small}, {message: sorry}"), small=DOWN) as fleet:
            assert text_of(await fleet.ask()) == "sorry"
            assert fleet.counted() == ([1, 1], [0, 1])

    run(body())


def test_two_in_a_chain_keep_to_their_own_choices():
    async def body():
        two = "[{fallback: {to: [{model: small}]}}, {fallback: {to: [{pool: spare}]}}]"
        async with Fleet(DOWN, two, small=DOWN) as fleet:
            answer = await fleet.ask()
            assert (text_of(answer), answer.header("x-tailrace-fallback")) == ("spare", "pool=spare")
            assert fleet.counted(0) == ([1], [0])
            assert fleet.counted(1) == ([1], [1])

    run(body())


def test_nothing_is_said_where_nothing_was_needed():
    async def body():
        async with Fleet(BIG, fallback("{model: small}")) as fleet:
            answer = await fleet.ask()
            assert (text_of(answer), answer.header("x-tailrace-fallback")) == ("big", None)

    run(body())


@pytest.mark.parametrize(
    ("big", "on", "answers"),
    [
        (BUSY, "overloaded", "small"),
        (BUSY, "error", None),
        (DOWN, "error", "small"),
        (DOWN, "[overloaded, lost]", None),
        (WRONG, "error", None),
    ],
)
def test_by_kind_of_trouble(big, on, answers):
    async def body():
        listed = on if on.startswith("[") else f"[{on}]"
        async with Fleet(big, fallback(f"{{model: small, on: {listed}}}")) as fleet:
            answer = await fleet.ask()
            assert (text_of(answer) if answer.status == 200 else None) == answers

    run(body())


def test_nobody_takes_calls():
    async def body():
        async with Fleet(BIG, fallback("{model: small, on: [unavailable]}")) as fleet:
            fleet.process.pools["main"].workers[0].drained = True
            fleet.process.pools["main"].rebuild()
            answer = await fleet.ask()
            assert text_of(answer) == "small"
            assert fleet.seen() == (0, 1, 0)
            assert fleet.small.requests[0].header("x-tailrace-attempt") is None, "it is the first"

    run(body())


def test_nobody_takes_calls_there_either():
    async def body():
        async with Fleet(DOWN, fallback("{model: small}, {message: sorry}")) as fleet:
            for name in ("model:small",):
                fleet.process.pools[name].workers[0].drained = True
                fleet.process.pools[name].rebuild()
            answer = await fleet.ask()
            assert (answer.status, text_of(answer)) == (200, "sorry")
            assert answer.header("x-tailrace-fallback") == "message"

    run(body())


def test_retry_comes_first_where_it_stands_first_and_leaves_an_attempt():
    async def body():
        plugins = "[{fallback: {to: [{model: small}]}}, {retry: {attempts: 2, back_off: 0}}]"
        async with Fleet(DOWN, plugins) as fleet:
            await fleet.ask()
            assert fleet.seen() == (1, 1, 0)
        plugins = "[{retry: {attempts: 2, back_off: 0}}, {fallback: {to: [{model: small}]}}]"
        async with Fleet(DOWN, plugins) as fleet:
            await fleet.ask()
            assert fleet.seen() == (2, 1, 0)
        plugins = "[{fallback: {to: [{model: small}], after: 2}}, {retry: {back_off: 0}}]"
        async with Fleet(DOWN, plugins) as fleet:
            await fleet.ask()
            assert fleet.seen() == (2, 1, 0)

    run(body())


def test_HDG_03_what_has_effects_goes_nowhere_else():
    async def body():
        async with Fleet(DOWN, fallback("{model: small}")) as fleet:
            assert (await fleet.ask(store=True)).status == 500
            assert fleet.seen() == (1, 0, 0)

    run(body())


def test_the_header_is_the_operators_choice():
    async def body():
        async with Fleet(DOWN, fallback("{model: small}", ", header: null")) as fleet:
            assert (await fleet.ask()).header("x-tailrace-fallback") is None
        async with Fleet(DOWN, fallback("{model: small}", ", header: X-Served-By")) as fleet:
            assert (await fleet.ask()).header("x-served-by") == "model=small"

    run(body())


def test_streams():
    async def body():
        stream = sse_answer(stream_of(["small"]))
        async with Fleet(DOWN, fallback("{model: small}"), small=stream) as fleet:
            answer = await fleet.ask(stream=True)
            assert b"small" in answer.body
            assert answer.header("x-tailrace-fallback") == "model=small"

    run(body())


def test_a_model_that_is_not_there_is_passed_over_and_remarked():
    async def body():
        async with Fleet(DOWN, fallback("{model: nobody}, {model: big}, {model: small}")) as fleet:
            assert text_of(await fleet.ask()) == "small"
            remarks = list(fleet.plugin.config.remark({"big", "small"}))
            assert len(remarks) == 1
            assert "nobody" in remarks[0]
            await until(lambda: not fleet.process.service.active)

    run(body())
