"""How a sidecar tells a gateway that it is there, renews that, and says that it goes: both ends' idea of it.

It posts JSON to PATH on the data port, with the hop key's token: {"group", "worker": URL, "weight", "region"}, and
"leave": true when it goes. The answer, {"lease": SECONDS}, comes when every process of the gateway knows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson
from tailrace.proxy.address import Address, AddressError
from tailrace.proxy.control import Gone, Refused
from tailrace.proxy.discovery.endpoint import HEAVIEST, LIGHTEST, Endpoint
from tailrace.proxy.discovery.registry import Full
from tailrace.proxy.fault import Reject, Whose
from tailrace.proxy.hop import HEADER, REFUSED, HopKey
from tailrace.proxy.reply import Reply
from tailrace.proxy.routes import Route, Shape

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.discovery.search import Search

PATH: Final = "/x-tailrace/workers"
LONGEST: Final = 4096
Register = Callable[[dict[str, Any]], Awaitable[None]]


def announced(
    search: Search, *, group: str, worker: str, weight: float | None, region: str | None, leave: bool
) -> None:
    """Take an announcement up; raises Refused."""
    if leave:
        search.leave(group, worker)
        return
    try:
        search.register(group, Endpoint(worker, weight, region))
    except KeyError:
        raise Refused(f"no pool takes sidecars that register for '{group}'") from None
    except Full:
        raise Refused(f"'{group}' has no room for another worker") from None


def route(key: HopKey, leases: Mapping[str, float], register: Register) -> Route:
    """The path that takes announcements; `leases` are the groups that are wanted."""

    def answer(call: Call) -> Reply:
        if not key.admits(call.head.get(HEADER)):
            raise Reject(401, REFUSED, "Only workers that hold the hop key of this gateway register.")
        announcement = _read(call.raw)
        lease = leases.get(announcement["group"])
        if lease is None:
            names = ", ".join(leases)
            text = f"No pool takes sidecars that register for '{announcement['group']}'; there are: {names}."
            raise Reject(404, "unknown_group", text, kind="bad_request")
        return Reply(200, _taken(register, announcement, lease), source="registration")

    return Route(PATH, "registration", "POST", Shape.OPAQUE, local=answer, guarded=False)


async def _taken(register: Register, announcement: dict[str, Any], lease: float) -> AsyncIterator[bytes]:
    refused = ""
    try:
        await register(announcement)
    except Refused as refusal:
        refused = str(refusal)
    except Gone:
        refused = "this gateway is about to end"
    yield orjson.dumps({"refused": refused} if refused else {"lease": lease})


def _read(body: bytes) -> dict[str, Any]:
    try:
        told = orjson.loads(body) if len(body) <= LONGEST else None
    except orjson.JSONDecodeError:
        told = None
    if not isinstance(told, dict):
        raise _bad("the body is no JSON object")
    group, worker = told.get("group"), told.get("worker")
    weight, region, leave = told.get("weight"), told.get("region"), told.get("leave", False)
    if not isinstance(group, str) or not isinstance(worker, str):
        raise _bad("`group` and `worker` must be text")
    try:
        Address.parse(worker)
    except AddressError as error:
        raise _bad(str(error)) from None
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, int | float) or not _sane(weight)):
        raise _bad(f"`weight` must be a number from {LIGHTEST:g} to {HEAVIEST:g}")
    if not (region is None or isinstance(region, str)) or not isinstance(leave, bool):
        raise _bad("`region` must be text, and `leave` true or false")
    return {"group": group, "worker": worker, "weight": weight, "region": region, "leave": leave}


def _sane(weight: float) -> bool:
    return LIGHTEST <= weight <= HEAVIEST


def _bad(why: str) -> Reject:
    return Reject(400, "bad_registration", f"This is no registration: {why}.", kind="bad_request", whose=Whose.CLIENT)
