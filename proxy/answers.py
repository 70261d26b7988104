"""What a worker's answer means: a head for the client, or a fault."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson
from tailrace.proxy.errors import code_of
from tailrace.proxy.fault import HOP_KEY_REFUSED, Fault, Whose, bad_answer
from tailrace.proxy.head import Head, streaming_head
from tailrace.proxy.headers import listed
from tailrace.proxy.hop import REFUSED
from tailrace.proxy.retry_after import asked_to_wait
from tailrace.proxy.standing import UNSENT
from tailrace.proxy.trouble import CREDENTIALS, NO_ENGINE, NO_SERVER, meet, trouble_of
from tailrace.proxy.wire import JSON, TEXT, unframe

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.sse import Event

UPSTREAM_ID: Final = b"x-upstream-request-id"
_RESPONSE_ID: Final = re.compile(rb'"id":\s*"(resp_[A-Za-z0-9_-]{1,128})"')
# A list of texts or of lists of tokens; a list of tokens is one prompt.
_SEVERAL_PROMPTS: Final = re.compile(rb'\[\s*[\["]')
_WITH_REASONS: Final = ("chat", "completions")
_REASON: Final = b'"finish_reason"'
_GIVEN_UP: Final = re.compile(_REASON + rb'\s*:\s*"(?:abort|error)"')
# Of messages: null, where vLLM gave the request up. Quotes in text that a model wrote are escaped.
_NOT_STOPPED: Final = re.compile(rb'"stop_reason"\s*:\s*null')
# Longer answers, such as vectors, are not looked through.
_WALKED: Final = 64 * 1024
_walk: Final = msgspec.json.Decoder(msgspec.Raw).decode
_LONGEST_CODE: Final = 64
_KINDS: Final = {
    "bad_upstream_answer": "bad_answer",
    "plugin_unavailable": "internal",
    "internal_error": "internal",
    "server_shutting_down": "shutting_down",
    "upstream_auth_failed": "worker_refused",
    "upstream_incomplete": "false_end",
    "upstream_lost": "connection_lost",
    "upstream_timeout": "upstream_timeout",
    "worker_drained": "drained",
    "worker_draining": "unavailable",
    "worker_overloaded": "overloaded",
    "worker_starting": "unavailable",
    "worker_unavailable": "unavailable",
    "worker_unreachable": "connect_failed",
}
"""A sidecar's faults by the codes of their answers."""
_BUSY: Final = "engine is currently busy"
"""What vLLM says, with a 503 and without a Retry-After, where its queue is full."""
_PASSED_WITH_ERRORS: Final = (b"retry-after", b"x-should-retry")


def passes_at_once(call: Call) -> bool:
    """Whether an answer that is passed through need not be held back until it is whole."""
    return call.head.method != "HEAD" and not call.chain.taps


def head_of(attempt: Attempt) -> Head:
    """The client's head for a committed attempt; the worker's own request id, if any, is kept under another name."""
    parsed = attempt.head
    given = parsed.request_id
    # A sidecar may have put its engine's id there already.
    if given and given != attempt.call.id.encode() and listed(parsed.headers, UPSTREAM_ID) is None:
        parsed.headers.append((UPSTREAM_ID, given))
    head = Head(parsed.status, parsed.headers)
    if attempt.streaming:
        streaming_head(head)
    return head


def note_birth(call: Call, attempt: Attempt) -> None:
    """Remember who made a response, so that calls that refer to it find the way."""
    held = attempt.held
    # Reads and chunks end anywhere, also inside an id.
    begun = held[0] if len(held) == 1 else b"".join(held)
    found = _RESPONSE_ID.search(unframe(begun) if attempt.framed else begun)
    if found is not None:
        call.chain.births.remember(found.group(1).decode(), attempt.worker, call.model)


def _is_cut(body: bytes) -> bool:
    """Whether JSON ends too early; any other oddity is between its engine and its client."""
    try:
        _walk(body)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    except (UnicodeDecodeError, RecursionError):
        return False
    return False


