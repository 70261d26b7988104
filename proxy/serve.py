"""The life of a request: one function, each phase a line or a few. Start reading here."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from tailrace.proxy.admit import admit
from tailrace.proxy.coding import unpack
from tailrace.proxy.errors import answer as error_answer
from tailrace.proxy.errors import event as error_event
from tailrace.proxy.fault import FAILURES, INTERNAL, STEP_FAILED, Failed, Fault, Reject, Whose
from tailrace.proxy.finish import finish
from tailrace.proxy.harvest import ask
from tailrace.proxy.intake import read_body
from tailrace.proxy.mishap import go_on_without
from tailrace.proxy.outcome import Ending, Outcome
from tailrace.proxy.race import Race
from tailrace.proxy.relay import relay
from tailrace.proxy.replies import send_reply
from tailrace.proxy.reply import Instead, Reply
from tailrace.proxy.stride import Apart

if TYPE_CHECKING:
    from tailrace.proxy.call import Call

log: Final = logging.getLogger("tailrace")


async def serve(call: Call) -> None:
    """Serve one request from its head to its Outcome.

    Any phase may refuse the call; whatever happens, `finish` runs exactly once with what came of it.
    """
    pipeline = call.chain.pipeline
    try:
        for on_open in pipeline.on_open:
            try:
                on_open(call)
            except FAILURES as error:
                go_on_without(call, pipeline.owners[on_open], "on_open", error, STEP_FAILED)
        if not call.complete:
            await call.receive()
        local = call.route.local
        if local is None:
            if call.head.packed:
                await Apart(unpack(call))
            read_body(call)
        reply = None
        if pipeline.on_request:
            admitted = admit(call)
            if admitted is not None:
                reply = admitted if isinstance(admitted, Reply) else await Apart(admitted)
        if reply is None and (pipeline.asks or call.trail is not None):
            call.harvest = ask(call)
        if reply is None and local is not None:
            reply = local(call)
        if call.client.gone:
            raise asyncio.CancelledError
        if reply is not None:
            outcome = await Apart(send_reply(call, reply))
        else:
            call.race = race = Race(call)
            race.start()
            try:
                attempt = await race
            except Instead as instead:
                outcome = await Apart(send_reply(call, instead.reply))
            else:
                outcome = await relay(call, attempt)
    except FAILURES as error:
        outcome = broken_off(call, error)
    finish(call, outcome)


def broken_off(call: Call, error: BaseException) -> Outcome:
    """What an exception means for its call. Where something was ending the call, that counts, whatever was raised."""
    if call.client.gone:
        if not isinstance(error, Reject | Failed | asyncio.CancelledError):
            log.warning("request %s: something failed when its client left", call.id, exc_info=error)
        return Outcome(Ending.CLIENT_GONE, 499)
    if isinstance(error, Reject | Failed):
        return refuse(call, error.fault)
    if call.stopped is not None:
        return refuse(call, call.stopped)
    # A cancellation is of its own making: the client waits for an answer.
    log.error("request %s failed inside the gateway", call.id, exc_info=error)
    return refuse(call, INTERNAL)


def refuse(call: Call, fault: Fault) -> Outcome:
    """Tell the client; where even that fails, end its connection, so that the call ends in any case."""
    try:
        return _tell(call, fault)
    except FAILURES:
        log.exception("request %s could not be refused", call.id)
        call.client.transport.abort()
        return Outcome(Ending.FAILED, INTERNAL.status, INTERNAL)


def _tell(call: Call, fault: Fault) -> Outcome:
    """In the head if nothing was sent, else between two events of the stream; elsewhere a cut has to say it."""
    client = call.client
    anthropic = call.route.anthropic
    race = call.race
    if race is not None:
        race.cancel()
        if race.winner is not None:
            race.winner.release()
    if client.started:
        told = client.relay is None and call.between_events
        if told:
            client.send(error_event(fault, anthropic=anthropic, request_id=call.id))
        client.cut(told=told)
    else:
        head, body = error_answer(fault, anthropic=anthropic, request_id=call.id)
        call.answer(head, refusing=True)
        client.reply(head, body)
    ending = Ending.REFUSED if fault.whose in (Whose.CLIENT, Whose.GATEWAY) else Ending.FAILED
    return Outcome(Ending.DEADLINE if fault.kind.endswith("_timeout") else ending, fault.status, fault)
