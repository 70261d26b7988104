"""The tokenizer: text and ids are the same thing said twice."""

import pytest
from fakes import run
from hypothesis import given
from hypothesis import strategies as st
from sim_client import fetch, running
from tailrace.worker.sim.tokenizer import (
    BYTE,
    EOS,
    ID_OF,
    TOKEN_BYTES,
    TOKEN_JSON,
    VOCAB_SIZE,
    decode,
    decode_step,
    encode,
    spell_out,
    token_str,
    unfinished,
)
from tailrace.worker.sim.words import BROKEN

SAMPLES = [
    "",
    " ",
    "hello world",
    "  two  spaces\n\n\ttabs\r\n",
    "naïve café",
    "你好世界",
    "👩‍👩‍👧 🇫🇷 😀",
    "<|im_start|>user",
    "\x00\x7f",
    "नमस्ते",
    '{"a": "b", "c": 1}',
]


@given(st.text())
def test_decoding_undoes_encoding(text: str) -> None:
    assert spell_out(encode(text)) == text
    assert decode(encode(text)) == text


@given(st.lists(st.integers(0, VOCAB_SIZE - 1)))
def test_streamed_text_is_the_decoded_text(ids: list[int]) -> None:
    said, pending = "", b""
    for token in ids:
        text, pending = decode_step(pending, token)
        said += text
    assert said == decode(ids)


@given(st.text(), st.integers(0, 100))
def test_unfinished_character_is_found_wherever_text_is_cut(text: str, at: int) -> None:
    data = text.encode()
    ids = [BYTE + byte for byte in data[: at % (len(data) + 1)]]
    rest = [BYTE + byte for byte in data[len(ids) :]]
    assert decode(ids) + decode(rest, unfinished(ids)) == text


def test_every_piece_has_one_id() -> None:
    assert len(set(TOKEN_BYTES)) == len(TOKEN_BYTES) == len(TOKEN_JSON) == VOCAB_SIZE
    assert all(TOKEN_BYTES[token] == piece for piece, token in ID_OF.items())


def test_tokens_are_words_where_words_are_known() -> None:
    assert [TOKEN_BYTES[i] for i in encode("The water and stone, then 東京")] == [
        b"The", b" water", b" and", b" stone", b",", b" then", " 東京".encode(),
    ]  # fmt: skip


def test_special_tokens_in_text_stay_text() -> None:
    assert all(token >= BYTE for token in encode("<|im_end|><|eos|>"))
    assert spell_out([EOS]) == "<|eos|>"
    assert decode([EOS]) == ""


def test_token_strings_show_leading_spaces_and_bytes() -> None:
    assert token_str(encode(" water")[0]) == "Ġwater"
    assert token_str(EOS) == "<|eos|>"
    assert token_str(ID_OF[BROKEN]) == "ĠðŁĺ"
    assert len({token_str(i) for i in range(VOCAB_SIZE)}) == VOCAB_SIZE


@pytest.mark.parametrize("text", SAMPLES)
def test_routes_are_inverse(text: str) -> None:
    async def ask() -> None:
        async with running() as sim:
            ids = (await fetch(sim, "/tokenize", {"model": "tiny", "prompt": text})).json["tokens"]
            back = await fetch(sim, "/detokenize", {"model": "tiny", "tokens": ids})
            assert back.json == {"prompt": text}

    run(ask())


def test_routes_refuse_what_is_no_text_and_no_id() -> None:
    async def ask() -> None:
        async with running() as sim:
            assert (await fetch(sim, "/tokenize", {"prompt": 1})).status == 400
            assert (await fetch(sim, "/tokenize", {})).status == 400
            assert (await fetch(sim, "/detokenize", {"tokens": [VOCAB_SIZE]})).status == 400
            assert (await fetch(sim, "/detokenize", {"tokens": "x"})).status == 400
            assert (await fetch(sim, "/tokenize", {"model": "no", "prompt": "x"})).status == 404

    run(ask())
