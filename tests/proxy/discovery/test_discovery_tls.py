"""Workers behind TLS that are found by their addresses: what they show has to bear the name that was looked up."""

from __future__ import annotations

from pathlib import Path

from certificates import Authority
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, gateway, run
from tailrace.proxy.discovery.endpoint import Endpoint, Found


def test_the_certificate_is_that_of_the_name(tmp_path: Path) -> None:
    async def body() -> None:
        authority, file = Authority(tmp_path), tmp_path / "w.yaml"
        file.write_text("[]")
        yaml = (
            "listen: [127.0.0.1:0]\nmodels: {m: {pool: p}}\n"
            f"pools: {{p: {{workers: [{{file: {file}}}], tls: {{ca: {authority.ca}}}}}}}\n"
        )
        # An address takes the place of the name, which certificates of these tests do not bear.
        name = "127.0.0.9"
        async with (
            Upstream(GOOD, tls=authority.serving(authority.issue("worker", address=name))) as upstream,
            gateway(yaml) as process,
            RawClient(process.doors[0].shown) as client,
        ):
            process.discovered(Found({f"file {file}": (Endpoint(upstream.url),)}))
            assert (await client.post(PATH, CHAT)).status == 503
            process.discovered(Found({f"file {file}": (Endpoint(upstream.url, name=name),)}))
            assert (await client.post(PATH, CHAT)).status == 200
            assert ("host", upstream.url.replace("https://127.0.0.1", name)) in [
                (key.lower(), value) for key, value in upstream.requests[0].headers
            ]

    run(body())
