"""The refusals of `auth`: what a client is told, and the label under which each is counted. No credential is in any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailrace.proxy.fault import Reject

_CHALLENGE: Final = ((b"www-authenticate", b"Bearer"),)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why somebody may not call."""

    reason: str
    message: str
    status: int = 401
    code: str = "invalid_api_key"
    retry_after: float | None = None
    param: str | None = None

    def reject(self) -> Reject:
        """The refusal of one call."""
        headers = _CHALLENGE if self.status == 401 else ()
        return Reject(
            self.status, self.code, self.message, param=self.param, retry_after=self.retry_after, headers=headers
        )


MISSING: Final = Verdict("missing", "No API key was given: send it as 'Authorization: Bearer KEY'.")
UNKNOWN: Final = Verdict("unknown", "The API key is not valid.")
REVOKED: Final = Verdict("revoked", "The API key was revoked.")
DISABLED: Final = Verdict("disabled", "The API key is disabled.")
EXPIRED: Final = Verdict("expired", "The API key has expired.")
BAD_TOKEN: Final = Verdict("token", "The token is not valid, or has expired.")
SCOPE: Final = Verdict("scope", "None of the token's scopes allows anything here.", 403, "permission")
UNREADABLE: Final = Verdict(
    "store_down", "Whether the API key is valid cannot be said at the moment.", 503, "auth_unavailable", 1.0
)
UNVERIFIABLE: Final = Verdict(
    "issuer_down", "The token's signature cannot be verified at the moment.", 503, "auth_unavailable", 1.0
)


def no_route(route: str) -> Verdict:
    """The key is good, but not for this route."""
    return Verdict("route", f"This API key may not use the route '{route}'.", 403, "permission")


def no_model(model: str) -> Verdict:
    """The key is good, but not for this model."""
    message = f"This API key may not use the model '{model[:128]}'."
    return Verdict("model", message, 403, "model_not_allowed", param="model")
