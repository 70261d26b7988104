"""What can be written under `semantic_cache`: for which calls, how near a question has to be, and what it may hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, get_args

from tailrace.plugins.semantic_cache.embedding import missing
from tailrace.plugins.semantic_cache.guards import Guard
from tailrace.proxy.config import Above, At, AtLeast, AtMost, Matching, NotEmpty, Seconds, Size, setting
from tailrace.proxy.named import no_model
from tailrace.proxy.personal import Named

ALL_GUARDS: Final[tuple[Guard, ...]] = get_args(Guard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Questions that are compared with each other, and with no others."""

    name: Annotated[str, Matching(r"[a-z0-9_-]{1,40}", "small letters, digits, - and _")] = setting(
        help="what metrics and headers call it"
    )
    model: tuple[str, ...] = setting(
        default=(), help="models whose calls belong to it; without any, only calls that name it in a header do"
    )
    threshold: Annotated[float, AtLeast(0.5), AtMost(1)] = setting(
        default=0.8,
        help="how near a question has to be: the cosine of the two vectors",
        why="see the table of false hits",
    )
    guards: tuple[Guard, ...] = setting(
        default=ALL_GUARDS,
        help="in what two questions have to agree beside that",
        why="vectors hardly see the difference",
    )
    ttl: Annotated[Seconds, Above(0)] = setting(default=3600.0, help="how long an answer is given again")
    shadow: bool = setting(
        default=True,
        help="whether it only reports what it would have answered",
        why="look at its choices before its users have to",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The first domain that a call belongs to is its domain; one without a domain is never answered from here."""

    domains: Annotated[tuple[Domain, ...], NotEmpty()] = setting(help="what questions are about")
    header: Annotated[str, Matching(r"[A-Za-z0-9-]+", "the name of a header")] = setting(
        default="x-tailrace-domain", help="the request header in which a call may name its domain"
    )
    memory: Size = setting(default=67108864, help="the most that answers and vectors take in each process")
    longest_question: Annotated[int, AtLeast(1), AtMost(8192)] = setting(
        default=300,
        help="characters; longer ones are left alone",
        why="an average of many words is near to most others",
    )
    largest_request: Size = setting(default=32768, help="bytes; larger ones are left alone")
    largest_answer: Size = setting(default=65536, help="bytes; larger ones are not kept")
    personal: tuple[Named, ...] = setting(
        default=("email", "credit_card", "us_ssn", "iban", "api_key", "ipv4", "phone"),
        help="patterns; what has any of them in request or answer is neither kept nor looked up",
    )
    report: Path | None = setting(
        default=None,
        help="a file that gets a line of JSON for each answer that it would have given, or gave, with both questions",
        why="people's questions stand in it",
    )
    largest_report: Size = setting(default=16777216, help="where that file ends")

    def check(self) -> Iterable[At]:
        """Domains that come twice, or that no call can have."""
        names = [domain.name for domain in self.domains]
        for number, name in enumerate(names):
            if name in names[:number]:
                yield At(f"the domain '{name}' is listed twice", "domains", number, "name")

    def look(self) -> Iterable[str | At]:
        """Packages and folders that are not there."""
        if missing():
            yield f"{', '.join(missing())} missing: pip install 'tailrace[semantic]'"
        if self.report is not None and not self.report.parent.is_dir():
            yield At(f"there is no folder {self.report.parent}", "report")

    def unknown_names(self, models: Collection[str], pools: Collection[str]) -> Iterator[At]:
        """Models that are not there: their domain would stay empty."""
        for number, domain in enumerate(self.domains):
            for place, name in enumerate(domain.model):
                if name not in models:
                    yield At(no_model(name), "domains", number, "model", place)
