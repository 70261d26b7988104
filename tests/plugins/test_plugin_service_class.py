"""Who has which class of service."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fakes import CHAT, PATH, RawClient, decoded, gateway, run, yaml_for
from tailrace.plugins.service_class import Config, ServiceClass
from tailrace.proxy.config import ConfigError
from tailrace.proxy.fault import Reject
from tailrace.proxy.identity import Identity
from tailrace.proxy.service_class import ServiceClass as Fact

NAMES = ("interactive", "batch", "bulk")

ON_STAND_INS = pytest.mark.interpreted  # compiled code refuses them


class Call:
    """What the plugin looks at."""

    def __init__(self, identity: Identity | None, asked: bytes | None, route: str, *, trusted: bool) -> None:
        self.head = SimpleNamespace(folded={} if asked is None else {b"x-tailrace-class": asked})
        self.peer = SimpleNamespace(trusted=trusted)
        self.route = SimpleNamespace(name=route)
        self._facts = {Identity: identity}

    def fact(self, kind):
        return self._facts.get(kind)

    def provide(self, fact):
        self._facts[type(fact)] = fact


def found(
    classes=(),
    asked: bytes | None = None,
    route: str = "chat",
    *,
    trusted: bool = False,
    nobody: bool = False,
    **config,
) -> str:
    plugin = ServiceClass(Config(**{"names": NAMES} | config))
    identity = None if nobody else Identity(key="k", tenant="t", classes=classes)
    call = Call(identity, asked, route, trusted=trusted)
    assert plugin.on_request(call) is None  # type: ignore[arg-type]
    return call.fact(Fact).name


@ON_STAND_INS
def test_the_first_is_the_default():
    assert found(None) == "interactive"
    assert found(None, default="bulk") == "bulk"
    assert found(nobody=True) == "interactive"


@ON_STAND_INS
def test_a_route_has_its_class():
    assert found(None, route="embeddings", routes={"embeddings": "batch"}) == "batch"
    assert found(None, route="chat", routes={"embeddings": "batch"}) == "interactive"


@ON_STAND_INS
def test_a_caller_has_only_what_it_may_have():
    assert found(("batch",)) == "batch"
    assert found(("bulk", "batch")) == "bulk"
    assert found(("b*",)) == "batch"
    assert found(("interactive", "batch")) == "interactive"
    assert found(("bulk",), route="chat", routes={"chat": "batch"}) == "bulk"
    assert found(("gone", "batch")) == "batch"


@ON_STAND_INS
def test_a_caller_may_ask_for_what_it_may_have():
    assert found(None, b"bulk") == "bulk"
    assert found(("*",), b"batch") == "batch"
    with pytest.raises(Reject) as refused:
        found(("batch",), b"interactive")
    assert (refused.value.fault.status, refused.value.fault.code) == (403, "class_not_allowed")


@ON_STAND_INS
def test_who_has_none_of_them_is_refused():
    with pytest.raises(Reject) as refused:
        found(("gone",))
    assert refused.value.fault.status == 403


@ON_STAND_INS
def test_a_stranger_asks_in_vain():
    assert found(nobody=True, asked=b"bulk") == "interactive"
    assert found(nobody=True, asked=b"nonsense") == "interactive"


@ON_STAND_INS
def test_a_trusted_proxy_is_believed():
    assert found(nobody=True, asked=b"bulk", trusted=True) == "bulk"
    assert found(("batch",), b"interactive", trusted=True) == "interactive"


@ON_STAND_INS
def test_a_class_that_there_is_not():
    with pytest.raises(Reject) as refused:
        found(None, b"first")
    assert (refused.value.fault.status, refused.value.fault.code) == (400, "unknown_class")
    assert "interactive, batch, bulk" in refused.value.fault.message


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("{default: slow}", "there is no class 'slow'"),
        ("{routes: {chats: batch}}", "there is no route 'chats'"),
        ("{routes: {chat: slow}}", "there is no class 'slow'"),
        ("{names: []}", "names"),
    ],
)
def test_nonsense_is_refused(config: str, told: str):
    with pytest.raises(ConfigError, match=told):
        decoded(yaml_for("http://127.0.0.1:1", plugins=f"[service_class: {config}]"))


def test_other_plugins_may_be_for_one_class_only():
    async def main():
        plugins = """
        - service_class: {routes: {completions: batch}}
        - headers: {answer: {set: {x-mark: "yes"}}}
          when: {class: [batch]}
        """
        async with gateway(yaml_for("http://127.0.0.1:1", plugins=plugins)) as process:
            async with RawClient(process.doors[0].shown) as client:
                marked = await client.post("/v1/completions", {"model": "m", "prompt": "x"})
                plain = await client.post(PATH, CHAT)
                return marked.header("x-mark"), plain.header("x-mark")

    assert run(main()) == ("yes", None)
