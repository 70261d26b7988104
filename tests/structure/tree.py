"""The source files that the tests of this folder look at."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ("proxy", "plugins", "worker", "loadtests")
TREES = (*CODE, "tests", "config", ".ci")
LOOSE = ("README.md", "OPERATIONS.md", "Makefile", "pyproject.toml", "setup.cfg")
_GENERATED = {"__pycache__", "results"}


def files(*suffixes: str, trees: tuple[str, ...] = TREES) -> list[Path]:
    """Every file below some folders that has one of these endings; all of them where none is given."""
    found = [path for tree in trees for path in (ROOT / tree).rglob("*") if path.is_file()]
    return sorted(
        path
        for path in found
        if not _GENERATED & set(path.parts) and (not suffixes or path.suffix in suffixes) and not _built(path)
    )


def named(path: Path) -> str:
    """A file as messages should call it."""
    return str(path.relative_to(ROOT))


def _built(path: Path) -> bool:
    """Whether it is a program that some C source next to it was compiled to."""
    return not path.suffix and path.with_suffix(".c").exists()
