"""The process behind the application: how it listens, what it logs and how it stops."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from ropelime.web.connections import BACKLOG, Bounds, Connection, affordable
from ropelime.web.settings import ServerSettings


class Server(uvicorn.Server):
    """A server of one application; ``ready`` is called once it listens."""

    def __init__(
        self, app: FastAPI, settings: ServerSettings, *, ready: Callable[[], None] = lambda: None
    ) -> None:
        bounds = Bounds(
            affordable(settings.limits.connections), settings.head_seconds, settings.read_seconds
        )
        config = uvicorn.Config(
            app,
            http=Connection.within(bounds),
            backlog=BACKLOG,
            log_config=None,  # that of log.py
            access_log=False,
            server_header=False,
            proxy_headers=False,  # any client could send those
            ws="none",
            lifespan="on",
            timeout_keep_alive=60,  # people pause between two requests
            timeout_graceful_shutdown=5,
        )
        super().__init__(config)
        self._jobs, self._ready = app.state.service.jobs, ready

    async def startup(self, *arguments: Any, **named: Any) -> None:
        """Begin to listen, and say so."""
        await super().startup(*arguments, **named)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop, on SIGINT or SIGTERM."""
        self._jobs.closed = True  # ends the streams; the shutdown does the rest
        super().handle_exit(sig, frame)