def wrong_head(attempt: Attempt) -> str | None:
    """Why the head of a unary answer below 400 is none of this route, or None where it can be one."""
    route, head = attempt.call.route, attempt.head
    if head.status >= 300 and route.entry is None:
        return f"an unexpected status {head.status}"
    if route.expects and head.kind != JSON and not (head.kind == TEXT and route.text_answers):
        return "it is not JSON"
    return None


def no_answer(attempt: Attempt) -> str | None:
    """Why a whole unary answer below 400 is none of this route, or None where it is one."""
    route, head = attempt.call.route, attempt.head
    why = wrong_head(attempt)
    if why is not None or not route.expects:
        return why
    if not attempt.held_bytes:
        return "an empty body"
    if head.kind != JSON or head.coded:
        return None
    held = attempt.held
    body = held[0] if len(held) == 1 else b"".join(held)
    if body.find(route.expects) < 0:
        return "it lacks what this API answers with"
    if len(body) <= _WALKED and _is_cut(body):
        return "its JSON is cut"
    if (route.name in _WITH_REASONS and _gives_up(body)) or (route.anthropic and _NOT_STOPPED.search(body)):
        return "the engine aborted the request"
    return None


def _gives_up(body: bytes) -> bool:
    """Whether a choice of an answer ends because its engine gave it up: the same reasons count as in a stream.

    The name in quotes cannot stand in text that a model wrote: there, quotes are escaped.
    """
    at = body.find(_REASON)
    while at >= 0:
        if _GIVEN_UP.match(body, at) is not None:
            return True
        at = body.find(_REASON, at + len(_REASON))
    return False


def choices_asked(call: Call) -> int:
    """How many choices a stream has to finish before it is whole."""
    body = call.body
    if body is None or call.route.name not in _WITH_REASONS:
        return 1
    count = body.get("n")
    asked = count if isinstance(count, int) and count > 0 else 1
    prompt = body.written("prompt") if call.route.name == "completions" else None
    if prompt is not None and _SEVERAL_PROMPTS.match(prompt):
        asked *= _prompts_in(bytes(prompt))
    return asked


def _prompts_in(prompts: bytes) -> int:
    """How many there are in the JSON of a list of texts or of lists of tokens; no engine takes a list of both.

    By searching for bytes: to decode millions of them takes a second, and they may be that many.
    """
    if prompts.find(b'"') < 0:
        return prompts.count(b"[") - 1
    if prompts.find(b"\\") >= 0:
        prompts = prompts.replace(b"\\\\", b"").replace(b'\\"', b"")
    return prompts.count(b'"') // 2


def choices_finished(event: Event) -> int:
    """How many choices end in an event that is known to end one."""
    body: Any = event.json()
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list):
        return 1
    return sum(1 for choice in choices if isinstance(choice, dict) and choice.get("finish_reason"))


def error_of(attempt: Attempt, body: bytes, *, cut: bool = False) -> Fault:
    """The fault behind an error status: JSON errors reach the client as they are, anything else gets our own shape."""
    status = attempt.status
    whose = Whose.CLIENT if status < 500 and status not in (401, 403, 408, 429) else Whose.ENGINE
    passed = tuple(
        pair
        for pair in attempt.head.headers
        if pair[0] in _PASSED_WITH_ERRORS
        or pair[0].startswith((b"retry-after", b"x-ratelimit-", b"anthropic-ratelimit-"))
    )
    kind = attempt.head.kind
    message, usable = _message(body) if kind == JSON and not cut else (None, False)
    if status == 401 or status == 403:
        # The worker refused the gateway, not the client, whose credentials it never saw.
        stranger = REFUSED.encode() in body
        if not stranger:
            meet(attempt.worker, CREDENTIALS)
        return Fault(
            kind="worker_refused",
            whose=Whose.GATEWAY,
            status=502,
            code="upstream_auth_failed",
            message=HOP_KEY_REFUSED if stranger else "The worker refused the gateway's credentials.",
        )
    fault = Fault(
        kind="http_error",
        whose=whose,
        status=status,
        code=_code(status),
        message=message or f"The worker answered with status {status}.",
        retry_after=asked_to_wait(passed),
        retryable=status in (408, 429, 500, 502, 503, 504),
        sent=UNSENT not in attempt.head.load,
        headers=passed,
        body=body if usable else None,
    )
    if status == 404:
        return _not_found(attempt, fault)
    return fault.but(kind=_kind(attempt, status, code_of(fault), fault.message) or "http_error") if usable else fault


