"""`tailrace keys`: create, list, rotate, revoke, disable and enable API keys where the `auth` plugin reads them.

It stands here, and not among the core's own commands, because the store is the plugin's, which the core does not know.
A running gateway takes up every change by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tailrace.plugins.auth.mint import digest_of, new_id, new_key
from tailrace.plugins.auth.postgres import PostgresDatabase
from tailrace.plugins.auth.record import FOREVER, Record, Status, checked_id, grants_of, moment
from tailrace.plugins.auth.settings import Config
from tailrace.plugins.auth.sqlite import NAME, SqliteDatabase
from tailrace.plugins.auth.store import KeyStore, StoreFailed, Unknown
from tailrace.proxy.config import ConfigError, parse
from tailrace.proxy.config.secret import without_userinfo
from tailrace.proxy.configuration import load
from tailrace.proxy.settings import Gateway, state_folder

OVERLAP: Final = "24h"
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_COLUMNS: Final = ("ID", "TENANT", "STATUS", "TAGS", "MODELS", "CREATED", "EXPIRES", "OLD KEY UNTIL")


def main(argv: Sequence[str]) -> int:
    """Run one action; the exit code."""
    options = parser().parse_args(argv)
    try:
        with contextlib.closing(opened(options)) as store:
            return int(options.run(options, store))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except (ValueError, argparse.ArgumentTypeError) as error:
        print(f"tailrace keys: {error}", file=sys.stderr)
        return 2
    except (StoreFailed, Unknown, OSError) as error:
        print(f"tailrace keys: {error}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """The actions and their arguments."""
    place = argparse.ArgumentParser(add_help=False)
    where = place.add_mutually_exclusive_group()
    where.add_argument("--config", metavar="FILE", help="the gateway's file, which says where its keys are")
    where.add_argument("--state", metavar="FOLDER", type=Path, help="the gateway's state folder")
    where.add_argument("--database", metavar="URL", help="the PostgreSQL database (default: $TAILRACE_KEYS)")
    top = argparse.ArgumentParser(prog="tailrace keys", description="API keys of a gateway with the `auth` plugin.")
    actions = top.add_subparsers(title="actions", metavar="ACTION", required=True)
    _describe_create(actions.add_parser("create", parents=[place], help="make a key and print it, this once"))
    listing = actions.add_parser("list", parents=[place], help="show the keys, but not what opens the door")
    listing.add_argument("--json", action="store_true", help="one JSON object a line")
    listing.set_defaults(run=list_keys)
    rotate = actions.add_parser("rotate", parents=[place], help="print a new key; the old one goes on for a while")
    rotate.add_argument("id", metavar="ID")
    rotate.add_argument("--overlap", type=seconds, default=OVERLAP, help="how long it goes on (default: %(default)s)")
    rotate.set_defaults(run=rotate_key)
    for name, told, status, done in (
        ("revoke", "close the door to a key for good", Status.REVOKED, "is revoked"),
        ("disable", "close it until the key is enabled", Status.DISABLED, "is disabled"),
        ("enable", "open it again", Status.LIVE, "is enabled"),
    ):
        action = actions.add_parser(name, parents=[place], help=told)
        action.add_argument("id", metavar="ID")
        action.set_defaults(run=change_status, status=status, done=done)
    return top


def _describe_create(action: argparse.ArgumentParser) -> None:
    action.add_argument("--tenant", required=True, help="whose use it counts as")
    action.add_argument("--id", type=str, default=None, help="a public name of its own (default: a random one)")
    for name, told in (
        ("tag", "a tag"),
        ("model", "a model that it may use; * stands for any text (default: all)"),
        ("route", "the name of a route that it may use (default: all)"),
        ("class", "a class of service that it may ask for (default: all)"),
        ("limit", "a bound, such as '{requests: 60, per: minute}'"),
    ):
        action.add_argument(f"--{name}", dest=f"{name}_", metavar=name.upper(), action="append", help=f"{told}; repeat")
    action.add_argument("--expires", default=None, help="2027-01-31, 2027-01-31T12:00:00Z, or from now: 30d, 12h")
    action.add_argument("--digest", default=None, help="the SHA-256 of a key that exists already; none is made then")
    action.set_defaults(run=create_key)


def opened(options: argparse.Namespace) -> KeyStore:
    """Where the keys are."""
    url = options.database or (None if options.config or options.state else os.environ.get("TAILRACE_KEYS"))
    if options.config:
        settings = load(options.config, look=False).settings
        found = [entry.config for entry in settings.plugins if isinstance(entry.config, Config)]
        if found and found[0].database is not None:
            url = found[0].database.reveal()
        folder = state_folder(settings)
    else:
        folder = options.state or state_folder(Gateway(listen=(), models={}))
    options.kept_in = without_userinfo(url) if url else folder / NAME
    return KeyStore(PostgresDatabase(url) if url else SqliteDatabase(folder / NAME))


def create_key(options: argparse.Namespace, store: KeyStore) -> int:
    """Make a key, or take in one that exists."""
    key_id = new_id() if options.id is None else checked_id(options.id)
    key = None if options.digest else new_key(key_id)
    digest = _hex(options.digest) if key is None else digest_of(key.encode())
    grants = grants_of(
        {
            "tenant": options.tenant,
            "tags": options.tag_,
            "models": options.model_,
            "routes": options.route_,
            "classes": options.class_,
            "limits": [_plain(text) for text in options.limit_ or ()],
        }
    )
    store.add(Record(id=key_id, digest=digest, expires=_expiry(options.expires), created=time.time(), **grants))
    print(f"kept in {options.kept_in}", file=sys.stderr)
    _show(key_id, key)
    return 0


def rotate_key(options: argparse.Namespace, store: KeyStore) -> int:
    """A new key for an id."""
    key = new_key(options.id)
    store.rotate(options.id, digest_of(key.encode()), options.overlap)
    _show(options.id, key)
    return 0


def change_status(options: argparse.Namespace, store: KeyStore) -> int:
    """Revoke, disable or enable."""
    store.set_status(options.id, options.status)
    print(f"{options.id} {options.done}")
    return 0


def list_keys(options: argparse.Namespace, store: KeyStore) -> int:
    """Every key, by age."""
    rows = [_COLUMNS]
    for record in store.all():
        until = record.previous_until if record.previous is not None else None
        if options.json:
            times = {"created": record.created, "expires": _none(record.expires), "previous_until": until}
            print(json.dumps({**record.to_plain(), **times}))
            continue
        models = ",".join(record.models) if record.models is not None else "any"
        times_shown = (_time(record.created), _time(record.expires), _time(until))
        status = record.status.name.lower()
        rows.append((record.id, record.tenant, status, ",".join(record.tags) or "-", models, *times_shown))
    if not options.json:
        widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
        print("\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows))
    return 0


def seconds(text: str) -> float:
    """A duration such as 24h."""
    number, unit = text[:-1], text[-1:]
    if unit in _SECONDS and number.isdigit():
        return float(int(number) * _SECONDS[unit])
    raise argparse.ArgumentTypeError(f"'{text}' is no duration such as 30m, 24h or 7d")


def _show(key_id: str, key: str | None) -> None:
    """The key alone on standard output, so that a script can take it; all else beside it."""
    if key is None:
        print(f"{key_id} is stored", file=sys.stderr)
        return
    print(f"{key_id} is ready; this is the only time that its key is shown:", file=sys.stderr)
    print(key)


def _expiry(text: str | None) -> float:
    try:
        return FOREVER if text is None else time.time() + seconds(text)
    except argparse.ArgumentTypeError:
        return moment("--expires", text, FOREVER)


def _plain(text: str) -> Any:
    node = parse(f"limit: {text}", "--limit").root.get("limit")
    return None if node is None else node.plain()


def _hex(text: str) -> bytes:
    if len(text) != 64 or not all(letter in "0123456789abcdefABCDEF" for letter in text):
        raise ValueError("--digest must be the SHA-256 of a key, as 64 hexadecimal digits")
    return bytes.fromhex(text)


def _none(moment_: float) -> float | None:
    return None if moment_ == FOREVER else moment_


def _time(moment_: float | None) -> str:
    if moment_ is None or moment_ in (FOREVER, 0.0):
        return "-"
    return datetime.fromtimestamp(moment_, UTC).strftime("%Y-%m-%d %H:%M")
