"""From a parsed head to a Call, and from a whole body to what the core needs of it: model and streaming."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

import httptools

from tailrace.proxy import coding
from tailrace.proxy.body import JsonBody, invalid
from tailrace.proxy.call import Call
from tailrace.proxy.fault import Reject, Whose, too_large
from tailrace.proxy.head import HeaderList, RequestHead
from tailrace.proxy.multipart import Form
from tailrace.proxy.routes import Shape

if TYPE_CHECKING:
    from tailrace.proxy.server import ClientConnection

_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_\-.~/:@!$&'()*+,;=]*\Z")
_METHODS = frozenset({"GET", "POST", "OPTIONS", "HEAD", "PUT", "DELETE", "PATCH"})


def open_call(
    client: ClientConnection, parser: httptools.HttpRequestParser, url: bytes, headers: HeaderList
) -> Call:
    """A call for a head that was just read; raises Reject where the head itself is wrong."""
    service = client.service
    version = parser.get_http_version()
    if version not in ("1.1", "1.0"):
        raise Reject(505, "version_unsupported", "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
    method = parser.get_method().decode()
    path, query = split_target(url)
    head = RequestHead(method, path, query, headers, version)
    chain = service.chain
    route = chain.routes.find(method, path)
    peer = client.peer
    if peer.trusted:
        peer = client.door.client_of(peer, head)
    call = Call(service.next_id(), chain, client, head, route, peer)
    hosts = expects = length = 0
    for name, value in headers:
        low = name.lower()
        if low == b"host":
            hosts += 1
        elif low == b"content-length":
            length = int(value) if value.isdigit() and len(value) < 20 else -1
        elif low == b"expect":
            expects = 1 if value.lower() == b"100-continue" else 2
    call.keep_alive = parser.should_keep_alive() and version == "1.1"
    if hosts > 1 or (not hosts and version == "1.1"):
        raise invalid("The request must have exactly one Host header.")
    if length < 0:
        raise invalid("The Content-Length is not one plain decimal number.")
    if length > chain.limits.body:
        raise too_large(chain.limits.body)
    if expects == 2:
        raise Reject(417, "expectation_failed", "The only expectation met here is 100-continue.")
    call.expects_continue = expects == 1
    return call


def split_target(url: bytes) -> tuple[str, bytes]:
    """The normalised path that routing and forwarding both use, and the query; raises Reject(400).

    Only an origin-form target is accepted. A path with dot segments, encoded separators, backslashes or doubled
    slashes means different things to different programs, so it is refused rather than repaired.
    """
    target, _, query = url.partition(b"?")
    if target == b"*":
        return "*", b""
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
        raise invalid("The request path must be plain ASCII.") from None
    if not _PLAIN_PATH.match(path) or "//" in path or "/../" in path + "/" or "/./" in path + "/":
        raise invalid("The request path is not in its normal form.")
    return path, query


def read_body(call: Call) -> None:
    """Find model and streaming flag in a whole body; raises Reject(400, 413 or 415)."""
    route, head, limits = call.route, call.head, call.chain.limits
    encoding = head.get(b"content-encoding")
    if encoding is not None:
        call.raw = coding.decode(call.raw, encoding, limits.body)
    if route.shape is Shape.OPAQUE:
        return
    kind = head.get(b"content-type") or b""
    if route.shape is Shape.MULTIPART:
        call.form = Form.read(call.raw, kind)
        model: str | None = call.form.text(b"model")
        call.stream = call.form.text(b"stream") in ("true", "True", "1")
    else:
        check_json_type(kind)
        body = call.body = JsonBody(call.raw, limits.json_depth)
        model = body.text("model")
        call.stream = route.dialect is not None and body.flag("stream")
    if model is None:
        model = call.chain.default_model
        if model is None:
            raise invalid("The request names no model.", "model", "missing_required_parameter")
    call.model = model
    resolve(call)


def check_json_type(kind: bytes) -> None:
    """Refuse a body that says it is something else than JSON in UTF-8."""
    media, _, parameters = kind.partition(b";")
    media = media.strip().lower()
    if media not in (b"application/json", b"") and not media.endswith(b"+json"):
        raise Reject(415, "unsupported_media_type", "The request body must be application/json.", kind="bad_request")
    if b"charset" in parameters.lower() and b"utf-8" not in parameters.lower() and b"utf8" not in parameters.lower():
        raise Reject(415, "unsupported_media_type", "The request body must be UTF-8.", kind="bad_request")


def resolve(call: Call) -> None:
    """Look up the entry of the call's model; raises Reject(404)."""
    entry = call.chain.models.resolve(call.model)
    if entry is None:
        raise Reject(
            404,
            "model_not_found",
            f"The model '{call.model[:128]}' does not exist or is not served here.",
            param="model",
            kind="unknown_model",
            whose=Whose.CLIENT,
        )
    call.entry = entry


