"""Where a worker listens, as the configuration writes it."""

from __future__ import annotations

import pytest
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, decoded, gateway, run, yaml_for
from tailrace.proxy.address import Address, AddressError
from tailrace.proxy.config import ConfigError


@pytest.mark.parametrize(
    ("url", "write"),
    [
        ("http://h:8000/v1", "http://h:8000"),
        ("http://h:8000/v1/", "http://h:8000"),
        ("https://h/openai/v1", "https://h/openai"),
        ("http://h:8000/v1/chat/completions", "http://h:8000"),
        ("http://h:8000/v1/messages", "http://h:8000"),
    ],
)
def test_the_path_of_the_API_is_none_of_a_workers_address(url: str, write: str) -> None:
    with pytest.raises(AddressError, match=f"write {write}, without /v1"):
        Address.parse(url)
    with pytest.raises(ConfigError, match=f"write {write}, "):
        decoded(yaml_for(url))


@pytest.mark.parametrize("prefix", ["", "/", "/engines/a", "/v1/tenants/a", "/v10", "/xv1"])
def test_any_other_path_stands_in_front_of_every_request(prefix: str) -> None:
    async def main() -> None:
        async with Upstream(GOOD) as upstream:
            async with gateway(yaml_for(upstream.url + prefix)) as process:
                async with RawClient(process.doors[0].shown) as client:
                    assert (await client.post(PATH, CHAT)).status == 200
                    assert upstream.requests[-1].target == prefix.rstrip("/") + PATH

    run(main())
