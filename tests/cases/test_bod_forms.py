"""Request bodies: forms with audio, and fields that would steer the proxy."""

from __future__ import annotations

import hashlib
import random

import orjson
import pytest
from fakes import GOOD, RawClient, Upstream, answer, chat_answer, gateway, json_answer, run, yaml_for

from cases.scene import CHAT, PATH, scene

AUDIO = "/v1/audio/transcriptions"
TEXT = answer(200, b"hello\n", content_type="text/plain; charset=utf-8")
STEERING = {
    "api_base": "http://evil",
    "base_url": "http://evil",
    "api_key": "sk-evil",
    "model_list": [{"model_name": "m", "litellm_params": {"api_base": "http://evil"}}],
    "fallbacks": ["other"],
    "user_id": "admin",
    "metadata": {"team": "other", "api_base": "http://evil"},
    "mock_response": "forged",
    "extra_headers": {"authorization": "x"},
    "worker": "http://evil",
    "pool": "other",
}


def part(name: bytes, content: bytes, extra: bytes = b"", boundary: bytes = b"b") -> bytes:
    """One part of a form."""
    return b'--%b\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n' % (boundary, name, extra, content)


def form(*parts: bytes, boundary: bytes = b"b") -> bytes:
    return b"".join(parts) + b"--%b--\r\n" % boundary


BOUNDARIES = {
    "plain": (b"----x", b"----x"),
    "spaces": (b"a b c", b'"a b c"'),
    "odd": (b"'()+_,-./:=?", b'"\'()+_,-./:=?"'),
    "long": (b"x" * 70, b"x" * 70),
}


@pytest.mark.parametrize(("boundary", "written"), BOUNDARIES.values(), ids=BOUNDARIES)
def test_BOD_12_audio_goes_on_byte_for_byte(boundary, written):
    async def body():
        sound = random.Random(7).randbytes(3 << 20) + b"\r\n--" * 1000 + b"\r\n--" + boundary[:-1] + b"\0\r\n"
        data = form(
            part(b"file", sound, b'; filename="a; name=\\"model\\".wav"\r\nContent-Type: audio/wav', boundary),
            part(b"model", b"m", boundary=boundary),
            part(b"response_format", b"text", boundary=boundary),
            boundary=boundary,
        )
        async with scene(TEXT) as s:
            kind = "multipart/form-data; boundary=" + written.decode()
            got = await s.ask(data, AUDIO, headers={"content-type": kind})
            assert (got.status, got.header("content-type"), got.body) == (
                200,
                "text/plain; charset=utf-8",
                b"hello\n",
            )
            request = s.upstream.requests[0]
            assert request.header("content-type") == kind
            assert hashlib.sha256(request.body).digest() == hashlib.sha256(data).digest()

    run(body())


@pytest.mark.parametrize("given", [True, False], ids=["named", "default"])
def test_BOD_12_a_model_by_another_name(given):
    async def body():
        async with Upstream(json_answer({"text": "hi"})) as upstream:
            yaml = yaml_for(upstream, more="default_model: m").replace("{m: {", "{m: {as: whisper/l, ")
            sound = b"\0\r\n--x" * 100
            named = [part(b"model", b"m")] if given else []
            data = form(part(b"file", sound, b'; filename="a.wav"'), *named)
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                got = await client.post(AUDIO, data, {"content-type": "multipart/form-data; boundary=b"})
                assert got.status == 200
            whole = part(b"model", b"whisper/l")
            file = part(b"file", sound, b'; filename="a.wav"')
            assert upstream.requests[0].body == (form(file, whole) if given else form(whole, file))
            assert upstream.requests[0].header("content-length") == str(len(upstream.requests[0].body))

    run(body())


