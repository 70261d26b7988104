"""The hop key: who is let through, and for how long."""

from __future__ import annotations

import pytest
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, decoded, gateway, json_answer, run, yaml_for
from tailrace.proxy.hop import AROUND, HEADER, STEP, HopKey

KEY = "a-key-that-hops-share"


class Watch:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("late", [-AROUND * STEP, -1.0, 0.0, 29.9, 89.9])
def test_a_token_counts_within_ninety_seconds(late: float):
    sender, receiver = Watch(1_800_000_000.0), Watch(1_800_000_000.0 + late)
    assert HopKey(KEY, receiver).admits(HopKey(KEY, sender).token())


@pytest.mark.parametrize("late", [-(AROUND + 1) * STEP, (AROUND + 1) * STEP])
def test_an_old_or_early_token_is_refused(late: float):
    sender, receiver = Watch(1_800_000_000.0), Watch(1_800_000_000.0 + late)
    assert not HopKey(KEY, receiver).admits(HopKey(KEY, sender).token())


def test_a_receiver_moves_on_with_the_time():
    clock = Watch(1_800_000_000.0)
    key = HopKey(KEY, clock)
    token = key.token()
    assert key.admits(token)
    clock.now += 2 * STEP
    assert key.admits(token)
    assert key.admits(key.token())
    clock.now += 2 * STEP
    assert not key.admits(token)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        b"",
        b".",
        b"60000000",
        b"60000000.",
        HopKey("another-key-of-another-fleet", Watch(1_800_000_000.0)).token(),
        HopKey(KEY, Watch(1_800_000_000.0)).token()[:-1],
        HopKey(KEY, Watch(1_800_000_000.0)).token() + b"0",
        HopKey(KEY, Watch(1_800_000_000.0)).token().replace(b"60000000.", b"60000001."),
    ],
)
def test_what_is_no_token_is_refused(wrong: bytes | None):
    assert not HopKey(KEY, Watch(1_800_000_000.0)).admits(wrong)


def test_the_line_holds_until_the_next_is_due():
    clock = Watch(1_800_000_010.0)
    key = HopKey(KEY, clock)
    line = key.line()
    assert line == HEADER + b": " + key.token() + b"\r\n"
    assert KEY.encode() not in line
    assert key.until_next() == 20.0
    clock.now += 19.9
    assert key.line() == line
    clock.now += 0.2
    assert key.line() != line


def test_HDG_05_a_further_attempt_says_its_number():
    refusal = json_answer(
        {"error": {"message": "busy"}}, 503, b"x-tailrace-load: running=1;waiting=0;kv=0.00;unsent\r\n"
    )

    async def body():
        async with Upstream(refusal) as refuses, Upstream(GOOD) as answers:
            async with gateway(yaml_for(refuses, answers)) as process, RawClient(process.doors[0].shown) as client:
                for _ in range(20):
                    answer = await client.post(PATH, CHAT)
                    assert answer.status == 200
                    assert answer.header("x-tailrace-load") is None
            said = [request.header("x-tailrace-attempt") for request in answers.requests]
            assert set(said) <= {None, "2"}
            assert said.count("2") == len(refuses.requests)
            assert not any(request.header("x-tailrace-attempt") for request in refuses.requests)

    run(body())


def test_a_call_that_the_only_worker_refused_is_not_sent_to_it_again():
    refusal = json_answer(
        {"error": {"message": "busy", "code": "worker_overloaded"}},
        503,
        b"retry-after: 7\r\nx-tailrace-load: running=1;waiting=1;kv=0.00;unsent\r\n",
    )

    async def body():
        async with Upstream(refusal) as refuses:
            async with gateway(yaml_for(refuses)) as process, RawClient(process.doors[0].shown) as client:
                answer = await client.post(PATH, CHAT)
                assert (answer.status, answer.header("retry-after")) == (503, "7")
                assert answer.json()["error"]["code"] == "worker_overloaded"
            assert len(refuses.requests) == 1

    run(body())


def test_a_stored_response_is_not_asked_for_twice_where_its_worker_refuses():
    made = json_answer({"id": "resp_1", "object": "response", "output": []})
    refusal = json_answer(
        {"error": {"message": "busy"}}, 503, b"x-tailrace-load: running=1;waiting=1;kv=0.00;unsent\r\n"
    )
    ask = {"model": "m", "input": "hi"}

    async def body():
        async with Upstream(made, refusal) as maker, Upstream(refusal) as other:
            async with gateway(yaml_for(maker)) as process, RawClient(process.doors[0].shown) as client:
                assert (await client.post("/v1/responses", ask)).status == 200
                await process.load(decoded(yaml_for(maker, other)))
                assert (await client.post("/v1/responses", {**ask, "previous_response_id": "resp_1"})).status == 503
            assert (len(maker.requests), len(other.requests)) == (2, 0)

    run(body())


def test_a_client_cannot_count_attempts():
    async def body():
        async with Upstream(GOOD) as upstream:
            async with gateway(yaml_for(upstream)) as process, RawClient(process.doors[0].shown) as client:
                told = {"x-tailrace-attempt": "3", "x-tailrace-hop": "1.a", "x-tailrace-budget-ms": "1"}
                assert (await client.post(PATH, CHAT, told)).status == 200
            assert not [name for name, _ in upstream.requests[0].headers if name.lower().startswith("x-tailrace")]

    run(body())
