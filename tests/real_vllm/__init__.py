"""Tests against a real vLLM: `make test-vllm` installs one and runs them."""
