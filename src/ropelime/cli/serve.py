"""``ropelime serve``: explain in the browser, on this machine only unless --host is given."""

from __future__ import annotations

import argparse
import os
import secrets
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from ropelime.cli.shared import SURROGATE, add_running, count, running
from ropelime.errors import InputError
from ropelime.progress import note
from ropelime.surrogate import is_served
from ropelime.surrogate.catalog import locate
from ropelime.surrogate.embedded import EMBEDDED
from ropelime.text.display import shorten
from ropelime.web import settings as web

HELP = "explain in the browser"
DESCRIPTION = "Serve a web page and a JSON API that explain answers, and keep a history of them."
EPILOG = """\
examples:
  ropelime serve
  ropelime serve --surrogate smollm2 --surrogate qwen3-1.7b
  ropelime serve --surrogate qwen3-1.7b --device cuda
  ropelime serve --host 0.0.0.0                        # prints the token that requests need

Beyond this machine (--host), every request needs a token. The environment variable ROPELIME_TOKEN sets
it without showing it in the list of processes.
"""
_PORT = 8321
_LIMITS = {
    "request_bytes": "bytes of a request (default 2000000)",
    "characters": "characters of a prompt (default 500000)",
    "features": "features of a prompt (default 500)",
    "budget": "masked prompts that one explanation scores (default 1000)",
    "answer_tokens": "tokens of an answer (default 2000)",
    "seconds": "seconds for one explanation (default 1800)",
    "waiting": "explanations in the queue (default 16)",
    "streams": "open progress streams (default 64)",
    "connections": "open connections (default 512)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the surrogates, the address and the limits."""
    repeated = "repeat it to offer several (default smollm2)"
    text = f"a surrogate that users may choose: {SURROGATE}; {repeated}"
    parser.add_argument("--surrogate", action="append", metavar="MODEL", help=text)
    parser.add_argument("--history", type=Path, metavar="FOLDER", help="where explanations are stored")
    add_running(parser.add_argument_group("how the surrogates run"))
    add = parser.add_argument_group("where to listen").add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    text = f"port to listen on (default {_PORT}; 0 takes a free one)"
    add("--port", type=_port, default=_PORT, help=text)
    add("--token", help="token that requests must carry; generated if needed")
    text = "a further host name of the server, such as that of a proxy"
    add("--allow-host", action="append", default=[], metavar="NAME", help=text)
    limits = parser.add_argument_group("limits")
    for name, what in _LIMITS.items():
        limits.add_argument(f"--max-{name.replace('_', '-')}", type=count, metavar="N", help=what)


def run(options: argparse.Namespace) -> None:
    """Serve until interrupted."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise InputError("The page needs a web server: pip install 'ropelime[web]'") from None
    from ropelime.web import log, memory
    from ropelime.web.app import create_app
    from ropelime.web.server import Server

    settings = _settings(options)
    log.set_up()
    memory.limit()
    app = create_app(settings)
    with _bind(options.host, options.port) as listening:
        first = settings.default_surrogate
        note(f"Loading {first} ...")
        app.state.service.load(first)  # fails before the first request, if it fails
        memory.hold()
        server = Server(app, settings, ready=lambda: _welcome(settings, listening.getsockname()[1]))
        with suppress(KeyboardInterrupt):  # the usual way to stop it
            server.run(sockets=[listening])
        note("Stopped.")


def _settings(options: argparse.Namespace) -> web.ServerSettings:
    chosen = web.labelled(options.surrogate or [EMBEDDED])
    for name in list(chosen.values())[1:]:
        if not is_served(name):
            locate(name, say=note)  # a wrong name fails now
    token = options.token or os.environ.get("ROPELIME_TOKEN") or None
    if token is None and not web.is_loopback(options.host):
        token = secrets.token_urlsafe(24)
    given = {name: getattr(options, f"max_{name}") for name in _LIMITS}
    return web.ServerSettings(
        history=options.history or web.default_history(),
        surrogates=chosen,
        running=running(options),
        host=options.host,
        token=token,
        allowed_hosts=tuple(options.allow_host),
        limits=web.Limits(**{name: value for name, value in given.items() if value is not None}),
    )


def _bind(host: str, port: int) -> socket.socket:
    listening = None
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except UnicodeError:
        raise InputError(f"{shorten(host, 80)!r} is not an address.") from None
    except OSError as error:
        if listening:
            listening.close()
        raise InputError(
            f"Nothing can listen on {host}, port {port}: {error.strerror}. Choose another --port."
        ) from None
    return listening


def _welcome(settings: web.ServerSettings, port: int) -> None:
    shown = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    shown = f"[{shown}]" if ":" in shown else shown
    key = f"#token={quote(settings.token, safe='')}" if settings.token else ""
    print(f"Open http://{shown}:{port}/{key}", flush=True)
    if shown not in (settings.host, f"[{settings.host}]"):
        print("From other machines use the address of this one instead.", flush=True)
    note(f"Explanations are stored in {settings.history}. Stop with Ctrl-C.")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a port between 0 and 65535 is needed, not {text}")
    return int(text)
