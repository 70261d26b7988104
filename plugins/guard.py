"""Bounds on what a call may ask for: which models, how many tokens, how many choices."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Literal

from tailrace.proxy.asked import CHOICE_FIELDS, ENGINE_DEFAULT, TOKEN_FIELDS, whole_number
from tailrace.proxy.config import At, AtLeast, setting
from tailrace.proxy.fault import Reject
from tailrace.proxy.plugin import Plugin

if TYPE_CHECKING:
    from tailrace.proxy.body import JsonBody
    from tailrace.proxy.call import Call
    from tailrace.proxy.reply import Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxTokens:
    """Bounds on the tokens of one answer."""

    default: Annotated[int, AtLeast(1)] | None = setting(
        default=None, help="what a request that names no bound gets; without it, the cap"
    )
    cap: Annotated[int, AtLeast(1)] | None = setting(
        default=None, help="the most that a request may ask for, and the bound of one that names none"
    )
    above: Literal["lower", "refuse"] = setting(
        default="lower", help="what becomes of a request for more", why="clients ask for far more than they need"
    )

    def check(self) -> Iterable[At]:
        """A default above the cap would never be used."""
        if self.cap is not None and self.default is not None and self.default > self.cap:
            yield At(f"the default of {self.default} is above the cap of {self.cap}", "default")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What is allowed; what is not given is not bounded."""

    models: tuple[str, ...] | None = setting(
        default=None, help="model names that may be asked for; * stands for any text"
    )
    refuse_with: Literal["model_not_allowed", "model_not_found"] = setting(
        default="model_not_allowed", help="403, or the 404 of a model that does not exist", why="says what to ask for"
    )
    max_tokens: MaxTokens = setting(default_factory=MaxTokens, help="bounds on the tokens of one answer")
    max_choices: Annotated[int, AtLeast(1)] | None = setting(
        default=None, help="the most that `n` and `best_of` may be", why="each choice is an answer of its own"
    )

    def remark(self, models: Collection[str]) -> Iterator[str]:
        """Names that nobody can ask for as things stand; an adapter that workers list may have one later."""
        for name in self.models or ():
            if not any(fnmatchcase(model, _pattern(name)) for model in models):
                yield f"guard allows '{name}', which no name under `models` matches: only an adapter can be meant"
        if self.models is not None and not self.models:
            yield "guard allows no model at all"


_Config = Config  # inside the class the name means its attribute


class Guard(Plugin[Config]):
    """Refuses or lowers; what it lowers the worker sees, and nothing else of the body changes."""

    Config = Config

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        models = config.models
        self._exact = None if models is None else frozenset(name for name in models if "*" not in name)
        self._patterns = tuple(_pattern(name) for name in models or () if "*" in name)
        tokens = config.max_tokens
        self._bounds_tokens = tokens.cap is not None or tokens.default is not None

    def on_request(self, call: Call) -> Reply | None:
        """Check the whole request."""
        if self._exact is not None and call.model and call.model not in self._exact:
            self._check_model(call.model)
        body = call.body
        if body is not None:
            if self._bounds_tokens and call.route.name in TOKEN_FIELDS:
                self._bound_tokens(call, body)
            if self.config.max_choices is not None:
                self._check_choices(call, body, self.config.max_choices)
        return None

    def _check_model(self, model: str) -> None:
        if any(fnmatchcase(model, pattern) for pattern in self._patterns):
            return
        if self.config.refuse_with == "model_not_found":
            text = f"The model '{model[:128]}' does not exist or is not served here."
            raise Reject(404, "model_not_found", text, param="model", kind="unknown_model")
        raise Reject(403, "model_not_allowed", f"The model '{model[:128]}' is not allowed here.", param="model")

    def _bound_tokens(self, call: Call, body: JsonBody) -> None:
        tokens, route = self.config.max_tokens, call.route.name
        fields = TOKEN_FIELDS[route]
        named = False
        for field in fields:
            asked = whole_number(body, field)
            if asked is None:
                continue
            named = True
            if tokens.cap is not None and asked > tokens.cap:
                if tokens.above == "refuse":
                    text = f"'{field}' must be at most {tokens.cap}, got {asked}."
                    raise Reject(400, "invalid_request_error", text, param=field, kind="bad_request")
                call.edit(field, b"%d" % tokens.cap)
        if named:
            return
        default = tokens.default
        if default is None:
            assert tokens.cap is not None
            if ENGINE_DEFAULT.get(route, tokens.cap + 1) <= tokens.cap:
                return
            default = tokens.cap
        call.edit(fields[0], b"%d" % default)

    def _check_choices(self, call: Call, body: JsonBody, most: int) -> None:
        for field in CHOICE_FIELDS.get(call.route.name, ()):
            asked = whole_number(body, field)
            if asked is not None and asked > most:
                text = f"'{field}' must be at most {most}, got {asked}."
                raise Reject(400, "invalid_request_error", text, param=field, kind="bad_request")


def _pattern(name: str) -> str:
    """A pattern in which only * is special."""
    return name.replace("[", "[[]").replace("?", "[?]")
