"""Finds the credential in a request's head; what is found is only ever digested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tailrace.plugins.auth.verdict import Verdict

if TYPE_CHECKING:
    from tailrace.proxy.head import RequestHead

_BEARER: Final = b"bearer "
_BLANKS: Final = b" \t"
_AUTHORIZATION: Final = b"authorization"
WRONG: Final = b""
"""Stands for a header that holds no key at all, such as one of another scheme."""


class Ambiguous(Exception):  # noqa: N818 - a fact about a request
    """There are several credentials."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.verdict = Verdict("ambiguous", message, 400, "conflicting_credentials")


def credential_of(head: RequestHead, names: Sequence[bytes]) -> bytes | None:
    """What a caller shows in the headers of these names, None for nothing; raises Ambiguous."""
    folded = head.folded
    if len(folded) != len(head.headers):
        _refuse_repeated(head, names)
    found: bytes | None = None
    for name in names:
        value = folded.get(name)
        if value is None:
            continue
        value = _bearer(value) if name == _AUTHORIZATION else value.strip(_BLANKS)
        if found is not None and found != value:
            raise Ambiguous("The request has several credentials, and they differ.")
        found = value
    return found


def _bearer(value: bytes) -> bytes:
    value = value.strip(_BLANKS)
    return value[7:].strip(_BLANKS) if value[:7].lower() == _BEARER else WRONG


def _refuse_repeated(head: RequestHead, names: Sequence[bytes]) -> None:
    for name in names:
        if len(head.all(name)) > 1:
            raise Ambiguous(f"The request has several '{name.decode()}' headers.")
