"""Compiles the modules of the request path with mypyc where a C compiler is there.

The same files run as they are where it is not, and in an editable install, where a compiled copy would hide the source
that is being edited. TAILRACE_COMPILE=0 turns it off, TAILRACE_COMPILE=1 makes its failure an error.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).parent
STAGE = HERE / "build" / "mypyc"
# What every request or token runs through; the rest gains nothing. Not among them, though as hot:
# - `fault`, whose exceptions plugins subclass: compiled classes take no subclass;
# - `stride`, to which libraries hold weak references, and that crashes if it is compiled below a class that is not;
# - what awaits plugins' code (`admit_late`, `replies`): see `Apart` in `proxy/stride.py`.
HOT = (
    "plugins/access_log_line",
    "plugins/access_log_queue",
    "plugins/billing/bill",
    "plugins/billing/clerk",
    "plugins/billing/ratios",
    "plugins/breaker/circuit",
    "plugins/breaker/hearing",
    "plugins/breaker/outliers",
    "plugins/breaker/panel",
    "plugins/breaker/record",
    "plugins/hedge/latencies",
    "plugins/hedge/hedges",
    "plugins/rescue_streams",
    "plugins/retry_means",
    "plugins/service_class_choice",
    "plugins/timing_telling",
    "plugins/trace/keeping",
    "plugins/trace/tracer",
    "plugins/admission/desk",
    "plugins/admission/foresight",
    "plugins/admission/line",
    "plugins/admission/usher",
    "plugins/cache/desk",
    "plugins/deadline/alarms",
    "plugins/deadline/budgets",
    "plugins/deadline/forecast",
    "plugins/deadline/timekeeper",
    "plugins/quota/accounts",
    "plugins/quota/answers",
    "plugins/quota/book",
    "plugins/quota/demand",
    "plugins/quota/desk",
    "plugins/quota/estimates",
    "plugins/quota/lease",
    "plugins/quota/purse",
    "plugins/quota/reservation",
    "plugins/route/affinity",
    "plugins/route/familiar",
    "plugins/route/grounds",
    "plugins/route/lessons",
    "plugins/route/ring",
    "plugins/route/simple",
    "plugins/route/tail",
    "plugins/route/tempo",
    "plugins/route/trip",
    "plugins/route/usual",
    "plugins/route/worth",
    "plugins/auth/credential",
    "plugins/auth/gate",
    "plugins/auth/grant",
    "proxy/admit",
    "proxy/allowing",
    "proxy/answering",
    "proxy/answers",
    "proxy/asked",
    "proxy/attempt",
    "proxy/attended",
    "proxy/body",
    "proxy/budget",
    "proxy/call",
    "proxy/chain",
    "proxy/choosing",
    "proxy/closing",
    "proxy/delivery",
    "proxy/depth",
    "proxy/dialects",
    "proxy/finish",
    "proxy/ending",
    "proxy/fleet",
    "proxy/framing",
    "proxy/harvest",
    "proxy/head",
    "proxy/headers",
    "proxy/intake",
    "proxy/ledger/account",
    "proxy/ledger/ages",
    "proxy/ledger/chain",
    "proxy/ledger/entry",
    "proxy/ledger/keeper",
    "proxy/ledger/ring",
    "proxy/ledger/settled",
    "proxy/ledger/slots",
    "proxy/ledger/totals",
    "proxy/memory",
    "proxy/metrics/calls",
    "proxy/metrics/generation",
    "proxy/metrics/stages",
    "proxy/open_event",
    "proxy/outcome",
    "proxy/outlook",
    "proxy/pace",
    "proxy/parsing",
    "proxy/passage",
    "proxy/pattern",
    "proxy/peer",
    "proxy/pipeline",
    "proxy/pool",
    "proxy/race",
    "proxy/receiving",
    "proxy/relay",
    "proxy/repeat",
    "proxy/repeatable",
    "proxy/rescue/continuation",
    "proxy/rescue/doubted",
    "proxy/rescue/question",
    "proxy/rescue/step",
    "proxy/rescue/trail",
    "proxy/retry_budget",
    "proxy/routes",
    "proxy/runners",
    "proxy/sending",
    "proxy/serve",
    "proxy/server",
    "proxy/service",
    "proxy/signal",
    "proxy/sink",
    "proxy/skim",
    "proxy/sse",
    "proxy/stages",
    "proxy/standing",
    "proxy/stored/asking",
    "proxy/stored/canonical",
    "proxy/stored/wishes",
    "proxy/stream_ending",
    "proxy/stream_relay",
    "proxy/sweep",
    "proxy/taps",
    "proxy/tariff",
    "proxy/trace/context",
    "proxy/trace/record",
    "proxy/trace/ring",
    "proxy/upstream",
    "proxy/usage",
    "proxy/waiting",
    "proxy/watch/asked",
    "proxy/watch/reach",
    "proxy/watch/silence",
    "proxy/watch/subscription",
    "proxy/watch/vigil",
    "proxy/wire",
    "worker/surface",
)


def extensions() -> list[Extension]:
    """The compiled modules, none where they are not wanted or cannot be made."""
    wanted = os.environ.get("TAILRACE_COMPILE", "auto")
    building = {"bdist_wheel", "build_ext", "install"} & set(sys.argv)
    if wanted == "0" or "editable_wheel" in sys.argv or not building:
        return []
    try:
        return compiled()
    except (Exception, SystemExit) as error:
        if wanted == "1":
            raise
        print(f"tailrace: installed without compiled modules ({error})", file=sys.stderr)
        return []


def compiled() -> list[Extension]:
    """Have mypyc translate the hot modules, under the names they are imported by."""
    from mypyc.build import mypycify

    shutil.rmtree(STAGE, ignore_errors=True)
    for package in ("proxy", "plugins", "worker"):
        shutil.copytree(HERE / package, STAGE / "tailrace" / package, ignore=shutil.ignore_patterns("__pycache__"))
    os.environ["MYPYPATH"] = str(STAGE)
    paths = [str(STAGE / "tailrace" / f"{name}.py") for name in HOT]
    # Without the project's own strictness: the build environment has not the types of its dependencies.
    options = ["--config-file=", "--namespace-packages", "--explicit-package-bases", "--ignore-missing-imports"]
    made: list[Extension] = mypycify([*options, *paths], group_name="tailrace", opt_level="3")
    for extension in made:
        extension.optional = os.environ.get("TAILRACE_COMPILE", "auto") != "1"
    return made


setup(ext_modules=extensions())
