"""Failures of a plugin's own code, told to its author in one line: what happened, and where in files of theirs."""

from __future__ import annotations

import contextlib
import functools
import importlib
import traceback
from pathlib import Path
from typing import Final

_FRAMES: Final = 4
_NOT_THEIRS: Final = (
    "<frozen importlib",
    str(Path(importlib.__file__).parent),
    contextlib.__file__,
    functools.__file__,
    str(Path(__file__).parent),
)


def own_failure(error: BaseException) -> str:
    """An exception with the places it passed, innermost first, less those of what called it."""
    frames = traceback.extract_tb(error.__traceback__)[::-1]
    theirs = [frame for frame in frames if not frame.filename.startswith(_NOT_THEIRS)][:_FRAMES]
    places = " < ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in theirs)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{text} (at {places})" if places else text
