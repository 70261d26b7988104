"""Stored responses of workers that come and go: whoever made one can still be asked, and nobody who is gone is."""

from __future__ import annotations

from fakes import RawClient, Upstream, gateway, json_answer, run
from tailrace.proxy.discovery.endpoint import Endpoint, Found

RESPONSE = json_answer({"id": "resp_0123456789", "object": "response", "status": "completed", "output": []})
YAML = "listen: [127.0.0.1:0]\nmodels: {m: {workers: [{file: FILE}]}}\n"


def test_a_response_leads_to_a_worker_that_came_later_and_to_nobody_once_it_left(tmp_path) -> None:
    async def body() -> None:
        file = tmp_path / "w.yaml"
        file.write_text("[]")
        async with Upstream(RESPONSE) as upstream, gateway(YAML.replace("FILE", str(file))) as process:
            key = f"file {file}"
            process.discovered(Found({key: (Endpoint(upstream.url),)}))
            async with RawClient(process.doors[0].shown) as client:
                assert (await client.post("/v1/responses", {"model": "m", "input": "hi"})).status == 200
                assert (await client.get("/v1/responses/resp_0123456789")).status == 200
                process.discovered(Found({key: ()}))
                answer = await client.get("/v1/responses/resp_0123456789")
                assert (answer.status, answer.json()["error"]["code"]) == (404, "response_not_found")

    run(body())
