"""From a parsed head to a Call, and from a whole body to what the core needs of it: model and streaming."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from tailrace.proxy import headers as rules
from tailrace.proxy.body import JsonBody, invalid
from tailrace.proxy.fault import Reject, Whose, too_large
from tailrace.proxy.head import HeaderList, RequestHead
from tailrace.proxy.headers import is_secret_parameter, request_rule, request_rules, without_named
from tailrace.proxy.multipart import Form
from tailrace.proxy.routes import Shape

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.limits import Limits

_PLAIN_PATH: Final = re.compile(r"/[A-Za-z0-9_\-.~/:@!$&'()*+,;=]*\Z")
# The same with what has to be encoded in a path.
_ENCODED_PATH: Final = re.compile(rb"/[A-Za-z0-9_\-.~/:@!$&'()*+,;=%]*\Z")
_SEPARATORS: Final = re.compile(r"[/\\]")
_LOOP: Final = "The request came through gateways too many times: the workers of one lead back to it."


def read_head(method: str, url: bytes, headers: HeaderList, version: str, keep: frozenset[bytes]) -> RequestHead:
    """What a request's head means for the gateway; raises Reject where it is wrong.

    `keep` names the credentials that are passed on by configuration.
    """
    if method == "CONNECT":
        # Whatever its target is, the parser takes what follows for another protocol.
        allow = (b"allow", b"")
        raise Reject(405, "method_not_allowed", "CONNECT is not allowed here.", headers=(allow,), kind="unmatched")
    path, query, target = split_target(url)
    if query:
        target = target[: -len(query)] + without_credentials(query, keep)
    head = RequestHead(method, path, query, target, headers, version)
    hosts = codings = passed = 0
    lines = []
    connection = None
    for name, value in headers:
        rule = request_rules.get(name)
        if rule is None:
            rule = request_rule(name)
        if rule == rules.PASS:
            lines.append(b"%b: %b\r\n" % (name, value))
        elif rule == rules.HOST:
            hosts += 1
        elif rule == rules.CREDENTIAL:
            if name.lower() in keep:
                lines.append(b"%b: %b\r\n" % (name, value))
        elif rule == rules.CONNECTION:
            connection = value if connection is None else connection + b"," + value
        elif rule == rules.VIA:
            passed += value.count(rules.OWN_NAME)
        elif rule == rules.EXPECT:
            if value.lower() != b"100-continue":
                raise Reject(417, "expectation_failed", "The only expectation met here is 100-continue.")
            head.expects_continue = version == "1.1"
        elif rule == rules.CODING:
            codings += 1
            if value.lower() != b"chunked" or codings > 1 or version == "1.0":
                raise invalid("The only transfer coding taken here is chunked, once and in HTTP/1.1.")
    if hosts != 1 and (hosts > 1 or version == "1.1"):
        raise invalid("The request must have exactly one Host header.")
    if passed:
        if passed >= rules.MOST_HOPS:
            raise Reject(508, "loop_detected", _LOOP, whose=Whose.GATEWAY)
        lines.append(rules.via(passed))
    joined = b"".join(lines)
    head.forwarded = joined if connection is None else without_named(joined, connection)
    folded = head.folded
    if len(folded) != len(headers) and any(len(head.all(name)) > 1 for name in _ONCE):
        raise invalid("The request describes its body twice.")
    head.packed = b"content-encoding" in folded
    head.plain_json = folded.get(b"content-type") in _PLAIN_JSON and not head.packed
    return head


_ONCE: Final = (b"content-type", b"content-encoding")
_OFFER: Final = frozenset({b"upgrade", b"connection", b"http2-settings"})
_OF_OFFER: Final = _OFFER | {b"keep-alive", b"close"}


def without_offer(head: RequestHead, url: bytes, length: bytes, *, close: bool) -> bytes:
    """A head as bytes, less its offer to switch protocols; `length` is its Content-Length, empty where it has none.

    Java's client offers HTTP/2 with every first request, and HTTP lets a server take no notice.
    """
    lines = [b"%b %b HTTP/%b\r\n" % (head.method.encode(), url, head.version.encode())]
    lines += [b"%b: %b\r\n" % pair for pair in head.headers if pair[0].lower() not in _OFFER]
    if length:
        lines.append(b"content-length: %b\r\n" % length)
    # What else it names is about this hop whether the offer is taken up or not.
    named = [token.strip() for value in head.all(b"connection") for token in value.split(b",")]
    named = [token for token in named if token and token.lower() not in _OF_OFFER]
    if close:
        named.append(b"close")
    if named:
        lines.append(b"connection: %b\r\n" % b", ".join(named))
    return b"".join(lines) + b"\r\n"


def head_too_large(limits: Limits) -> Reject:
    """A head with too many headers or bytes."""
    what = f"larger than {limits.head} bytes (`limits.head`) or more than {limits.headers} (`limits.headers`)"
    return Reject(431, "headers_too_large", f"The request's headers are {what}.")


def trailers_too_large(limits: Limits) -> Reject:
    """What comes with a body has outgrown it."""
    what = f"larger than {limits.head} bytes (`limits.head`)"
    return Reject(431, "headers_too_large", f"The request's trailers or chunk extensions are {what}.")


def target_too_long(limits: Limits) -> Reject:
    """A path with its query above the limit."""
    return Reject(414, "target_too_long", f"The request target is longer than {limits.target} bytes (`limits.target`).")


def check_length(value: bytes, limit: int) -> None:
    """Refuse a Content-Length that is not one plain decimal number, or is above the limit."""
    if not value.isdigit() or len(value) > 15 or (value.startswith(b"0") and len(value) > 1):
        raise invalid("The Content-Length is not one plain decimal number.")
    if int(value) > limit:
        raise too_large(limit)


Target = tuple[str, bytes, bytes]


def split_target(url: bytes) -> Target:
    """The normalised path that routing and forwarding both use, the query, and both joined; raises Reject(400).

    Only an origin-form target is accepted. A path with dot segments, encoded separators, backslashes or doubled
    slashes means different things to different programs, so it is refused rather than repaired.
    """
    written, mark, query = url.partition(b"?")
    target = written
    if target == b"*":
        return "*", b"", b"*"
    if not target.startswith(b"/") or b"#" in url:
        raise invalid("The request target must be a path.")
    if b"%" in target:
        decoded = unquote_to_bytes(target)
        if b"%" in decoded:
            raise invalid("The request path is encoded twice.")
        target = decoded
    try:
        path = target.decode("ascii")
    except UnicodeDecodeError:
        if not url.isascii():
            raise invalid("The request path must be ASCII.") from None
        return _named_model(target), query, url
    if not _PLAIN_PATH.match(path) or "//" in path or "/../" in path + "/" or "/./" in path + "/":
        if target.startswith(_MODEL) and _ENCODED_PATH.match(written):
            return _named_model(target), query, url
        raise invalid("The request path is not in its normal form.")
    return path, query, target + mark + query


_MODEL: Final = b"/v1/models/"


def _named_model(decoded: bytes) -> str:
    """A path whose model's name has other letters than paths have: such a one is answered here and goes to no worker.

    What is in a name besides letters, such as a blank, must have been encoded, and stands for itself.
    """
    if not decoded.startswith(_MODEL):
        raise invalid("Only the name of a model may have other letters in a path than ASCII, in UTF-8.")
    try:
        path = decoded.decode()
    except UnicodeDecodeError:
        raise invalid("The name of a model must be UTF-8 in a path.") from None
    name = path[len(_MODEL) :]
    if not name.isprintable() or {"", ".", ".."} & {*_SEPARATORS.split(name)}:
        raise invalid("The request path is not in its normal form.")
    return path


def is_plain(path: str) -> bool:
    """Whether a path may go to a worker: a model's name may have letters that mean something else there."""
    return path == "*" or _PLAIN_PATH.match(path) is not None


