"""`tailrace check`: what a file means, with every default filled in, or everything that is wrong in it."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from tailrace.proxy.build import all_pools
from tailrace.proxy.config import parse, render
from tailrace.proxy.config.render import written
from tailrace.proxy.config.secret import shown
from tailrace.proxy.config.shapes import record_of
from tailrace.proxy.configuration import Configuration, load
from tailrace.proxy.discovery.carrying import counted
from tailrace.proxy.discovery.settings import WorkerEntry
from tailrace.proxy.entry import PluginEntry, chain_links
from tailrace.proxy.notes import notes
from tailrace.proxy.pipeline import Pipeline
from tailrace.proxy.settings import Gateway, Relay

NAME = "check"
HELP = "say what a configuration file means, or what is wrong in it"
_ABOUT = re.compile(r"plugins\[(\d+)\]: ")
_WAITS = ("stale", "pre_stop", "drain")
_COMMON = frozenset(field.name for field in dataclasses.fields(Relay)) | {"role"}


def describe(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("file", metavar="FILE", help="the YAML file of a gateway or worker")
    parser.add_argument(
        "--elsewhere", action="store_true", help="the file is for another machine: let files and programs be missing"
    )
    parser.add_argument(
        "--yaml", action="store_true", help="print the whole file with every default, instead of a summary"
    )


def run(options: argparse.Namespace) -> int:
    """Print it; a faulty file ends with exit code 2 and a line for each fault."""
    configuration = load(options.file, look=not options.elsewhere, elsewhere=options.elsewhere)
    if options.yaml:
        print(render(configuration.settings), end="")
    else:
        print("\n".join(summary(configuration)))
    return 0


def summary(configuration: Configuration) -> Iterator[str]:
    """What an operator wants to see before a start; secrets are masked."""
    settings = configuration.settings
    yield f"{configuration.name}: a {configuration.role_name} in {_count(settings.processes, 'process', 'processes')}"
    yield "listeners"
    for listener in settings.listen:
        marks = ["TLS"] if listener.tls is not None else []
        marks += ["client certificates"] if listener.tls is not None and listener.tls.client_ca is not None else []
        marks += ["PROXY protocol"] if listener.proxy_protocol else []
        marks += [f"trusts {', '.join(listener.trusted_proxies)}"] if listener.trusted_proxies else []
        yield f"  {shown(listener.address)}{_within(marks)}"
    token = "with a token" if settings.admin.token is not None else "without a token"
    yield "admin port"
    yield "  off" if settings.admin.address == "off" else f"  {shown(settings.admin.address)} ({token})"
    yield from _chain(settings)
    if isinstance(settings, Gateway):
        yield from _models(settings)
    else:
        yield from _rest(settings)
    yield from _bounds(settings)
    told = list(notes(settings))
    if told:
        yield "worth knowing"
    for note in told:
        yield f"  {_placed(note, configuration)}"


def _placed(note: str, configuration: Configuration) -> str:
    """A note with the line of the plugin that it is about, as faults have it."""
    about = _ABOUT.match(note)
    plugins = parse(configuration.text, configuration.name, elsewhere=True).root.get("plugins")
    if about is None or plugins is None:
        return note
    return f"{configuration.name}:{plugins.elements()[int(about[1])].line}: {note}"


def _chain(settings: Relay) -> Iterator[str]:
    yield "plugins, in the order of a request" if settings.plugins else "plugins: none"
    pipeline = Pipeline.of(chain_links(settings.plugins))
    for number, (entry, link) in enumerate(zip(settings.plugins, pipeline.links, strict=True)):
        yield f"  plugins[{number}]: {entry.name}{_within(_terms(entry, link.budget))}"
        yield f"     phases: {', '.join(pipeline.phases_of(link)) or 'none'}"
        for line in render(entry.config).splitlines():
            if line != "{}":
                yield f"     {line}"


def _terms(entry: PluginEntry, budget: float | None) -> list[str]:
    terms = entry.terms
    marks = [] if budget is None else [f"budget {budget * 1000:g} ms"]
    marks += [f"weight {terms.weight:g}"] if terms.weight != 1 else []
    marks += ["when it fails, calls pass"] if terms.on_error == "open" else []
    if terms.when is not None:
        given = {field.name: getattr(terms.when, field.name) for field in dataclasses.fields(terms.when)}
        marks += [f"only where {name} is {_listed(value)}" for name, value in given.items() if value not in (None, ())]
    return marks


def _models(settings: Gateway) -> Iterator[str]:
    yield "models"
    for name, model in settings.models.items():
        served = model.lora or model.served_as
        marks = [f"adapter {shown(served)}" if model.lora else f"served as {shown(served)}"] if served else []
        marks += ["the default"] if name == settings.default_model else []
        marks += ["answers renamed"] if model.rename else []
        yield f"  {name} -> {model.pool or f'model:{name}'}{_within(marks)}"
    yield "pools"
    for name, pool in all_pools(settings).items():
        marks = ["API key ***"] if pool.api_key is not None else []
        marks += ["TLS settings"] if pool.tls is not None else []
        marks += [] if pool.peak is None else [f"peak {pool.peak} calls, counted at {pool.concurrency} a worker"]
        yield f"  {name}{_within(marks)}"
        for worker in pool.workers:
            yield f"    {_worker(worker)}"
    if settings.routes:
        yield "further paths"
    for route in settings.routes:
        yield f"  {'/'.join(route.methods)} {shown(route.path)} -> {route.pool}"


def _worker(entry: WorkerEntry) -> str:
    marks = [] if entry.weight == 1 else [f"weight {entry.weight:g}"]
    marks += [f"region {entry.region}"] if entry.region else []
    if entry.file is not None and (now := counted([entry])) is not None:
        marks.insert(0, f"{_count(now, 'worker', 'workers')} now")
    return f"{shown(entry.shown)}{_within(marks)}"


def _bounds(settings: Relay) -> Iterator[str]:
    """Every wait and size that holds, in few lines; `--yaml` has one a line."""
    plain: dict[str, Any] = record_of(type(settings)).plain(settings)
    heartbeat = plain["heartbeat"] if settings.heartbeat else "off"
    ends = {"heartbeat": heartbeat, **{name: plain[name] for name in _WAITS if name in plain}}
    for title, values in (("timeouts", plain["timeouts"] | ends), ("limits", plain["limits"])):
        yield title
        pairs = [f"{name} {'none' if value is None else value}" for name, value in values.items()]
        # A space of its own keeps a name and its value together.
        lines = wrap(", ".join(pair.replace(" ", "\xa0") for pair in pairs), 110)
        yield from (f"  {line}".replace("\xa0", " ") for line in lines)


def _rest(settings: Relay) -> Iterator[str]:
    """What only this role has, as the file would say it."""
    plain: dict[str, Any] = record_of(type(settings)).plain(settings)
    yield from written({key: value for key, value in plain.items() if key not in _COMMON}).splitlines()


def _within(marks: list[str]) -> str:
    return f" ({'; '.join(marks)})" if marks else ""


def _listed(value: object) -> str:
    return " or ".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
