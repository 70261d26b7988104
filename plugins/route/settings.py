"""What the YAML says about routing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Final, Literal

from tailrace.proxy.config import Above, At, AtLeast, AtMost, NotEmpty, Seconds, Size, setting

_HEADER: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How a worker is chosen; all but `policy` is for `policy: tail`."""

    policy: Literal["least_inflight", "random", "round_robin", "tail"] = setting(
        default="least_inflight",
        help="fewest calls under way, any worker, each in turn, or the soonest first token",
        why="one slow answer must not have others queue behind it",
    )
    prefix: Annotated[Size, AtMost(16384)] = setting(
        default=1024,
        help="calls that agree in so much of their prompt go to one worker; 0 is off",
        why="engines keep the work that they did for a prompt's beginning",
    )
    session_headers: tuple[Annotated[str, NotEmpty()], ...] = setting(
        default=("x-session-id",), help="request headers, the first that is there names a session: one worker has it"
    )
    session_fields: tuple[Annotated[str, NotEmpty()], ...] = setting(
        default=("prompt_cache_key", "user"), help="else fields of the body that do"
    )
    load_factor: Annotated[float, AtLeast(1), AtMost(10)] = setting(
        default=1.25,
        help="a worker with more than so many times the mean load gets no call for the sake of its prefix or session",
    )
    decay: Annotated[Seconds, Above(0)] = setting(
        default=10.0, help="how long a worker's slow answers are remembered", why="a spike counts at once, then fades"
    )
    penalty: Seconds = setting(
        default=5.0, help="what a fault adds to a worker's predicted time; half of it is gone every two seconds"
    )
    region: Annotated[str, NotEmpty()] | None = setting(
        default=None, help="workers of this region come first; all are alike without it"
    )
    region_margin: Seconds = setting(
        default=0.05, help="how much sooner another region's worker must be expected to answer"
    )

    def check_names(self) -> Iterator[At]:
        """Names that no header can have."""
        for number, name in enumerate(self.session_headers):
            if not _HEADER.fullmatch(name):
                yield At(f"'{name}' cannot be the name of a header", "session_headers", number)

    def check(self) -> Iterator[At]:
        """Settings without effect."""
        if self.policy == "tail":
            yield from self.check_names()
            return
        plain = Config(policy=self.policy)
        for field in fields(self):
            if getattr(self, field.name) != getattr(plain, field.name):
                yield At(f"`{field.name}` is for `policy: tail`; {self.policy} does without", field.name)
