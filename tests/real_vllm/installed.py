"""Whether this Python has all that a lock file lists: `python installed.py LOCK`; exit 1 names what is missing."""

import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


def missing(lock: str) -> list[str]:
    """The lines of the lock whose package is absent, of another version or only half there."""
    lines = [line for line in lock.split() if "==" in line]
    return [line for line in lines if not there(*line.split("=="))] + ([] if vllm_is_named() else ["vllm"])


def there(name: str, version: str) -> bool:
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return False
    # pip writes the list of files last.
    return found.version == version and found.read_text("RECORD") is not None


def vllm_is_named() -> bool:
    try:
        return bool(distribution("vllm").version)
    except PackageNotFoundError:
        return False


if __name__ == "__main__":
    gone = missing(Path(sys.argv[1]).read_text())
    if gone:
        sys.exit("not installed: " + " ".join(gone))