def _not_found(attempt: Attempt, fault: Fault) -> Fault:
    """A worker's 404: of a model, a stored response or a path; or the operator's, who named what is not there."""
    entry = attempt.entry
    if entry.unlisted:
        message = f"No worker lists '{entry.served}', which is what the model '{entry.name}' stands for here."
        return fault.but(whose=Whose.GATEWAY, message=message, body=None)
    if fault.body is not None:
        return fault
    if attempt.call.route.expects and attempt.head.kind != JSON:
        # Whatever listens there answers at once, and calls that it fails would come to it for that.
        if trouble_of(attempt.worker) != NO_SERVER:
            meet(attempt.worker, NO_ENGINE)
        why = "status 404, and no inference server seems to listen there"
        return bad_answer(why).but(headers=fault.headers, retry_after=fault.retry_after)
    return fault.but(code="not_found")


def _message(body: bytes) -> tuple[str | None, bool]:
    """The text of a JSON error, and whether the body is in the shape that clients of these APIs read."""
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None, False
    if not isinstance(decoded, dict):
        return None, False
    error = decoded.get("error")
    if isinstance(error, dict):
        message = error.get("message")
        return (message if isinstance(message, str) else None), True
    if isinstance(error, str):
        return error, False
    message = decoded.get("message") or decoded.get("detail")
    return (message if isinstance(message, str) else None), False


def error_event(attempt: Attempt, event: Event, *, shown: bool = False) -> Fault:
    """The fault that an error event in a stream stands for, with the status it names; `shown` as it is."""
    body: Any = event.json()
    error: Any = body.get("error") if isinstance(body, dict) else None
    if isinstance(body, dict) and error is None and isinstance(body.get("response"), dict):
        error = body["response"].get("error")
    if error is None and isinstance(body, dict) and (body.get("object") == "error" or body.get("type") == "error"):
        error = body
    if isinstance(error, str):
        error = {"message": error}
    if not isinstance(error, dict):
        return bad_answer("its stream began with an error")
    code = error.get("code")
    status = code if isinstance(code, int) and 400 <= code <= 599 else 502
    message = error.get("message")
    return Fault(
        kind=_kind(attempt, status, code, message) or "error_event",
        whose=Whose.CLIENT if status < 500 and status not in (408, 429) else Whose.ENGINE,
        status=status,
        code=code if isinstance(code, str) and 0 < len(code) <= _LONGEST_CODE else _code(status),
        body=event.data if shown else None,
        message=message if isinstance(message, str) else "The worker reported an error.",
        retryable=status in (408, 429, 500, 502, 503, 504),
    )


def _kind(attempt: Attempt, status: int, code: object, message: object) -> str | None:
    """The kind of an error that is known here: a sidecar's own by their codes, that an engine is full by its words."""
    if status == 503 and isinstance(message, str) and _BUSY in message:
        return "overloaded"
    return _KINDS.get(code) if attempt.head.load and isinstance(code, str) else None


def _code(status: int) -> str:
    return {
        400: "invalid_request_error",
        404: "model_not_found",
        408: "upstream_timeout",
        413: "request_too_large",
        422: "invalid_request_error",
        429: "rate_limit_exceeded",
        503: "worker_overloaded",
        504: "upstream_timeout",
    }.get(status, "upstream_error" if status >= 500 else "invalid_request_error")
