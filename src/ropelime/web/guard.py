"""Checks of every request before the application: its host, origin, token, size and media type."""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ropelime.web.settings import ServerSettings, is_loopback

# Scripts and styles come from this server's files only; nothing that a user typed can become one.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
DATA_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_SAFE = ("GET", "HEAD", "OPTIONS")
_DRAIN = 16_000_000  # bytes of a refused body that are read, so that its sender gets the response


class Guard:
    """ASGI middleware that refuses foreign hosts, foreign pages, missing tokens and large bodies."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        """Wrap an application."""
        self._app = app
        self._token = settings.token
        self._limit = settings.limits.request_bytes
        self._local = is_loopback(settings.host)
        names = ("localhost", settings.host, *settings.allowed_hosts)
        self._names = {name.lower().strip("[]") for name in names}

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
                for name, value in _HEADERS.items():
                    out[name] = value
                out["content-security-policy"] = DATA_POLICY if api else PAGE_POLICY
                out["cache-control"] = "no-store" if api else "no-cache"
            await send(message)

        if not self._known_host(headers):
            refusal = _refusal(400, "Unknown host name. Allow it with --allow-host NAME.")
        elif scope["method"] not in _SAFE and not _same_origin(headers):
            refusal = _refusal(403, "Only this server's own pages may change anything here.")
        elif api and not self._authorized(headers):
            refusal = _refusal(
                401,
                "A token is required: Authorization: Bearer TOKEN. The server printed it at its start.",
                {"www-authenticate": "Bearer"},
            )
        else:
            await self._bounded(scope, headers, receive, answer)
            return
        await refusal(scope, receive, answer)

    def _known_host(self, headers: Headers) -> bool:
        """Whether the host name in the URL belongs to this server, against DNS rebinding.

        A foreign page can point its own name at this machine, but it cannot choose the Host header that
        a browser sends with that name. Starlette's TrustedHostMiddleware compares names only: it has no
        rule for addresses (any loopback one; any at all where the server listens to the network),
        refuses the final dot of "localhost.", takes the first of several Host headers, and answers in
        plain text.
        """
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            return False
        name = _hostname("//" + hosts[0])
        if name is None:
            return False
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self._local  # an address cannot be rebound

    def _authorized(self, headers: Headers) -> bool:
        if self._token is None:
            return True
        kind, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip().encode("utf-8", "surrogateescape")
        same = hmac.compare_digest(given, self._token.encode())
        return same and kind.lower() == "bearer"

    async def _bounded(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """Read the body, at most as much as is allowed, and pass it on."""
        if scope["method"] in _SAFE:
            await self._app(scope, receive, send)
            return
        body, size, more = bytearray(), 0, True
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > self._limit:
            more = int(announced[:20]) <= _DRAIN
            size = self._limit + 1
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message.get("body", b""))
            more = message.get("more_body", False) and size <= _DRAIN
            if size <= self._limit:
                body += message.get("body", b"")
        refusal = None
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if size > self._limit:
            why = f"The request is larger than the {self._limit:,} bytes that this server accepts."
            refusal = _refusal(413, why, {"connection": "close"})
        elif body and kind != "application/json":  # other kinds need no CORS preflight
            refusal = _refusal(415, "Send JSON, with the header Content-Type: application/json.")
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        read = False

        async def replay() -> Message:
            nonlocal read
            if read:
                return await receive()
            read = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._app(scope, replay, send)


def _hostname(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is not a number
        return (parts.hostname or "").rstrip(".") or None
    except ValueError:
        return None


def _same_origin(headers: Headers) -> bool:
    """Whether the request comes from a page of this server, or not from a page at all."""
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return False
    origins = headers.getlist("origin")
    if not origins:  # browsers send it with every method that can change something
        return True
    try:
        parts = urlsplit(origins[0]) if len(origins) == 1 else None
    except ValueError:
        return False
    return parts is not None and parts.scheme in ("http", "https") and parts.netloc == headers["host"]


def _refusal(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"detail": detail, "errors": []}, status, headers)