def without_credentials(query: bytes, keep: frozenset[bytes]) -> bytes:
    """A query less the parameters that carry a credential, but for those named in `keep`."""
    parameters = query.split(b"&")
    kept = [each for each in parameters if not is_secret_parameter(name := _name_of(each)) or name in keep]
    return query if len(kept) == len(parameters) else b"&".join(kept)


def _name_of(parameter: bytes) -> bytes:
    return unquote_to_bytes(parameter.partition(b"=")[0].replace(b"+", b" ")).strip().lower()


def read_body(call: Call) -> None:
    """Find model and streaming flag in a whole body; raises Reject(400, 413 or 415)."""
    route, head = call.route, call.head
    if head.plain_json and route.shape is Shape.JSON:
        read_json(call)
        return
    folded = head.folded
    if route.shape is Shape.OPAQUE:
        if route.pinned:
            pin(call, head.path.split("/")[3], "response_id")
        else:
            call.entry = route.entry
        return
    kind = folded.get(b"content-type", b"")
    if route.shape is Shape.MULTIPART:
        call.form = Form.read(call.raw, kind)
        model = call.form.text(b"model")
        call.stream = call.form.text(b"stream") in ("true", "True", "1")
        choose_model(call, model)
    else:
        check_json_type(kind)
        read_json(call)


