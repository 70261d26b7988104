"""Bodies of countless top-level fields, known before a dictionary of them is built, which would take seconds."""

from __future__ import annotations

import msgspec

LARGE = 256 * 1024
"""Bytes: what is smaller holds no crowd that matters."""
_MANY_QUOTES = 100_000


class _Usual(msgspec.Struct):
    """The fields in which a large body has its bulk."""

    messages: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    documents: msgspec.Raw = msgspec.Raw()
    texts: msgspec.Raw = msgspec.Raw()
    system: msgspec.Raw = msgspec.Raw()
    logit_bias: msgspec.Raw = msgspec.Raw()


_decode_usual = msgspec.json.Decoder(_Usual).decode


def crowded(raw: bytes) -> bool:
    """Whether a large body consists of small fields; what is wrong with it otherwise is said by who decodes it."""
    try:
        usual = _decode_usual(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    bulk = [memoryview(getattr(usual, name)) for name in usual.__struct_fields__]
    if len(raw) - sum(map(len, bulk)) <= LARGE:
        return False
    quotes = raw.count(b'"') - raw.count(b'\\"')
    return quotes - sum([bytes(part).count(b'"') for part in bulk]) > _MANY_QUOTES
