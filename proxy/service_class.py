"""Which class of service a call has: a typed fact that one plugin provides and others, such as queues, go by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceClass:
    """The class by its name, which comes from configuration and is a metric label."""

    name: str
