"""The command line of the simulated engine."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import signal
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import uvloop
from tailrace.proxy.config import Flaws
from tailrace.proxy.config.setting import help_of
from tailrace.proxy.config.shapes import shape_of
from tailrace.proxy.config.source import text_node
from tailrace.worker.sim.failures import Fault, Kind, fault_from
from tailrace.worker.sim.server import Sim, serve
from tailrace.worker.sim.settings import Adapter, SimSettings

_DEFAULT = SimSettings()
_TOLD = """\
A simulated inference engine: vLLM's wire format, timing and failures, without a model.

The same prompt has the same answer where the request says `temperature: 0` or brings a `seed`; every other answer is
drawn by chance, as a model's is. With --seed a server that is asked the same in the same order answers the same."""


def main(argv: Sequence[str]) -> int:
    """Serve until told to stop; 0 after a signal, 1 after a fault that ends the server or a socket that is taken."""
    settings = settings_from(argv)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(settings))
    except OSError as error:
        print(f"cannot listen: {error}", flush=True)
        return 1


async def _run(settings: SimSettings) -> int:
    sim = await serve(settings)
    signalled = _obey_signals(sim)
    if settings.port is not None:
        print(f"ready {sim.url}", flush=True)
    if settings.uds is not None:
        print(f"ready unix:{settings.uds}", flush=True)
    # What lives from here on lives for long: a full collection would stall every stream for nothing.
    gc.freeze()
    await sim.gone.wait()
    return 0 if signalled.is_set() else 1


def _obey_signals(sim: Sim) -> asyncio.Event:
    """SIGTERM as vLLM takes it; SIGINT stops at once."""
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()

    def terminate() -> None:
        signalled.set()
        sim.terminate()

    def interrupt() -> None:
        signalled.set()
        sim.stop()

    loop.add_signal_handler(signal.SIGTERM, terminate)
    loop.add_signal_handler(signal.SIGINT, interrupt)
    return signalled


def settings_from(argv: Sequence[str]) -> SimSettings:
    """The settings that a command line asks for; exits as argparse does when it asks for nonsense."""
    parser = _parser()
    given = vars(parser.parse_args(argv))
    if given["port"] < 0:
        given["port"] = None
    given["served_model_names"] = tuple(given["served_model_names"] or ())
    given["api_keys"] = tuple(given["api_keys"] or ())
    given["lora_modules"] = tuple(given["lora_modules"] or ())
    given["faults"] = tuple(given["faults"] or ())
    settings = SimSettings(**given)
    for fault in (*settings.check(), *settings.look()):
        parser.error(str(fault))
    return settings


def _bound(name: str) -> Callable[[str], Any]:
    """What a flag's text means, within the bounds that the setting has in a worker's file."""
    shape = shape_of(get_type_hints(SimSettings, include_extras=True)[name])

    def read(text: str) -> Any:
        node, flaws = text_node(text), Flaws()
        value = shape.decode(node, flaws)
        for flaw in flaws:
            raise argparse.ArgumentTypeError(flaw.text)
        return value

    return read


