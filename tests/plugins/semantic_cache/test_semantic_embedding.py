"""That the vectors are the library's own, and what is said where it is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tailrace.plugins.semantic_cache import embedding, settings
from tailrace.plugins.semantic_cache.embedding import Embedder

TEXTS = ["How do I reset my password?", "the capital of Germany", "Stra\u00dfe, \u6771\u4eac \U0001f600", "a" * 3000]
# In a program of its own: importing the library sets up the logging of the whole of it.
BY_THE_LIBRARY = """
import sys, pathlib, wordllama
model = wordllama.WordLlama.load(cache_dir=pathlib.Path(wordllama.__file__).parent, disable_download=True)
print(model.embed([sys.argv[1]], norm=True)[0].tolist())
"""


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_vectors_are_those_of_the_library(text):
    told = subprocess.run([sys.executable, "-c", BY_THE_LIBRARY, text], capture_output=True, text=True, check=True)
    theirs = [float(number) for number in told.stdout.strip().strip("[]").split(",")]
    assert Embedder().embed(text).tolist() == pytest.approx(theirs, abs=1e-5)


def test_a_text_of_nothing_has_no_vector():
    assert Embedder().embed("") is None


def test_the_model_is_read_where_it_lies_and_not_copied():
    assert type(Embedder()._vectors).__name__ == "memmap"


def test_the_check_names_what_is_not_installed(monkeypatch):
    monkeypatch.setattr(embedding, "NEEDED", ("wordllama", "no_such_package"))
    [said] = settings.Config(domains=(settings.Domain(name="a"),)).look()
    assert said == "no_such_package missing: pip install 'tailrace[semantic]'"


def test_a_model_of_another_shape_is_refused(tmp_path):
    head = b'{"embedding.weight":{"dtype":"BF16","shape":[4,256],"data_offsets":[0,2048]}}'
    file = tmp_path / "other.safetensors"
    file.write_bytes(len(head).to_bytes(8, "little") + head + bytes(2048))
    with pytest.raises(embedding.NotInstalled, match="not the expected"):
        embedding._mapped(file)
