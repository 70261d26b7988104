"""Request bodies: untouched bytes, bounds, types and forms."""

from __future__ import annotations

import orjson
import pytest
from fakes import GOOD, RawClient, Upstream, answer, gateway, run, yaml_for

from cases.scene import CHAT, PATH, scene

ODD = (
    b'{ "model" :\t"m",\r\n "messages":[ {"role":"user","content":"\\u00e9\xc3\xa9\\/"} ],'
    b'"seed":12481294621783612638172632817,"a":1.0,"b":1e5,"c":-0,"d":1E+2,  "nested":{"z":1,"a":[1.10 , null]}}  '
)


def test_BOD_01_bytes_stay_as_they_are():
    async def body():
        async with scene(GOOD) as s:
            assert (await s.ask(ODD)).status == 200
            assert s.upstream.requests[0].body == ODD

    run(body())


def test_BOD_01_only_the_field_that_is_edited_differs():
    async def body():
        async with Upstream(GOOD) as upstream:
            yaml = yaml_for(upstream).replace("{m: {", "{m: {as: served/m, ")
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                assert (await client.post(PATH, ODD)).status == 200
            sent = upstream.requests[0].body
            assert orjson.loads(sent)["model"] == "served/m"
            for part in (
                b'"messages":[ {"role":"user","content":"\\u00e9\xc3\xa9\\/"} ]',
                b'"seed":12481294621783612638172632817,"a":1.0,"b":1e5,"c":-0,"d":1E+2',
                b'"nested":{"z":1,"a":[1.10 , null]}',
            ):
                assert part in sent

    run(body())


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "nan", "01", "1.", ".5", "+1", "0x10", "1e", "--1"])
def test_BOD_03_numbers_that_json_has_not(text):
    async def body():
        async with scene(GOOD) as s:
            for data in (b'{"model":"m","temperature":%b}', b'{"model":"m","x":[{"y":%b}]}'):
                got = await s.ask(data % text.encode())
                assert (got.status, got.json()["error"]["type"]) == (400, "invalid_request_error")
            assert s.upstream.requests == []

    run(body())


def test_BOD_03_numbers_beyond_a_float_go_on_as_they_are():
    async def body():
        data = b'{"model":"m","messages":[],"top_p":1e999,"seed":%b,"max_tokens":99999999999999999999}' % (b"7" * 5000)
        worker = b'{"choices":[],"usage":{"prompt_tokens":NaN,"completion_tokens":%b}}' % (b"7" * 5000)
        async with scene(answer(200, worker)) as s:
            got = await s.ask(data)
            assert (got.status, got.body) == (200, worker)
            assert s.upstream.requests[0].body == data

    run(body())


def test_BOD_04_a_huge_number_where_text_belongs():
    async def body():
        async with scene(GOOD) as s:
            got = await s.ask(b'{"model":%b,"messages":[]}' % (b"1" * 5000))
            assert (got.status, got.json()["error"]["param"]) == (400, "model")

    run(body())


PLACES = {
    "whole": b"%b",
    "messages": b'{"model":"m","messages":%b}',
    "tools": b'{"model":"m","tools":[{"function":{"parameters":%b}}]}',
    "metadata": b'{"model":"m","metadata":{"a":%b}}',
}


@pytest.mark.parametrize("depth", [200, 1_100, 20_000, 1_000_000])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_BOD_05_deep_nesting(place, depth):
    async def body():
        async with scene(GOOD) as s:
            for opens, closes in ((b"[", b"]"), (b'{"a":', b"}")):
                data = place % (opens * depth + b"1" + closes * depth)
                got = await s.ask(data)
                assert (got.status, got.json()["error"]["code"]) == (400, "invalid_request_error")
            assert (await s.ask(CHAT)).status == 200
            assert len(s.upstream.requests) == 1

    run(body())


def test_BOD_05_depth_is_counted_exactly_and_not_inside_strings():
    async def body():
        async with scene(GOOD) as s:
            for depth, status in ((127, 200), (128, 400)):
                data = b'{"model":"m","messages":[],"x":' + b"[" * depth + b"]" * depth + b"}"
                assert (await s.ask(data)).status == status
            assert (await s.ask(CHAT | {"x": '[{"' * 5000})).status == 200

    run(body())


def test_BOD_05_countless_fields():
    async def body():
        async with scene(GOOD) as s:
            for count, colon in ((1001, b":"), (300_000, b":"), (300_000, b" : ")):
                fields = b",".join(b'"k%d"%b1' % (n, colon) for n in range(count))
                assert (await s.ask(b'{"model":"m",' + fields + b"}")).status == 400
            many = CHAT | {"messages": [{"role": "user", "content": 'say "hi"'}] * 60_000}
            assert (await s.ask(many)).status == 200

    run(body())


ENCODINGS = {
    "BOM": (b"\xef\xbb\xbf" + b'{"model":"m"}', "application/json", 400),
    "UTF-16": ('{"model":"m"}'.encode("utf-16"), "application/json; charset=utf-16", 415),
    "UTF-16 unsaid": ('{"model":"m"}'.encode("utf-16"), "application/json", 400),
    "Latin-1": ('{"model":"m","x":"\xe9"}'.encode("latin-1"), "application/json", 400),
    "Latin-1 in a key": ('{"model":"m","\xe9":1}'.encode("latin-1"), "application/json", 400),
    "Latin-1 said": (b'{"model":"m"}', "application/json; charset=latin-1", 415),
    "encoded surrogate": (b'{"model":"m","x":"\xed\xa0\x80"}', "application/json", 400),
    "half a pair": (b'{"model":"m","x":"\\ud800"}', "application/json", 400),
    "UTF-8 said": (b'{"model":"m"}', 'application/json; charset="UTF-8"', 200),
    "suffix": (b'{"model":"m"}', "application/vnd.x+json", 200),
    "none": (b'{"model":"m"}', "", 200),
    "text": (b'{"model":"m"}', "text/plain", 415),
    "form": (b"model=m", "application/x-www-form-urlencoded", 415),
}


@pytest.mark.parametrize(("data", "kind", "status"), ENCODINGS.values(), ids=ENCODINGS)
def test_BOD_07_encodings(data, kind, status):
    async def body():
        async with scene(GOOD) as s:
            got = await s.ask(data, headers={"content-type": kind})
            assert got.status == status
            assert len(s.upstream.requests) == (status == 200)

    run(body())


def test_BOD_15_no_slot_is_lost_to_malformed_requests():
    async def body():
        async with scene(GOOD) as s:
            for data, param in (
                (b"[]", None),
                (b"null", None),
                (b'"x"', None),
                (b"", None),
                (b"{", None),
                (b'{"model":1}', "model"),
                (b'{"model":null}', "model"),
                (b'{"model":["m"]}', "model"),
                (b"{}", "model"),
                (b'{"model":"m","model":"m"}', "model"),
                (b'{"model":"m", "a":1, "a":2}', "a"),
            ):
                got = await s.ask(data)
                error = got.json()["error"]
                assert (got.status, error["type"], error["param"]) == (400, "invalid_request_error", param)
            await s.at_rest()
            assert s.upstream.requests == []
            assert (await s.ask(b'{"model":"m"}')).status == 200

    run(body())
