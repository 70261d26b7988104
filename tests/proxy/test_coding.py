"""Compressed request bodies: decoded once, within bounds, and only where they are whole."""

from __future__ import annotations

import gzip
import random
import threading
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import zstandard
from fakes import GOOD, PATH, RawClient, Upstream, gateway, run, yaml_for
from hypothesis import given
from hypothesis import strategies as st
from tailrace.proxy import coding
from tailrace.proxy.coding import Bound, decode
from tailrace.proxy.fault import Reject

LIMIT = 1 << 22
TIMES = 200


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def streamed_zstd(data: bytes) -> bytes:
    """A frame that does not say how long its content is."""
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return packer.compress(data) + packer.flush()


CODINGS: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
    "gzip": (b"gzip", gzip.compress),
    "x-gzip": (b" X-Gzip ", gzip.compress),
    "deflate": (b"deflate", zlib.compress),
    "raw deflate": (b"deflate", raw_deflate),
    "zstd": (b"zstd", zstandard.compress),
    "streamed zstd": (b"ZSTD", streamed_zstd),
}
each = pytest.mark.parametrize(("name", "pack"), CODINGS.values(), ids=CODINGS)


def status(data: bytes, name: bytes, limit: int = LIMIT) -> int:
    with pytest.raises(Reject) as refusal:
        decode(data, name, Bound(limit, TIMES))
    return refusal.value.fault.status


@each
@given(data=st.binary(max_size=3000) | st.integers(0, 100_000).map(bytes))
def test_what_was_packed_comes_out(name: bytes, pack: Callable[[bytes], bytes], data: bytes) -> None:
    assert decode(pack(data), name, Bound(LIMIT, TIMES)) == data


@each
def test_a_cut_body_is_damaged_wherever_it_is_cut(name: bytes, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(b'{"model":"m","messages":[]}' * 20)
    assert {status(packed[:end], name) for end in range(len(packed))} == {400}


@each
def test_what_follows_is_damage(name: bytes, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(b"{}")
    again = [] if "gzip" in name.decode().lower() else [packed]  # another member, not damage
    assert {status(packed + rest, name) for rest in (b"x", b"\0" * 5000, *again)} == {400}


@each
def test_a_bomb_is_refused_by_the_limit_and_by_its_ratio(name: bytes, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(bytes(LIMIT + 1))
    assert status(packed, name) == 413
    # Far below the limit, but no text packs as well as this.
    assert status(pack(bytes((1 << 20) + len(pack(bytes(1 << 20))) * TIMES)), name, 1 << 30) == 413
    assert len(decode(pack(bytes(1 << 20)), name, Bound(LIMIT, TIMES))) == 1 << 20


@given(st.lists(st.binary(max_size=300) | st.integers(0, 40_000).map(lambda size: random.Random(size).randbytes(size))))
def test_gzip_may_come_in_several_members(pieces: list[bytes]) -> None:
    packed = b"".join([gzip.compress(piece) for piece in (b"{", *pieces)])
    assert decode(packed, b"gzip", Bound(LIMIT, TIMES)) == b"{" + b"".join(pieces)
    assert {status(packed + rest, b"gzip") for rest in (b"x", packed[:15], b"\0" * 5000)} == {400}


def test_a_bomb_of_several_members_is_one() -> None:
    for count in (2, 50):
        part = gzip.compress(bytes((LIMIT + count) // count))
        assert status(part * count, b"gzip") == 413
        assert len(decode(part * (count - 1), b"gzip", Bound(LIMIT, 5000))) < LIMIT


def test_members_without_number_are_refused() -> None:
    """Each costs as much time as a good deal of text, be it empty."""
    empty = gzip.compress(b"")
    assert decode(empty * 1000, b"gzip", Bound(LIMIT, TIMES)) == b""
    assert status(empty * 2000, b"gzip") == 400


def test_the_refusal_says_which_bound_was_passed() -> None:
    with pytest.raises(Reject, match="more than 3 times as large"):
        decode(gzip.compress(bytes(1 << 21)), b"gzip", Bound(1 << 30, 3))
    with pytest.raises(Reject, match="larger than 4194304 bytes"):
        decode(gzip.compress(bytes(LIMIT + 1)), b"gzip", Bound(LIMIT, 1 << 20))


def test_a_large_body_is_decoded_beside_the_event_loop() -> None:
    """Else every stream of the process would stand still meanwhile."""
    threads: list[str] = []
    text = b'{"model":"m","messages":["' + random.Random(1).randbytes(200_000).hex().encode() + b'"]}'

    def noting(*arguments: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return decode(*arguments)

    async def body() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(coding, "decode", noting)
            async with (
                Upstream(GOOD) as worker,
                gateway(yaml_for(worker)) as process,
                RawClient(process.doors[0].shown) as client,
            ):
                for body in (text, b'{"model":"m"}'):
                    await client.request("POST", PATH, gzip.compress(body), {"content-encoding": "gzip"})
                    assert (await client.read_answer()).status == 200
                assert [request.body for request in worker.requests] == [text, b'{"model":"m"}']
        assert threads[0] != "MainThread"
        assert threads[1] == "MainThread"

    run(body())


@given(st.binary(max_size=200), st.sampled_from([b"gzip", b"deflate", b"zstd"]))
def test_no_bytes_break_the_decoding(data: bytes, name: bytes) -> None:
    try:
        decode(data, name, Bound(LIMIT, TIMES))
    except Reject as refusal:
        assert refusal.fault.status == 400


def test_a_frame_that_asks_for_a_huge_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compress(bytes(range(256)) * 40_000)
    assert status(packed, b"zstd", 1 << 30) == 400


@pytest.mark.parametrize("name", [b"identity", b"", b" Identity "])
def test_no_coding_at_all(name: bytes) -> None:
    assert decode(b"{}", name, Bound(1, TIMES)) == b"{}"


@pytest.mark.parametrize("name", [b"br", b"gzip, gzip", b"gzip,identity", b"compress", b"gzip;q=1", b"\xff"])
def test_unknown_codings_are_told_so(name: bytes) -> None:
    assert status(b"{}", name) == 415
