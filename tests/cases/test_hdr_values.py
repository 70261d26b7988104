"""Headers: values of any text and any length."""

from __future__ import annotations

import orjson
import pytest
from fakes import GOOD, RawClient, Upstream, gateway, run
from tailrace.proxy.headers import safe_value

from cases.scene import CHAT, PATH, scene


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain-1.0/x", b"plain-1.0/x"),
        ("中", b"%E4%B8%AD"),
        ("50%", b"50%25"),
        ("a\r\nset-cookie: b", b"a%0D%0Aset-cookie: b"),
        ("\0\x7f", b"%00%7F"),
        ("x" * 300, b"x" * 256),
    ],
)
def test_HDR_08_any_text_as_a_header_value(text, value):
    assert safe_value(text) == value


def test_HDR_08_a_model_of_any_name_is_served():
    async def body():
        names = ["中文", "50%", "a b", "x" * 300]
        async with Upstream(GOOD) as upstream:
            models = orjson.dumps({name: {"workers": [upstream.url]} for name in names}).decode()
            async with gateway(f"listen: 127.0.0.1:0\nmodels: {models}\n") as process:
                async with RawClient(process.doors[0].shown) as client:
                    for name in names:
                        assert (await client.post(PATH, CHAT | {"model": name})).status == 200
                    got = await client.post(PATH, CHAT | {"model": "a\r\nset-cookie: b"})
                    assert (got.status, got.header("set-cookie")) == (404, None)

    run(body())


@pytest.mark.parametrize(("size", "status"), [(9_000, 200), (30_000, 200), (70_000, 431)])
def test_HDR_14_long_tokens(size, status):
    async def body():
        async with scene(GOOD) as s:
            got = await s.ask(CHAT, headers={"authorization": "Bearer " + "t" * size})
            assert got.status == status
            assert b"tttt" not in got.body

    run(body())


def test_HDR_14_the_limit_is_configurable():
    async def body():
        async with scene(GOOD, more="limits: {head: 128KiB}") as s:
            assert (await s.ask(CHAT, headers={"authorization": "Bearer " + "t" * 70_000})).status == 200

    run(body())
