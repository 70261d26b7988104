"""One trace over gateway and sidecar: each hop's call hangs under the attempt of the hop before."""

from __future__ import annotations

from collector import CLIENT, INTERNAL, collector
from fakes import RawClient, decoded, run, until
from sidecars import CHAT, KEY, STREAMED, found, sidecar, simulated, url_of
from tailrace.proxy.gateway import running

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = {"traceparent": f"00-{TRACE}-{SPAN}-01"}


def test_a_sidecars_spans_hang_under_the_attempt_of_its_gateway() -> None:
    async def body() -> None:
        async with collector() as to, simulated() as engine:
            trace = f"[trace: {{endpoint: '{to.url}', ratio: 0, slowest: 0}}]"
            async with sidecar(found(engine.url), f"hop_key: {KEY}\nplugins: {trace}\n") as side:
                models = f"models: {{tiny: {{workers: ['{url_of(side)}']}}}}\n"
                yaml = f"listen: [127.0.0.1:0]\nhop_key: {KEY}\n{models}plugins: {trace}\n"
                async with running(decoded(yaml), watching=True) as front:
                    (worker,) = front.workers()
                    await until(lambda: worker.eligible)
                    async with RawClient(url_of(front)) as client:
                        answer = await client.post(CHAT, STREAMED, GIVEN)
                    assert answer.complete
                    roots = {root.parent: root for root in await to.roots(2)}
                    first = roots[SPAN]
                    [attempt] = to.attempts(first)
                    beside = roots[attempt.span_id]
                    [inner] = [span for span in to.spans if span.kind == CLIENT and span.parent == beside.span_id]
                    assert {span.trace_id for span in to.spans} == {TRACE}
                    assert beside.attributes["tailrace.request_id"] == first.attributes["tailrace.request_id"]
                    # The engine is told of the attempt of the hop beside it.
                    assert inner.attributes["server.port"] == int(engine.url.rpartition(":")[2])
                    assert attempt.began <= beside.began <= inner.began
                    assert {"network", "prefill"} <= {s.name for s in to.spans if s.kind == INTERNAL}

    run(body())
