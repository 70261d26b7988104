"""The routes of models that do not speak."""

import base64
import math
import struct
from typing import Any

import pytest
from fakes import run
from sim_client import fetch, running
from tailrace.worker.sim.tokenizer import encode
from tailrace.worker.sim.vectors import embed, similarity


def test_vectors_are_deterministic_unit_and_near_for_kindred_texts() -> None:
    one, same, kin, far = (
        embed(encode(text), 384)
        for text in (
            "the river runs past the mill",
            "the river runs past the mill",
            "the river runs past the old mill",
            "price list of a shop",
        )
    )
    assert one == same
    assert math.isclose(sum(x * x for x in one), 1)
    assert similarity(one, same) == pytest.approx(1)
    assert similarity(one, kin) > 0.8 > similarity(one, far)


def test_embeddings_of_texts_and_ids_in_both_encodings() -> None:
    async def ask() -> None:
        async with running(embedding_dim=32) as sim:
            listed = (await fetch(sim, "/v1/embeddings", {"input": ["a mill", "a river"]})).json
            ids = (await fetch(sim, "/v1/embeddings", {"input": [encode("a mill"), encode("a river")]})).json
            assert [one["embedding"] for one in listed["data"]] == [one["embedding"] for one in ids["data"]]
            assert listed["usage"]["prompt_tokens"] == len(encode("a mill")) + len(encode("a river"))
            packed = (await fetch(sim, "/v1/embeddings", {"input": "a mill", "encoding_format": "base64"})).json
            vector = struct.unpack("<32f", base64.b64decode(packed["data"][0]["embedding"]))
            assert vector == pytest.approx(listed["data"][0]["embedding"], abs=1e-7)
            short = (await fetch(sim, "/v1/embeddings", {"input": "a mill", "dimensions": 8})).json
            assert len(short["data"][0]["embedding"]) == 8
            for bad in ({"dimensions": 33}, {"encoding_format": "xml"}, {"input": []}, {"input": None}):
                assert (await fetch(sim, "/v1/embeddings", {"input": "a"} | bad)).status == 400
            assert sim.metrics.finish_reasons["stop"] == 2 + 2 + 1 + 1

    run(ask())


def test_rerank_and_score_agree() -> None:
    async def ask() -> None:
        async with running() as sim:
            texts = ["a price list", "the mill by the river", "a song"]
            ranked = (await fetch(sim, "/v1/rerank", {"query": "the river mill", "documents": texts, "top_n": 2})).json
            assert list(ranked) == ["id", "model", "usage", "results"]
            assert ranked["results"][0] == {
                "index": 1,
                "document": {"text": texts[1], "multi_modal": None},
                "relevance_score": ranked["results"][0]["relevance_score"],
            }
            assert len(ranked["results"]) == 2
            scored = (await fetch(sim, "/v1/score", {"text_1": "the river mill", "text_2": texts})).json
            scores = [one["score"] for one in scored["data"]]
            assert scores[1] == max(scores) == ranked["results"][0]["relevance_score"]
            assert [list(one) for one in scored["data"]] == [["index", "object", "score"]] * 3

    run(ask())


def test_classify_and_pooling() -> None:
    async def ask() -> None:
        async with running(embedding_dim=16) as sim:
            classified = (await fetch(sim, "/classify", {"input": ["good", "bad"]})).json
            for at, one in enumerate(classified["data"]):
                assert list(one) == ["index", "label", "probs", "num_classes"]
                assert one["index"] == at
                assert sum(one["probs"]) == pytest.approx(1)
                assert one["label"] == f"LABEL_{one['probs'].index(max(one['probs']))}"
            pooled = (await fetch(sim, "/pooling", {"input": "the mill"})).json
            assert pooled["data"][0]["object"] == "pooling"
            assert [len(row) for row in pooled["data"][0]["data"]] == [16] * len(encode("the mill"))
            chat = {"messages": [{"role": "user", "content": "hello"}]}
            assert (await fetch(sim, "/pooling", chat)).status == 200

    run(ask())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/rerank", {"query": 1, "documents": ["a"]}),
        ("/v1/rerank", {"query": "a", "documents": []}),
        ("/v1/rerank", {"query": "a"}),
        ("/v1/score", {"text_1": "a"}),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}),
        ("/classify", {"input": {"a": 1}}),
    ],
)
def test_nonsense_is_refused(path: str, body: dict[str, Any]) -> None:
    async def ask() -> None:
        async with running() as sim:
            assert (await fetch(sim, path, body)).status == 400

    run(ask())


def test_too_long_and_too_many() -> None:
    async def ask() -> None:
        async with running(max_model_len=16, max_num_queued_reqs=3) as sim:
            assert (await fetch(sim, "/v1/embeddings", {"input": "word " * 40})).status == 400
            assert (await fetch(sim, "/v1/embeddings", {"input": ["a"] * 4})).status == 503

    run(ask())


def test_audio_forms() -> None:
    async def ask() -> None:
        async with running() as sim:
            part = b'--xx\r\ncontent-disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
            sound = part % (b"file", b'; filename="a.wav"', b"\r\n--x\x00\xff\r\n")
            form = sound + part % (b"model", b"", b"tiny") + b"--xx--\r\n"
            kind = "multipart/form-data; boundary=xx"
            heard = await fetch(sim, "/v1/audio/transcriptions", form, content_type=kind)
            assert list(heard.json) == ["text", "usage"]
            assert heard.json["usage"] == {"type": "duration", "seconds": 1}
            text = form.replace(b"--xx--", part % (b"response_format", b"", b"text") + b"--xx--")
            plain = await fetch(sim, "/v1/audio/transcriptions", text, content_type=kind)
            assert plain.body.decode() == heard.json["text"]
            assert b"content-type: text/plain; charset=utf-8" in plain.head
            changed = form.replace(b"\xff", b"\xfe")
            assert (await fetch(sim, "/v1/audio/transcriptions", changed, content_type=kind)).json != heard.json
            for bad, kind_of in ((b"--xx--", kind), (form, "application/json"), (b"", kind)):
                assert (await fetch(sim, "/v1/audio/transcriptions", bad, content_type=kind_of)).status == 400
            unknown = form.replace(b"\r\ntiny\r\n", b"\r\nnope\r\n")
            assert (await fetch(sim, "/v1/audio/transcriptions", unknown, content_type=kind)).status == 404

    run(ask())
