"""A small reversible tokenizer.

Token ids, in order: five special tokens; the 256 bytes; whole pieces of text (words with and without a leading space
and capital, some of several bytes a character, JSON's punctuation); all pairs of two small letters. Text is cut into
words and single characters; a word that is no piece becomes letter pairs, and what is left becomes bytes, so any text
can be said and the bytes of the ids, joined, are the text again. As with any such vocabulary the ids of a text are
unique, but several id lists may spell the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from string import ascii_lowercase

import orjson
from tailrace.worker.sim.words import BROKEN, MULTIBYTE, WORDS

PAD, BOS, EOS, IM_START, IM_END = range(5)
_SPECIAL = (b"<|pad|>", b"<|bos|>", b"<|eos|>", b"<|im_start|>", b"<|im_end|>")
BYTE = len(_SPECIAL)
"""Id of the byte 0; byte `b` is `BYTE + b`."""

_REPLACED = "\ufffd"
_TAIL = 16
"""Of so many tokens at the end some are whole characters, but in prompts that are no text at all."""

_JSON = ['{"', '": ', '": "', '", "', ', "', '"}', "\n\n", "<tool_call>", "</tool_call>", "arguments", "name"]


def _pieces() -> list[bytes]:
    """Every piece once, in the order of its id."""
    forms = [form for word in dict.fromkeys(WORDS) for form in (f" {word}", word, f" {word.title()}", word.title())]
    forms += [form for word in MULTIBYTE for form in (f" {word}", word)]
    pairs = [a + b for a in ascii_lowercase for b in ascii_lowercase]
    known = dict.fromkeys(piece.encode() for piece in (*_JSON, *forms, *pairs) if len(piece.encode()) > 1)
    return [*known, BROKEN]


TOKEN_BYTES: tuple[bytes, ...] = (*_SPECIAL, *(bytes([b]) for b in range(256)), *_pieces())
VOCAB_SIZE = len(TOKEN_BYTES)
ID_OF: dict[bytes, int] = {piece: BYTE + i for i, piece in enumerate(TOKEN_BYTES[BYTE:])}


def _escaped(token: int) -> bytes | None:
    if token < BYTE:
        return b""
    try:
        return orjson.dumps(TOKEN_BYTES[token].decode())[1:-1]
    except UnicodeDecodeError:
        return None


TOKEN_JSON: tuple[bytes | None, ...] = tuple(_escaped(i) for i in range(VOCAB_SIZE))
"""A token's text escaped for a JSON string; None where it is no whole number of characters."""

_WORD = re.compile(r' ?[^\W\d_]+|\{"|": ?"?|", "|, "|"\}|</?tool_call>|\n\n|.', re.DOTALL)


def encode(text: str) -> list[int]:
    """The ids of a text; special tokens spelt out in it stay plain text."""
    ids: list[int] = []
    for word in _WORD.findall(text):
        piece = word.encode("utf-8", "replace")
        token = ID_OF.get(piece)
        if token is not None:
            ids.append(token)
        else:
            _spell(piece, ids)
    return ids


def _spell(piece: bytes, ids: list[int]) -> None:
    at = 0
    while at < len(piece):
        pair = ID_OF.get(piece[at : at + 2])
        if pair is None:
            ids.append(BYTE + piece[at])
            at += 1
        else:
            ids.append(pair)
            at += 2


def decode_step(pending: bytes, token: int) -> tuple[str, bytes]:
    """The text that one more token lets out, and the bytes that wait for the next.

    As in vLLM nothing comes out while the text would end in a broken character: neither the first bytes of one, nor
    bytes that can be none, which come out as U+FFFD with the next whole character.
    """
    data = pending + (TOKEN_BYTES[token] if token >= BYTE else b"")
    text = data.decode("utf-8", "replace")
    return ("", data) if text.endswith(_REPLACED) else (text, b"")


def decode(ids: Sequence[int], pending: bytes = b"") -> str:
    """The text that ids let out after `pending`, token by token: special tokens and a broken end are left out."""
    shown = [TOKEN_BYTES[i] if i >= BYTE else b"" for i in ids]
    while (text := (pending + b"".join(shown)).decode("utf-8", "replace")).endswith(_REPLACED) and shown:
        shown.pop()
    return text if shown else ""


def spell_out(ids: Iterable[int]) -> str:
    """The text of ids as `/detokenize` gives it: special tokens by name, broken characters replaced."""
    return b"".join(TOKEN_BYTES[i] for i in ids).decode("utf-8", "replace")


def unshown(prompt: Sequence[int]) -> bytes:
    """What comes out of a prompt with the first whole text of its answer: all of it if it ends in a broken character.

    So it is in vLLM, whose detokenizer starts from the prompt and takes for shown only what ended well.
    """
    end = b"".join(TOKEN_BYTES[i] for i in prompt[-_TAIL:] if i >= BYTE)
    if not end.decode("utf-8", "replace").endswith(_REPLACED):
        return b""
    return b"".join(TOKEN_BYTES[i] for i in prompt if i >= BYTE)


def _byte_letters() -> dict[int, str]:
    """The printable letter that byte-level vocabularies write for each byte: itself, or one from U+0100 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (b for b in range(256) if b not in printable)
    return {b: chr(b) for b in printable} | {b: chr(256 + n) for n, b in enumerate(others)}


_LETTER = _byte_letters()


def token_str(token: int) -> str:
    """A token as vocabularies print it, a leading space as `Ġ`."""
    if token < BYTE:
        return TOKEN_BYTES[token].decode()
    return "".join(_LETTER[b] for b in TOKEN_BYTES[token])