def read_json(call: Call) -> None:
    """Find model and streaming flag in a JSON body."""
    route, chain = call.route, call.chain
    body = call.body = JsonBody(call.raw, chain.limits.json_depth)
    if route.dialect is not None:
        call.stream = body.flag("stream")
    if route.births and body.get("previous_response_id") is not None:
        previous = body.text("previous_response_id")
        if previous is not None:
            pin(call, previous, "previous_response_id")
    spelled = None if body.skimmed else body.spelled("model")
    if spelled is not None:
        entry = chain.models.written.get(spelled)
        if entry is not None:
            call.entry = entry
            call.model = entry.name
            return
    choose_model(call, body.text("model"))


def choose_model(call: Call, model: str | None) -> None:
    """Look up the entry of a model name, or of the default where none was given; raises Reject(400 or 404)."""
    if model is None:
        model = call.chain.default_model
        if model is None:
            raise invalid("The request names no model.", "model", "missing_required_parameter")
    call.model = model
    entry = call.chain.models.resolve(model)
    if entry is None:
        raise Reject(
            404,
            "model_not_found",
            f"The model '{model[:128]}' does not exist or is not served here.",
            param="model",
            kind="unknown_model",
        )
    call.entry = entry


_PLAIN_JSON: Final = frozenset({b"application/json", b"application/json; charset=utf-8", None})


def check_json_type(kind: bytes) -> None:
    """Refuse a body that says it is something else than JSON in UTF-8."""
    media, _, parameters = kind.lower().partition(b";")
    media = media.strip()
    if media not in (b"application/json", b"") and not media.endswith(b"+json"):
        raise Reject(415, "unsupported_media_type", "The request body must be application/json.", kind="bad_request")
    if b"charset" in parameters and b"utf-8" not in parameters and b"utf8" not in parameters:
        raise Reject(415, "unsupported_media_type", "The request body must be UTF-8.", kind="bad_request")


def pin(call: Call, response_id: str, param: str) -> None:
    """Send a call that refers to a stored response in `param` to the worker that holds it; raises Reject(404)."""
    chain = call.chain
    worker = chain.births.find(response_id, chain.pins)
    if worker is None:
        raise Reject(
            404,
            "response_not_found",
            f"The response '{response_id[:64]}' is not known: its worker is gone, or it was made too long ago.",
            param=param,
            kind="bad_request",
        )
    call.pinned = worker
    served = (entry for entry in chain.models.entries.values() if worker in entry.pool.workers)
    call.entry = entry = chain.births.model(response_id, served) or chain.pins[worker]
    call.model = entry.name
