"""Turns a text into a vector in this process: the word vectors that the package `wordllama` brings, averaged.

Its files are read here rather than by its own code, which sets up the logging of the whole program when it is imported,
and copies all vectors into each process: mapped, they are in memory once for all processes of a host.
"""

from __future__ import annotations

import json
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

_CARRIER: Final = "wordllama"
_WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
_TOKENS: Final = "tokenizers/l2_supercat_tokenizer_config.json"
NEEDED: Final = (_CARRIER, "numpy", "tokenizers", "usearch")
DIMENSIONS: Final = 256


class NotInstalled(Exception):  # noqa: N818 - says what is so, like a state
    """The extra is missing, or what it brought is not what is expected."""


def missing() -> list[str]:
    """The packages that are not there."""
    return [name for name in NEEDED if find_spec(name) is None]


class Embedder:
    """The model in memory. `embed` may be called from any thread."""

    def __init__(self) -> None:
        # Threads of its own would only stand in the way of the loop's; numpy asks when it is first imported.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        import numpy as np
        from tokenizers import Tokenizer

        folder = _folder()
        self._vectors = _mapped(folder / _WEIGHTS)
        self._tokenizer = Tokenizer.from_file(str(folder / _TOKENS))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._mean = np.mean
        self._float = np.float32

    def embed(self, text: str) -> Vector | None:
        """The vector of a text, of length 1; None where it has no word."""
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        if not ids:
            return None
        vector: Vector = self._mean(self._vectors[ids], axis=0, dtype=self._float)
        size = float(vector @ vector) ** 0.5
        if not size:
            return None
        vector /= size
        return vector


@cache
def embedder_here() -> Embedder:
    """The one of this process."""
    return Embedder()


def _folder() -> Path:
    found = find_spec(_CARRIER)
    if found is None or not found.submodule_search_locations:
        raise NotInstalled("pip install 'tailrace[semantic]'")
    return Path(found.submodule_search_locations[0])


def _mapped(path: Path) -> Any:
    """The one tensor of a safetensors file: eight bytes of length, a JSON head, then the numbers."""
    import numpy as np

    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(length))
    tensor = head["embedding.weight"]
    kind = {"F16": np.float16, "F32": np.float32}.get(tensor["dtype"])
    if kind is None or tensor["shape"][1] != DIMENSIONS:
        raise NotInstalled(
            f"{path} holds {tensor['dtype']} vectors of {tensor['shape']}, which are not the expected ones"
        )
    return np.memmap(path, kind, "r", 8 + length + tensor["data_offsets"][0], tuple(tensor["shape"]))
