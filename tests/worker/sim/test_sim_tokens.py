"""The tokenizer: text and ids are the same thing said twice."""

import pytest
from fakes import run
from hypothesis import given
from hypothesis import strategies as st
from sim_client import CHAT, fetch, running
from tailrace.worker.sim.tokenizer import (
    BYTE,
    EOS,
    ID_OF,
    IM_END,
    IM_START,
    TOKEN_BYTES,
    TOKEN_JSON,
    VOCAB_SIZE,
    decode,
    decode_step,
    encode,
    spell_out,
    token_str,
    unshown,
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
def test_text_cut_anywhere_is_whole_again(text: str, at: int) -> None:
    data = text.replace("\ufffd", "?").encode()
    ids = [BYTE + byte for byte in data]
    cut = at % (len(ids) + 1)
    begun, rest = ids[:cut], ids[cut:]
    # A prompt that ends well is not told again; one that does not is, from its beginning.
    shown = "" if unshown(begun) else decode(begun)
    assert shown + decode(rest, unshown(begun)) == (data.decode() if rest or not unshown(begun) else "")


# What vLLM 0.32 streamed for these bytes, one a token, as seen in a structured answer and after prompts of bytes.
@pytest.mark.parametrize(
    ("data", "events"),
    [
        ("水a🌊b".encode(), ["", "", "水", "a", "", "", "", "🌊", "b"]),
        (b"\xf0\x9fa", ["", "", "\ufffda"]),
        (b"\x8c\x8c\x8c", ["", "", ""]),
        (b"\xffa\xff", ["", "\ufffda", ""]),
    ],
)
def test_characters_come_out_whole(data: bytes, events: list[str]) -> None:
    said, pending = [], b""
    for byte in data:
        text, pending = decode_step(pending, BYTE + byte)
        said.append(text)
    assert said == events
    assert decode([BYTE + byte for byte in data]) == "".join(events)


def test_prompt_that_ends_in_a_broken_character_comes_out_with_the_answer() -> None:
    prompt = [IM_START, *encode("user\nhello"), IM_END]
    broken = [*prompt, BYTE + 0xF0, BYTE + 0x9F]
    assert unshown(prompt) == unshown([]) == unshown([EOS]) == b""
    assert unshown(broken) == unshown([*broken, EOS]) == b"user\nhello\xf0\x9f"
    assert decode([BYTE + 0x8C, BYTE + 0x8A], unshown(broken)) == "user\nhello🌊"


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
            missing = (await fetch(sim, "/tokenize", {})).json["error"]
            assert missing["message"].startswith("2 validation errors:\n  {'type': 'missing', 'loc': 'body.prompt',")
            assert missing["param"] == "body.prompt"
            assert (await fetch(sim, "/detokenize", {"tokens": [VOCAB_SIZE, ID_OF[b" the"]]})).json == {
                "prompt": " the"
            }
            negative = (await fetch(sim, "/detokenize", {"tokens": [5, -1]})).json["error"]
            assert negative["message"].endswith(
                "'loc': 'body.tokens.1', 'msg': 'Input should be greater than or equal to "
                "0', 'input': '-1', 'ctx': {'ge': 0}}"
            )
            assert (await fetch(sim, "/detokenize", {"tokens": "x"})).status == 400
            assert (await fetch(sim, "/tokenize", {"model": "no", "prompt": "x"})).status == 404

    run(ask())


def test_ids_of_a_conversation_are_those_that_the_chat_route_uses() -> None:
    async def ask() -> None:
        async with running() as sim:
            turns = [{"role": "user", "content": "the mill"}, {"role": "assistant", "content": "Water is 東京 x"}]
            for more in ({}, {"continue_final_message": True, "add_generation_prompt": False}, {"tools": []}):
                told = (await fetch(sim, "/tokenize", {"messages": turns} | more)).json
                asked = {"messages": turns, "max_tokens": 1, "return_token_ids": True} | more
                assert told["tokens"] == (await fetch(sim, CHAT, asked)).json["prompt_token_ids"]
                assert (told["count"], told["max_model_len"]) == (len(told["tokens"]), 2048)

    run(ask())


@pytest.mark.parametrize("path", [CHAT, "/tokenize"])
def test_an_answer_cannot_begin_in_two_places(path: str) -> None:
    async def ask() -> None:
        async with running() as sim:
            turns = [{"role": "assistant", "content": "Water"}]
            for more, words in (
                ({}, "are not compatible. Use"),
                ({"add_generation_prompt": True}, "Cannot set both `cont"),
            ):
                refused = await fetch(sim, path, {"messages": turns, "continue_final_message": True} | more)
                assert (refused.status, refused.json["error"]["type"]) == (400, "BadRequestError")
                assert words in refused.json["error"]["message"]

    run(ask())
