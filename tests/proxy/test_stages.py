"""Where the time of a call went: on a clock that the test sets, and between a gateway and its sidecar."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fakes import CHAT, PATH, RawClient, capture, gateway, run, until, yaml_for
from sidecars import found, sidecar, simulated, url_of
from tailrace.proxy.fault import PREEMPTED
from tailrace.proxy.stages import NAMES, Stages, Told, engine_told, stages_of

MS = 1_000_000


def attempt(
    began: int,
    sent: int = 0,
    first: int = 0,
    *,
    streaming: bool = True,
    told: bytes = b"",
    held=(),
    why: str = "first",
    ended: float = 0,
    fault=None,
):
    return SimpleNamespace(
        why=why,
        started_ns=began * MS,
        sent_ns=sent * MS,
        first_content_ns=first * MS,
        streaming=streaming,
        status=200,
        head=SimpleNamespace(stages=told),
        held=list(held),
        ended_ns=int(ended * MS),
        fault=fault,
    )


def call(*tries, received: int = 0, waited: int = 0, requeued: int = 0, winner: bool = True):
    return SimpleNamespace(
        started_ns=100 * MS,
        received_ns=received * MS,
        waited_ns=waited * MS,
        requeued_ns=requeued * MS,
        tries=list(tries),
        race=SimpleNamespace(winner=tries[-1] if tries and winner else None),
    )


def spent(stages: Stages) -> dict[str, float]:
    return {name: took / MS for name in NAMES if (took := getattr(stages, name))}


ENGINE = b'"metrics":{"time_to_first_token_ms":30.0,"generation_time_ms":10.0,"queue_time_ms":4.0,"mean_itl_ms":1.0}}'
CASES = {
    "refused at once": (call(), {"gateway": 100}),
    "refused after a wait": (call(received=120, waited=70), {"client_edge": 20, "gateway": 10, "queue": 70}),
    "a stream of a bare engine": (
        call(attempt(102, 105, 150), received=101),
        {"client_edge": 1, "gateway": 1, "network": 3, "prefill": 45, "decode": 50},
    ),
    "a stream behind a sidecar": (
        call(attempt(102, 102, 150, told=b"40000 10000 0")),
        {"gateway": 2, "network": 8, "queue": 10, "prefill": 30, "decode": 50},
    ),
    "a sidecar that says more than there was": (
        call(attempt(102, 102, 150, told=b"90000 70000 0")),
        {"gateway": 2, "queue": 48, "decode": 50},
    ),
    "a sidecar that says nonsense": (
        call(attempt(102, 102, 150, told=b"9000 x 0")),
        {"gateway": 2, "prefill": 48, "decode": 50},
    ),
    "a whole answer": (
        call(attempt(102, 102, 196, streaming=False, held=[b"{}"])),
        {"gateway": 6, "prefill": 94},
    ),
    "a whole answer of an engine that tells": (
        call(attempt(102, 102, 196, streaming=False, held=[b'{"choices":[],' + ENGINE])),
        {"gateway": 6, "queue": 4, "prefill": 80, "decode": 10},
    ),
    "a whole answer behind a sidecar": (
        call(attempt(102, 102, 196, streaming=False, told=b"90000 6000 50000", held=[b"{}"])),
        {"gateway": 6, "network": 4, "queue": 6, "prefill": 34, "decode": 50},
    ),
    "the second attempt": (
        call(attempt(102, 103), attempt(140, 141, 180)),
        {"gateway": 2, "retry": 38, "network": 1, "prefill": 39, "decode": 20},
    ),
    "a stream that went on elsewhere": (
        call(attempt(102, 103, 120), attempt(150, why="rescue"), attempt(160, 161, 180, why="rescue")),
        {"gateway": 2, "network": 1, "prefill": 17, "decode": 80},
    ),
    "sent back to the queue": (
        call(attempt(112, 113), attempt(150, 150, 180), waited=40, requeued=30),
        {"gateway": 2, "queue": 40, "retry": 8, "prefill": 30, "decode": 20},
    ),
    "no connection": (call(attempt(102), winner=False), {"gateway": 2, "network": 98}),
    "refused by its worker, and no other was asked in time": (
        call(attempt(102, 103, ended=110), winner=False),
        {"gateway": 2, "network": 1, "prefill": 7, "retry": 90},
    ),
    "refused by its worker, and told": (
        call(attempt(102, 103, ended=199.5), winner=False),
        {"gateway": 2.5, "network": 1, "prefill": 96.5},
    ),
    "no connection, and no other was asked in time": (
        call(attempt(102, ended=110), winner=False),
        {"gateway": 2, "network": 8, "retry": 90},
    ),
    "sent back to the queue, and from there away": (
        call(attempt(112, 113, ended=120, fault=PREEMPTED), waited=10, winner=False),
        {"gateway": 2, "network": 1, "prefill": 7, "queue": 90},
    ),
    "sent back to the queue, and nobody there when its turn came": (
        call(attempt(112, 113, ended=120, fault=PREEMPTED), waited=60, requeued=50, winner=False),
        {"gateway": 2, "network": 1, "prefill": 7, "queue": 90},
    ),
    "never answered": (call(attempt(102, 103), winner=False), {"gateway": 2, "network": 1, "prefill": 97}),
}


@pytest.mark.interpreted
@pytest.mark.parametrize("case", CASES)
def test_stages_add_up_to_the_whole(case: str):
    of, expected = CASES[case]
    stages = stages_of(of, 200 * MS)
    assert spent(stages) == expected
    assert sum(expected.values()) == stages.total / MS == 100


@pytest.mark.interpreted
def test_what_an_engine_says_at_the_end_of_a_stream():
    of = call(attempt(100, 100, 150))
    assert spent(stages_of(of, 200 * MS, Told(0, 5 * MS, 0))) == {"queue": 5, "prefill": 45, "decode": 50}


@pytest.mark.interpreted
def test_as_a_header():
    stages = stages_of(call(attempt(102, 102, 150)), 200 * MS + 1500)
    assert stages.told() == b"gateway;dur=2.000, prefill;dur=48.000, decode;dur=50.001, total;dur=100.001"


@pytest.mark.parametrize("name", ["unary.json", "stream_usage.sse.txt", "responses_stream.sse.txt"])
def test_a_real_engines_figures(name: str):
    # A stream's stand in its last event but one; the end of the file is some events behind.
    text = capture(name)
    text = text[: text.rindex(b'"metrics"') + 300]
    told = engine_told(text)
    assert told is not None
    assert 0 < told.queue_ns < 1 * MS
    assert 20 * MS < told.decode_ns < 500 * MS


@pytest.mark.parametrize(
    "text", [b"", b'{"metrics":null}', b'{"choices":[{"text":"\\"metrics\\":{\\"queue_time_ms\\":9"}]}']
)
def test_an_engine_that_says_nothing(text: bytes):
    assert engine_told(text) is None


@pytest.mark.parametrize("value", [b"", b"1 2", b"1 2 3 4", b"-1 2 3", b"1.5 2 3", b"1  2", b"9" * 60 + b" 1 1"])
def test_what_no_sidecar_says(value: bytes):
    assert Told.read(value) is None


def test_a_sidecar_tells_its_part_and_the_client_does_not_see_it():
    async def body():
        async with simulated(ttft_ms=30, itl_ms=1, served_model_names=("m",)) as sim, sidecar(found(sim.url)) as worker:
            yaml = yaml_for(url_of(worker), plugins="[cases.witness:Witness]")
            async with gateway(yaml) as process, RawClient(url_of(process)) as client:
                for stream in (True, False):
                    answer = await client.post(PATH, {**CHAT, "model": "m", "max_tokens": 8, "stream": stream})
                    assert answer.status == 200
                    assert answer.header("x-tailrace-stages") is None
                witness = process.service.chain.pipeline.links[0].plugin
                await until(lambda: len(witness.outcomes) == 2)
                return [(call, outcome) for call, outcome in zip(witness.calls, witness.outcomes, strict=True)]

    for call_, outcome in run(body()):
        stages = stages_of(call_, outcome.finished_ns)
        assert sum(spent(stages).values()) * MS == pytest.approx(stages.total)
        assert call_.tries[0].head.stages
        assert stages.network > 0
        assert stages.prefill >= 30 * MS
