"""What a sidecar's file must say, and what it cannot."""

from __future__ import annotations

import pytest
from sidecars import KEY, worker_settings
from tailrace.proxy.config import ConfigError
from tailrace.worker.settings import Worker


def settings_of(text: str) -> Worker:
    return worker_settings("{url: 'http://127.0.0.1:1'}", text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("processes: 2", "one process"),
        ("hop_key: short", "characters"),
        ("blocked: [/metrics]", "not served anyway"),
        ("routes: [{path: /version, pool: other}]", "no other"),
    ],
)
def test_settings_that_cannot_be_are_refused(text: str, fault: str):
    with pytest.raises(ConfigError, match=fault):
        settings_of(text)


def test_a_port_that_others_can_reach_needs_a_key():
    with pytest.raises(ConfigError, match="hop_key"):
        worker_settings("{url: 'http://127.0.0.1:1'}", "", "0.0.0.0:0")
    assert worker_settings("{url: 'http://127.0.0.1:1'}", f"hop_key: {KEY}", "0.0.0.0:0").hop_key
    assert worker_settings("{url: 'http://127.0.0.1:1'}", "", "unix:/run/x").hop_key is None
