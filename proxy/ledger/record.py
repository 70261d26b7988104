"""What the ledger knows of a call: what is set down at its beginning, what at its end, and the record of both."""

from __future__ import annotations

import msgspec
from tailrace.proxy.tariff import Rates

VERSION = 1
"""Of the record; a reader takes a record that says more than it knows, and leaves the rest aside."""

ORPHAN = "orphan"
"""The ending of a call whose process died: it is settled from the usage that was last set down."""


class Opening(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is known of a call before a worker has seen it; new fields go to the end, with defaults."""

    charge_key: str
    call: str = ""
    tenant: str = ""
    key: str = ""
    tags: tuple[str, ...] = ()
    model: str = ""
    deployment: str = ""
    service_class: str = ""
    route: str = ""
    currency: str = ""
    price_version: str = ""
    rates: Rates | None = None


class Late(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Words that are known at the end only."""

    ending: str
    echoed_model: str = ""


class Record(msgspec.Struct, frozen=True, kw_only=True, rename={"service_class": "class", "version": "v"}):
    """One call in the log, complete; times are nanoseconds since 1970."""

    charge_key: str
    opened_ns: int
    settled_ns: int
    call: str = ""
    tenant: str = ""
    key: str = ""
    tags: tuple[str, ...] = ()
    model: str = ""
    deployment: str = ""
    echoed_model: str = ""
    service_class: str = ""
    route: str = ""
    status: int = 0
    ending: str = ""
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    requests: int = 1
    amount: int = 0
    currency: str = ""
    price_version: str = ""
    estimated: bool = False
    unpriced: bool = False
    lost_prompt: int = 0
    lost_completion: int = 0
    lost_amount: int = 0
    delivered: int = 0
    worker: str = ""
    version: int = VERSION
