"""Where spans go, by the file and by OpenTelemetry's variables."""

from __future__ import annotations

import pytest
from tailrace.plugins.trace import settings
from tailrace.plugins.trace.settings import Config
from tailrace.proxy.config import ConfigError
from tailrace.proxy.configuration import understand

TRACES, BASE = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
YAML = "listen: 127.0.0.1:1\nmodels: {m: {workers: ['http://127.0.0.1:2']}}\nplugins:\n  - trace: {endpoint: '%s'}\n"


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TRACES, raising=False)
    monkeypatch.delenv(BASE, raising=False)


@pytest.mark.parametrize(
    ("given", "leads_to"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
        ("https://example/otlp/v1/traces", "https://example/otlp/v1/traces"),
    ],
)
def test_a_collector(given: str, leads_to: str) -> None:
    assert Config(endpoint=given).url == leads_to


def test_without_one_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Config().url is None
    monkeypatch.setenv(BASE, "http://base:4318/")
    assert Config().url == "http://base:4318/v1/traces"
    monkeypatch.setenv(TRACES, "http://traces:4318/here")
    assert Config().url == "http://traces:4318/here"
    assert Config(endpoint="http://file:1").url == "http://file:1/v1/traces"


@pytest.mark.parametrize("given", ["collector:4318", "grpc://x:4317", "http://", "http://x:99999"])
def test_what_is_no_url_is_told(given: str) -> None:
    with pytest.raises(ConfigError, match="is no URL of a collector"):
        understand(YAML % given, "test.yaml")


def test_what_is_missing_for_a_delivery_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(Config(endpoint="http://x:1").look()) == []
    monkeypatch.setattr(settings, "deliverable", lambda: False)
    [told] = Config(endpoint="http://x:1").look()
    assert "pip install 'tailrace[otel]'" in str(told)
    assert list(Config().look()) == []
