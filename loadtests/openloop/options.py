"""The command line of load.py, as one checked value."""

import argparse
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from openloop.dialects import DIALECTS, Dialect, dialect_of
from openloop.lengths import FORMS, Lengths, parse_lengths
from openloop.schedule import Phase, parse_phases


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is to do. `phases` begins with the warm-up, if there is one."""

    server_name: str
    port: int
    tls: bool
    host: str
    path: str
    dialect: Dialect
    model: str
    headers: tuple[tuple[str, str], ...]
    stream: bool
    keepalive: bool
    phases: tuple[Phase, ...]
    poisson: bool
    seed: str
    prompt: Lengths
    shared_prefix: int
    max_tokens: Lengths
    connections: int
    timeout: float
    max_errors: float
    max_errors_is_share: bool
    max_lag: float
    json_file: str | None
    records_file: str | None
    progress: bool


def parse_options(arguments: Sequence[str], *, tty: bool) -> Options:
    """Read the command line; argparse ends the program with status 2 and a message where it is wrong."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        return _checked(given, tty=tty)
    except (ValueError, argparse.ArgumentTypeError) as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="load.py",
        description="Open-loop load for OpenAI-style endpoints. Latency counts from the scheduled send time.",
        epilog="Exit status: 0; 1 when there were more errors than --max-errors; 2 wrong usage.",
    )
    p.add_argument("--url", required=True, help="base address, such as http://127.0.0.1:8000")
    p.add_argument("--path", default="/v1/chat/completions", help="default: %(default)s")
    p.add_argument("--dialect", choices=sorted(DIALECTS), help="the API spoken; default: told by the path")
    p.add_argument("--model", default="mock", help="default: %(default)s")
    p.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'", help="may be given many times")
    p.add_argument("--stream", action=argparse.BooleanOptionalAction, default=True, help="streamed answers (default)")
    p.add_argument("--unary", action="store_false", dest="stream", help="whole answers")
    load = p.add_argument_group("load")
    load.add_argument("--rate", type=_above_zero, default=10.0, metavar="PER_SECOND", help="default: 10")
    load.add_argument("--duration", type=_above_zero, default=10.0, metavar="SECONDS", help="default: 10")
    load.add_argument(
        "--phases", metavar="RATExSECONDS,...", help="several rates in sequence, in place of the two above"
    )
    load.add_argument("--warmup", type=_not_negative, default=0.0, metavar="SECONDS", help="sent first, not measured")
    load.add_argument("--arrivals", choices=("poisson", "constant"), default="poisson", help="default: %(default)s")
    load.add_argument("--seed", default="1", help="of arrivals, lengths and prompts; default: %(default)s")
    load.add_argument("--prompt", default="100", metavar="TOKENS", help=f"{FORMS} (one word = one token); default: 100")
    load.add_argument(
        "--shared-prefix", type=_count_or_zero, default=0, metavar="TOKENS", help="the same in all prompts"
    )
    load.add_argument("--max-tokens", default="64", metavar="TOKENS", help=f"{FORMS}; default: 64")
    load.add_argument("--connections", type=_count, default=1024, metavar="N", help="at most; default: %(default)s")
    load.add_argument("--no-keepalive", action="store_false", dest="keepalive", help="a new connection a request")
    load.add_argument("--timeout", type=_above_zero, default=60.0, metavar="SECONDS", help="since due; default: 60")
    verdict = p.add_argument_group("verdict and output")
    verdict.add_argument("--max-errors", default="0", metavar="N|N%", help="more make exit status 1; default: 0")
    verdict.add_argument(
        "--max-lag", type=_above_zero, default=10.0, metavar="MS", help="loop lag p99 that voids a run"
    )
    verdict.add_argument("--json", metavar="FILE", dest="json_file", help="the figures as JSON")
    verdict.add_argument("--records", metavar="FILE", dest="records_file", help="one JSON line a request")
    verdict.add_argument("--progress", action="store_true", help="a line a second on stderr, terminal or not")
    return p


def _checked(given: argparse.Namespace, *, tty: bool) -> Options:
    url = urlsplit(given.url)
    if url.scheme not in ("http", "https") or not url.hostname or url.path not in ("", "/") or url.query:
        raise ValueError(f"--url {given.url}: expected http://HOST[:PORT], the path goes into --path")
    phases = parse_phases(given.phases) if given.phases else [Phase(given.rate, given.duration)]
    if given.warmup:
        phases.insert(0, Phase(phases[0].rate, given.warmup, measured=False))
    if not re.fullmatch(r"/[\x21-\x7e]*", given.path):
        raise ValueError(f"--path {given.path!r}: expected an ASCII path without spaces that begins with /")
    share = given.max_errors.endswith("%")
    return Options(
        server_name=url.hostname,
        port=url.port or (443 if url.scheme == "https" else 80),
        tls=url.scheme == "https",
        host=url.netloc.rpartition("@")[2],
        path=given.path,
        dialect=DIALECTS[given.dialect] if given.dialect else dialect_of(given.path),
        model=given.model,
        headers=tuple(_header(text) for text in given.header),
        stream=given.stream,
        keepalive=given.keepalive,
        phases=tuple(phases),
        poisson=given.arrivals == "poisson",
        seed=given.seed,
        prompt=parse_lengths(given.prompt),
        shared_prefix=given.shared_prefix,
        max_tokens=parse_lengths(given.max_tokens),
        connections=given.connections,
        timeout=given.timeout,
        max_errors=_not_negative(given.max_errors.removesuffix("%")) / (100 if share else 1),
        max_errors_is_share=share,
        max_lag=given.max_lag,
        json_file=given.json_file,
        records_file=given.records_file,
        progress=given.progress or tty,
    )


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or re.search(r"[\r\n\0]", value):
        raise ValueError(f"--header {text!r}: expected 'Name: value'")
    if name.lower() in ("content-length", "transfer-encoding"):
        raise ValueError(f"--header {name}: the length is set by the generator")
    value.encode("latin-1")
    return name, value.strip()


def _number(least: float, *, above: bool, kind: Callable[[str], float] = float) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = kind(text)
        if not math.isfinite(value) or value < least or (above and value == least):
            raise argparse.ArgumentTypeError(f"{text}: must be {'above' if above else 'at least'} {least:g}")
        return value

    return number


_above_zero = _number(0, above=True)
_not_negative = _number(0, above=False)
_count = _number(1, above=False, kind=int)
_count_or_zero = _number(0, above=False, kind=int)
