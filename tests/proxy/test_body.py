"""Bodies that are JSON by their outline but hold values that are none."""

import pytest
from fakes import Upstream, gateway, json_answer, run, yaml_for
from tailrace.proxy.testing.client import RawClient


@pytest.mark.parametrize(
    ("field", "chain"),
    [
        (b'"model":"\xf6"', "[]"),
        (b'"model":"m","previous_response_id":"\xc3"', "[]"),
        (b'"model":"m","stream":true,"stream_options":{"\x99":true}', "[fuzz.needy:Needy]"),
        (b'"model":"m","max_tokens":1e999', "[{guard: {max_tokens: {cap: 5}}}]"),
    ],
)
def test_a_value_that_json_cannot_have_is_the_clients_fault(field: bytes, chain: str) -> None:
    path = "/v1/responses" if b"response_id" in field else "/v1/chat/completions"

    async def body() -> None:
        async with (
            Upstream(json_answer({})) as upstream,
            gateway(yaml_for(upstream, plugins=chain)) as process,
            RawClient(process.doors[0].shown) as client,
        ):
            answer = await client.post(path, b"{" + field + b"}")
            assert answer.status == 400
            assert answer.json()["error"]["type"] == "invalid_request_error"
            assert not upstream.requests

    run(body())
