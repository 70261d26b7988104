"""Engines that are small scripts in processes of their own."""

import sys
from pathlib import Path

import pytest


@pytest.fixture
def fake_vllm(tmp_path: Path) -> str:
    """An executable that takes the command line of vLLM."""
    script = tmp_path / "fake-vllm"
    script.write_text(f"#!{sys.executable} -S\n" + Path(__file__).with_name("scripted_engine.py").read_text())
    script.chmod(0o755)
    return str(script)