def _name(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def _port(text: str) -> int:
    return -1 if text == "-1" else int(_bound("port")(text))


def _fault(text: str) -> Fault:
    """`KIND` or `KIND:name=value,...`, as the control endpoint takes it."""
    kind, _, rest = text.partition(":")
    asked: dict[str, Any] = {"fail": kind}
    for item in filter(None, rest.split(",")):
        name, _, value = item.partition("=")
        asked[name] = _value(name, value)
    try:
        return fault_from(asked)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _value(name: str, value: str) -> object:
    if name in ("route", "message"):
        return value
    if name == "rst":
        return value.lower() in ("", "1", "true", "yes")
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(value)
    return value


def _adapter(text: str) -> Adapter:
    name, parted, path = text.partition("=")
    if not parted or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH")
    return Adapter(name=name, path=path)


class _Formatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Defaults beside the options, and the epilog with its lines as they are."""


def _faults_told() -> str:
    """The kinds of faults and the fields that each may have."""
    kinds = textwrap.wrap(", ".join(get_args(Kind)), 100, initial_indent="  ", subsequent_indent="  ")
    lines = ["kinds of faults for --fail, `engine.sim.faults` and POST /sim/control:", *kinds, "", "their fields:"]
    for field in fields(Fault):
        if field.name != "fail":
            default = "" if field.default in (None, "") else f" (default: {field.default})"
            lines.append(f"  {field.name:<18}{help_of(field)}{default}")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailrace sim",
        description=_TOLD,
        epilog=_faults_told(),
        formatter_class=_Formatter,
    )
    _place(parser.add_argument_group("place"))
    _model(parser.add_argument_group("model"))
    _speed(parser.add_argument_group("speed"))
    _trouble(parser.add_argument_group("trouble"))
    return parser


def _told(name: str) -> str:
    """What a setting is for."""
    return next(help_of(field) for field in fields(SimSettings) if field.name == name)


def _place(group: Any) -> None:
    group.add_argument("--host", default=_DEFAULT.host, help=_told("host"))
    group.add_argument("--port", type=_port, default=8000, help="0 lets the kernel choose, -1 opens no TCP port")
    group.add_argument("--uds", metavar="PATH", default=None, help="listen on this Unix socket as well")
    group.add_argument("--api-key", dest="api_keys", action="append", metavar="KEY", help="needed on /v1; repeatable")
    group.add_argument(
        "--keep-alive-s", type=_bound("keep_alive_s"), default=_DEFAULT.keep_alive_s, help="idle connections close then"
    )


def _model(group: Any) -> None:
    group.add_argument("--model", type=_name, default=_DEFAULT.model, help="shown as the model's root")
    names = "what the model answers to, instead of --model; the first is what it calls itself"
    group.add_argument(
        "--served-model-name", dest="served_model_names", nargs="+", type=_name, metavar="NAME", help=names
    )
    group.add_argument("--lora-modules", nargs="+", type=_adapter, metavar="NAME=PATH", help="adapters served besides")
    group.add_argument(
        "--runner", choices=("any", "generate", "pooling"), default=_DEFAULT.runner, help=_told("runner")
    )
    group.add_argument(
        "--max-model-len", type=_bound("max_model_len"), default=_DEFAULT.max_model_len, help=_told("max_model_len")
    )
    group.add_argument(
        "--embedding-dim", type=_bound("embedding_dim"), default=_DEFAULT.embedding_dim, help=_told("embedding_dim")
    )
    group.add_argument(
        "--answer-tokens",
        type=_bound("answer_tokens"),
        default=_DEFAULT.answer_tokens,
        help="mean chat answer; 0: no end",
    )
    group.add_argument("--text", choices=("plain", "mixed"), default=_DEFAULT.text, help=_told("text"))
    for name, told in (
        ("request-id-headers", "x-request-id on every answer"),
        ("prompt-tokens-details", "cached tokens in usage"),
        ("per-request-metrics", "a metrics object in answers"),
        ("server-load-tracking", "/load counts"),
    ):
        field = "enable_" + name.replace("-", "_")
        default = getattr(_DEFAULT, field)
        group.add_argument(f"--enable-{name}", action=argparse.BooleanOptionalAction, default=default, help=told)


def _speed(group: Any) -> None:
    group.add_argument("--profile", type=_name, metavar="NAME|FILE", default=None, help=_told("profile"))
    group.add_argument(
        "--ttft-ms", type=_bound("ttft_ms"), default=_DEFAULT.ttft_ms, help="from prefill to the first token"
    )
    group.add_argument(
        "--ttft-jitter", type=_bound("ttft_jitter"), default=_DEFAULT.ttft_jitter, help="sigma of its log-normal factor"
    )
    told = "shared by all requests; 0 is free"
    group.add_argument(
        "--prefill-tokens-per-s", type=_bound("prefill_tokens_per_s"), default=_DEFAULT.prefill_tokens_per_s, help=told
    )
    group.add_argument(
        "--itl-ms", type=_bound("itl_ms"), default=_DEFAULT.itl_ms, help="between tokens; 0: as fast as possible"
    )
    group.add_argument(
        "--max-num-seqs", type=_bound("max_num_seqs"), default=_DEFAULT.max_num_seqs, help="running at once"
    )
    told = "running and waiting together; more get 503"
    group.add_argument(
        "--max-num-queued-reqs", type=_bound("max_num_queued_reqs"), default=None, metavar="N", help=told
    )
    policy = _DEFAULT.scheduling_policy
    group.add_argument(
        "--scheduling-policy", choices=("fcfs", "priority"), default=policy, help=_told("scheduling_policy")
    )
    group.add_argument("--block-size", type=_bound("block_size"), default=_DEFAULT.block_size, help=_told("block_size"))
    blocks = {"dest": "num_gpu_blocks", "default": _DEFAULT.num_gpu_blocks, "help": _told("num_gpu_blocks")}
    group.add_argument("--num-gpu-blocks-override", type=_bound("num_gpu_blocks"), **blocks)
    group.add_argument("--seed", type=int, default=None, help="of all that is drawn by chance")


def _trouble(group: Any) -> None:
    told = "what SIGTERM does: 0 hangs open streams, more drains them for so many seconds"
    group.add_argument(
        "--shutdown-timeout", type=_bound("shutdown_timeout"), default=_DEFAULT.shutdown_timeout, metavar="S", help=told
    )
    told = "arm a fault, such as stall:after_tokens=3,count=1 or slow:factor=8,share=0.05; repeatable"
    group.add_argument(
        "--fail", dest="faults", action="append", type=_fault, metavar="KIND[:NAME=VALUE,...]", help=told
    )
