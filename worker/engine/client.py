"""The sidecar's own questions to its engine: health, load, models, prompts. Every one is bounded in time and size."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType

import aiohttp
import orjson
from tailrace.proxy.watch.exposition import FILTERED, WHOLE
from tailrace.worker.engine.state import Model
from yarl import URL

LARGEST = 8 << 20
"""Bytes read of any answer; the metrics of a busy vLLM are 80 KB."""
MOST_MODELS = 1000


class Unanswered(Exception):  # noqa: N818 - silence is a fact about the engine
    """No answer: refused, cut or too late. `late` tells a silent engine from one that cannot be reached."""

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.late = late


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    body: bytes


class EngineClient:
    """Asks one engine at one address (`http://host:port` or `unix:/path`); use as an async context manager."""

    def __init__(self, target: str, api_key: str | None = None, timeout: float = 2.0) -> None:
        self._path = target.removeprefix("unix:") if target.startswith("unix:") else None
        self._base = "http://engine" if self._path is not None else target.rstrip("/")
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = timeout
        self._filters = True
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> EngineClient:
        connector: aiohttp.BaseConnector = (
            aiohttp.TCPConnector(limit=8) if self._path is None else aiohttp.UnixConnector(self._path, limit=8)
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"accept-encoding": "identity", "user-agent": "tailrace-worker"},
            timeout=aiohttp.ClientTimeout(total=None),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def ask(
        self, path: str, body: object = None, *, limit: float | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request; the answer's body is to be read inside. Raises Unanswered, also while it is read."""
        if self._session is None:
            raise Unanswered("the client is closed")
        limit = self._timeout if limit is None else limit
        try:
            async with (
                asyncio.timeout(limit),
                self._session.request(
                    "GET" if body is None else "POST",
                    URL(self._base + path, encoded=True),
                    data=None if body is None else orjson.dumps(body),
                    headers=self._headers | ({} if body is None else {"content-type": "application/json"}),
                    allow_redirects=False,
                ) as response,
            ):
                yield response
        except TimeoutError:
            raise Unanswered(f"no answer to {path.partition('?')[0]} within {limit:g} s", late=True) from None
        except aiohttp.ClientConnectorError as error:
            raise Unanswered(f"no connection ({_cause(error.os_error)})") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unanswered(f"{path.partition('?')[0]}: {_cause(error)}") from error

    async def get(self, path: str, *, limit: float | None = None) -> Answer:
        """A whole answer."""
        async with self.ask(path, limit=limit) as response:
            return Answer(response.status, await whole(response))

    async def health(self) -> str | None:
        """None if the engine is well, else what it said. Raises Unanswered."""
        answer = await self.get("/health")
        if answer.status == 200:
            return None
        return f"/health answers {answer.status}"

    async def metrics(self) -> bytes | None:
        """The metrics that are wanted, and perhaps others; None where there are none. Raises Unanswered."""
        if self._filters:
            answer = await self.get(FILTERED)
            if answer.status == 200:
                return answer.body
        answer = await self.get(WHOLE)
        if answer.status != 200:
            return None
        # This one knows the exact path only: do not ask twice for each reading.
        self._filters = False
        return answer.body

    async def models(self) -> tuple[Model, ...] | None:
        """The models and adapters served; None if the engine does not say. Raises Unanswered."""
        answer = await self.get("/v1/models")
        if answer.status != 200:
            return None
        try:
            entries = orjson.loads(answer.body)["data"]
            return tuple(_model(entry) for entry in entries[:MOST_MODELS])
        except (ValueError, TypeError, KeyError):
            return None


async def whole(response: aiohttp.ClientResponse) -> bytes:
    """An answer's body, refused as a ValueError beyond LARGEST."""
    parts = bytearray()
    async for chunk in response.content.iter_any():
        parts += chunk
        if len(parts) > LARGEST:
            raise ValueError(f"the answer is larger than {LARGEST >> 20} MiB")
    return bytes(parts)


def _cause(error: Exception) -> str:
    """An error in the words of the system, without the address, which is nobody's business but the operator's."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _model(entry: dict[str, object]) -> Model:
    name, parent, length = entry["id"], entry.get("parent"), entry.get("max_model_len")
    if not isinstance(name, str):
        raise TypeError("a model without a name")
    return Model(
        id=name,
        parent=parent if isinstance(parent, str) else None,
        max_length=length if isinstance(length, int) else None,
    )
