"""A stream's usual chunk is known again, and nothing else is."""

from __future__ import annotations

import pytest
from tailrace.proxy.pattern import Metered, Pattern
from tailrace.proxy.wire import frame

MARK = b'"content":"'


def event(text: bytes, reason: bytes = b"null") -> bytes:
    choice = b'{"index":0,"delta":{"content":"%b"},"finish_reason":%b}' % (text, reason)
    return b'data: {"id":"chatcmpl-1","choices":[%b]}\n\n' % choice


def learnt(text: bytes = b" river") -> Pattern:
    pattern = Pattern.of(frame(event(text)), MARK)
    assert pattern is not None
    return pattern


@pytest.mark.parametrize("text", [b"", b" bank", b"\\n", "ü".encode(), b"data: [DONE]", b"x" * 60])
def test_other_text_fits(text):
    assert learnt().fits(frame(event(text)))
    assert learnt(b"").fits(frame(event(text)))


@pytest.mark.parametrize(
    "other",
    [
        event(b"x", b'"stop"'),
        event(b'a\\"b'),
        event(b'"},"finish_reason":"stop","x":{"content":"'),
        event(b"x") + event(b"y", b'"stop"'),
        event(b"x") + b"data: [DONE]\n\n",
        b"data: [DONE]\n\n",
        b'data: {"error":{"message":"x"}}\n\n',
        event(b"x")[:-1],
        b": heartbeat\n\n" + event(b"x"),
    ],
)
def test_what_differs_in_more_does_not_fit(other):
    assert not learnt().fits(frame(other))


def test_a_shorter_size_line_does_not_fit():
    """Its text would begin elsewhere: it is looked at the long way."""
    assert not learnt(b"x" * 300).fits(frame(event(b"x")))


@pytest.mark.parametrize(
    "chunk",
    [
        frame(event(b"x") + event(b"y")),
        frame(b'data: {"choices":[]}\n\n'),
        frame(event(b"x")[:-2]),
        frame(event(b"x") + b"data: x"),
        frame(b'data: {"choices":[{"delta":{"content":"x\n\n'),
    ],
)
def test_nothing_is_learnt_from_what_is_not_one_event_with_text(chunk):
    assert Pattern.of(chunk, MARK) is None


def test_lead_and_trail_may_not_overlap():
    pattern = Pattern.of(b"5\r\n" + b'"content":"aaa"\n\n\r\n', MARK)
    assert pattern is not None
    assert not pattern.fits(b"5\r\n" + b'"content":"\n\n\r\n')


def test_nothing_is_learnt_from_text_without_an_end():
    usage = b'"usage":{"prompt_tokens":1,"total_tokens":2,"completion_tokens":1}'
    whole = b'data: {"choices":[{"delta":{"content":"x"}}],%b}\n\n' % usage
    assert Metered.of(frame(whole), MARK, keeps=False) is not None
    for cut in (b'data: {%b,"choices":[{"delta":{"content":"x\n\n' % usage, b'data: {%b,"content":"\n\n' % usage):
        assert Metered.of(frame(cut), MARK, keeps=False) is None
