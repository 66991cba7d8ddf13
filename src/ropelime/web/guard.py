"""Checks of every request before the application: host, origin, token, size, time and media type."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ropelime.web.schema import Problem
from ropelime.web.settings import ServerSettings, is_loopback

# Scripts and styles come from this server's files only; nothing that a user typed can become one.
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_DATA_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_NO_TOKEN = "A token is required: Authorization: Bearer TOKEN. The server printed it at its start."
_SAFE = ("GET", "HEAD", "OPTIONS")
_DRAIN = 16_000_000  # bytes of a refused body that are read, so that its sender gets the response


class Guard:
    """ASGI middleware that refuses foreign hosts, foreign pages, missing tokens and large bodies."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._token = settings.token
        self._limit = settings.limits.request_bytes
        self._seconds = settings.body_seconds
        self._local = is_loopback(settings.host)
        names = ("localhost", settings.host, *settings.allowed_hosts)
        self._names = {name.lower().strip("[]") for name in names if name}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request and pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # this server has no web sockets
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = Headers(scope=scope)
        api = scope["path"].startswith("/api/")

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                out = MutableHeaders(scope=message)
                out.update(_HEADERS)
                out["content-security-policy"] = _DATA_POLICY if api else _PAGE_POLICY
                out["cache-control"] = "no-store" if api else "no-cache"
            await send(message)

        app: ASGIApp = self._app if scope["method"] in _SAFE else self._bounded
        if not self._known_host(headers):
            app = Problem(detail="Unknown host name. Allow it with --allow-host NAME.").response(400)
        elif scope["method"] not in _SAFE and not _same_origin(headers):
            app = Problem(detail="Only this server's own pages may change anything here.").response(403)
        elif api and not self._authorized(headers):
            app = Problem(detail=_NO_TOKEN).response(401, {"www-authenticate": "Bearer"})
        await app(scope, receive, answer)

    def _known_host(self, headers: Headers) -> bool:
        """Whether the host name in the URL belongs to this server, against DNS rebinding.

        A foreign page can point its own name at this machine, but it cannot choose the Host header that
        a browser sends with that name. Starlette's TrustedHostMiddleware compares names only: it has no
        rule for addresses (any loopback one; any at all where the server listens to the network),
        refuses the final dot of "localhost.", takes the first of several Host headers, and answers in
        plain text.
        """
        try:
            (host,) = headers.getlist("host")
            parts = urlsplit(f"//{host}")
            _ = parts.port  # raises where it is not a number
            name = (parts.hostname or "").rstrip(".")
            if name in self._names:
                return True
            return ipaddress.ip_address(name).is_loopback or not self._local  # it cannot be rebound
        except ValueError:  # not exactly one, malformed, or a name that is not ours
            return False

    def _authorized(self, headers: Headers) -> bool:
        if self._token is None:
            return True
        kind, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip().encode("utf-8", "surrogateescape")
        same = hmac.compare_digest(given, self._token.encode())
        return same and kind.lower() == "bearer"

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, at most as much as is allowed, and pass it on."""
        headers = Headers(scope=scope)
        try:
            found = await asyncio.wait_for(self._read(headers, receive), self._seconds)
        except asyncio.TimeoutError:
            why = f"The request took longer to arrive than {self._seconds:g} seconds."
            app: ASGIApp = Problem(detail=why).response(408, {"connection": "close"})
            await app(scope, receive, send)
            return
        if found is None:
            return
        body, size = found
        app = self._app
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if size > self._limit:
            why = f"The request is larger than the {self._limit:,} bytes that this server accepts."
            app = Problem(detail=why).response(413, {"connection": "close"})
        elif body and kind != "application/json":  # other kinds need no CORS preflight
            why = "Send JSON, with the header Content-Type: application/json."
            app = Problem(detail=why).response(415)
        whole = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await app(scope, replay, send)

    async def _read(self, headers: Headers, receive: Receive) -> tuple[bytes, int] | None:
        """A body and its size, without the part beyond the limit; None if the client has gone."""
        body, size, more = bytearray(), 0, True
        announced = headers.get("content-length", "")[:20]
        if announced.isdecimal() and int(announced) > max(_DRAIN, self._limit):
            size, more = int(announced), False
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            size += len(message.get("body", b""))
            more = message.get("more_body", False) and size <= max(_DRAIN, self._limit)
            if size <= self._limit:
                body += message.get("body", b"")
        return bytes(body), size


def _same_origin(headers: Headers) -> bool:
    """Whether the request comes from a page of this server, or not from a page at all."""
    ours = [[f"{scheme}://{headers['host']}"] for scheme in ("http", "https")]
    site = headers.get("sec-fetch-site", "none")
    # Browsers send an origin with every method that can change something.
    return site in ("same-origin", "none") and headers.getlist("origin") in ([], *ours)