MODEL = part(b"model", b"m")
TWO_FACED = {
    "two models": form(MODEL, part(b"model", b"other")),
    "two names": form(MODEL, b'--b\r\nContent-Disposition: form-data; name="model"; name="x"\r\n\r\ny\r\n'),
    "two dispositions": form(
        MODEL,
        b'--b\r\nContent-Disposition: form-data; name="model"\r\ncontent-disposition: form-data; name="x"\r\n\r\ny\r\n',
    ),
    "folded": form(MODEL, b'--b\r\nContent-Disposition: form-data;\r\n name="model"\r\n\r\ny\r\n'),
    "folded elsewhere": form(MODEL, b"--b\r\nX-A: b\r\n\tContent-Disposition: x\r\n\r\ny\r\n"),
    "bare line feed": form(MODEL, b'--b\r\nX: y\nContent-Disposition: form-data; name="model"\r\n\r\ny\r\n'),
    "bare carriage return": form(MODEL, b'--b\r\nX: y\rContent-Disposition: form-data; name="model"\r\n\r\ny\r\n'),
    "escaped name": form(MODEL, part(b"mod\\el", b"other")),
    "extended name": form(MODEL, b"--b\r\nContent-Disposition: form-data; name*=utf-8''model\r\n\r\ny\r\n"),
    "malformed parameter": form(MODEL, b'--b\r\nContent-Disposition: form-data; name="x"y\r\n\r\ny\r\n'),
    "something behind the boundary": form(MODEL, b"--bx\r\n" + part(b"x", b"y")[5:]),
    "a space behind the boundary": form(MODEL, b"--b \r\n" + part(b"x", b"y")[5:]),
    "no end": MODEL,
    "a preamble that does not end its line": b"hello" + form(MODEL),
    "a preamble that ends in a bare line feed": b"hello\n" + form(MODEL),
    "a boundary in the preamble": b"hello --b\r\n" + form(MODEL),
    "another boundary in the preamble": b"--bb\r\n" + form(MODEL),
    "no content": form(MODEL, b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n'),
    "binary model": form(part(b"model", b"\xff")),
    "long model": form(part(b"model", b"m" * 70_000)),
    "too many parts": form(MODEL, *[part(b"x%d" % n, b"y") for n in range(64)]),
    "no model": form(part(b"file", b"x")),
    "only in a content type": form(b'--b\r\nContent-Type: text/plain; name="model"\r\n\r\nm\r\n'),
    "only in a file name": form(part(b"file", b"m", b'; filename="; name=model"')),
    "empty": b"",
}


@pytest.mark.parametrize("data", TWO_FACED.values(), ids=TWO_FACED)
def test_BOD_12_forms_that_could_be_read_in_two_ways(data):
    async def body():
        async with scene(TEXT) as s:
            got = await s.ask(data, AUDIO, headers={"content-type": "multipart/form-data; boundary=b"})
            assert (got.status, got.json()["error"]["type"]) == (400, "invalid_request_error")
            assert s.upstream.requests == []

    run(body())


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 415),
        ("multipart/mixed; boundary=b", 415),
        ("multipart/form-data", 400),
        ("multipart/form-data; boundary=", 400),
        ("multipart/form-data; boundary=b; boundary=c", 400),
        ('multipart/form-data; x="; boundary=b"', 400),
        ("multipart/form-data; boundary=" + "b" * 300, 400),
        ("Multipart/Form-Data;Boundary=b;", 200),
        ("multipart/form-data; charset=utf-8; boundary=b", 200),
    ],
)
def test_BOD_12_content_types(kind, status):
    async def body():
        async with scene(TEXT) as s:
            data = form(part(b"file", b"x", b"; filename=a"), part(b"model", b"m"))
            assert (await s.ask(data, AUDIO, headers={"content-type": kind})).status == status
            assert len(s.upstream.requests) == (status == 200)

    run(body())


def test_BOD_14_no_field_steers_the_proxy():
    async def body():
        async with scene(GOOD) as s:
            plain = CHAT | STEERING
            nested = CHAT | {"tools": [STEERING], "metadata": STEERING, "extra_body": STEERING}
            query = "?" + "&".join(f"{name}=http://evil" for name in STEERING)
            for sent, path in ((plain, PATH), (nested, PATH), (CHAT, PATH + query)):
                got = await s.ask(sent, path)
                assert (got.status, got.json()) == (200, chat_answer("hi"))
                request = s.upstream.requests[-1]
                # The destination and the credential are ours, the rest is the worker's business.
                assert request.json() == sent
                assert request.target == path.replace("&api_key=http://evil", "")
                assert request.header("host") == s.upstream.url.removeprefix("http://")
                assert request.header("authorization") is None
                assert s.witness.calls[-1].model == "m"

    run(body())


def test_BOD_14_nor_does_a_field_of_a_form():
    async def body():
        async with scene(TEXT) as s:
            fields = [part(name.encode(), orjson.dumps(value)) for name, value in STEERING.items()]
            data = form(part(b"file", b"x", b"; filename=a"), *fields, part(b"model", b"m"))
            got = await s.ask(data, AUDIO, headers={"content-type": "multipart/form-data; boundary=b"})
            assert (got.status, s.upstream.requests[0].body) == (200, data)

    run(body())
