"""How an API key looks and what is kept of it: its SHA-256, from which nobody gets the key back.

`tr_<id>_<secret><check>`: the id is public and names the key in lists and records, the secret has 190 bits of
randomness, and the check digits let a scanner of repositories tell a key from text that only looks like one.
"""

from __future__ import annotations

import hashlib
import secrets
import zlib
from typing import Final

PREFIX: Final = "tr_"
_ID_LETTERS: Final = "abcdefghijkmnpqrstuvwxyz23456789"
_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH: Final = 10
_SECRET_LENGTH: Final = 32
_CHECK_LENGTH: Final = 6


def new_id() -> str:
    """A fresh public id: 50 bits, in letters that nobody confuses."""
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))


def new_key(key_id: str) -> str:
    """A fresh key under an id."""
    secret = "".join(secrets.choice(_LETTERS) for _ in range(_SECRET_LENGTH))
    return f"{PREFIX}{key_id}_{secret}{_check(key_id, secret)}"


def is_intact(key: str) -> bool:
    """Whether text is a key of this form whose check digits are right."""
    key_id, _, rest = key.removeprefix(PREFIX).rpartition("_")
    secret, check = rest[:_SECRET_LENGTH], rest[_SECRET_LENGTH:]
    return key.startswith(PREFIX) and bool(key_id) and check == _check(key_id, secret)


def digest_of(key: bytes) -> bytes:
    """What is stored of a key and looked up for it."""
    return hashlib.sha256(key).digest()


def _check(key_id: str, secret: str) -> str:
    number = zlib.crc32(f"{key_id}_{secret}".encode())
    digits = ""
    for _ in range(_CHECK_LENGTH):
        number, digit = divmod(number, len(_LETTERS))
        digits = _LETTERS[digit] + digits
    return digits
