"""Leases of sidecars that register."""

from __future__ import annotations

import pytest
from tailrace.proxy.discovery import registry as registries
from tailrace.proxy.discovery.endpoint import Endpoint
from tailrace.proxy.discovery.registry import Full, Registry

ONE, TWO = Endpoint("http://10.0.0.1:8000"), Endpoint("http://10.0.0.2:8000", 2.0, "eu")


class Clocked:
    """A registry of the group `g` on a clock of its own, which is looked at as often as it should be."""

    def __init__(self) -> None:
        self.now = 100.0
        self.registry = Registry(lambda: self.now)
        self.registry.follow({"g": 15.0})

    def wait(self, seconds: float) -> bool:
        """Whether anybody was removed meanwhile."""
        end, lapsed = self.now + seconds, False
        while self.now < end:
            self.now = min(self.now + registries.TICK, end)
            lapsed |= self.registry.expire()
        return lapsed


def test_a_lease_that_is_not_renewed_ends() -> None:
    it = Clocked()
    assert it.registry.register("g", ONE)
    assert not it.wait(14.9)
    assert it.registry.left() == {"http://10.0.0.1:8000": pytest.approx(0.1)}
    assert it.wait(0.2)
    assert it.registry.members("g") == ()


def test_one_that_is_renewed_goes_on() -> None:
    it = Clocked()
    it.registry.register("g", ONE)
    for _ in range(10):
        assert not it.wait(5.0)
        assert not it.registry.register("g", ONE)
    assert it.registry.members("g") == (ONE,)


def test_what_is_said_anew_counts_and_another_writing_is_the_same_worker() -> None:
    it = Clocked()
    it.registry.register("g", ONE)
    assert it.registry.register("g", Endpoint("HTTP://10.0.0.1:8000/", 3.0))
    assert it.registry.members("g") == (Endpoint("HTTP://10.0.0.1:8000/", 3.0),)


def test_who_leaves_is_gone_at_once_and_may_come_back() -> None:
    it = Clocked()
    it.registry.register("g", ONE)
    it.registry.register("g", TWO)
    assert it.registry.leave("g", "http://10.0.0.1:8000/")
    assert not it.registry.leave("g", ONE.url)
    assert not it.registry.leave("h", ONE.url)
    assert it.registry.members("g") == (TWO,)
    assert it.registry.register("g", ONE)
    assert it.registry.members("g") == (TWO, ONE)


def test_a_host_that_stood_still_ends_no_lease_for_that() -> None:
    """Nobody could be heard meanwhile."""
    it = Clocked()
    it.registry.register("g", ONE)
    it.wait(5.0)
    it.now += 600.0
    assert not it.registry.expire()
    assert not it.wait(9.0)
    assert it.wait(2.0)


def test_groups_that_nobody_wants() -> None:
    it = Clocked()
    with pytest.raises(KeyError):
        it.registry.register("h", ONE)
    it.registry.register("g", ONE)
    it.registry.follow({"h": 1.0})
    it.registry.follow({"g": 15.0})
    assert it.registry.members("g") == ()


def test_a_group_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "MOST", 1)
    it = Clocked()
    it.registry.register("g", ONE)
    with pytest.raises(Full):
        it.registry.register("g", TWO)
    it.registry.register("g", ONE)
