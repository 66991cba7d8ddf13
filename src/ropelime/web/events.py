"""The states of a job as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ropelime.web.jobs import Job, Jobs

_LOOK = 0.15  # seconds between two looks at a job that a stream reports
_BEAT = 10.0  # seconds after which a stream shows that it is alive


class Events(Response):
    """A stream of a job's states as JSON that notices at once when its reader has gone."""

    def __init__(self, jobs: Jobs[Any], job: Job, show: Callable[[], str]) -> None:
        super().__init__(media_type="text/event-stream")
        self._jobs, self._job, self._show = jobs, job, show
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the job is over or the reader has gone."""
        body = {"type": "http.response.body"}
        with self._jobs.watch(self._job):
            gone = asyncio.ensure_future(_gone(receive))
            try:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                async for text in self._events(gone):
                    await send({**body, "body": text.encode(), "more_body": True})
                if not gone.done():
                    await send({**body, "body": b""})
            finally:
                gone.cancel()

    async def _events(self, gone: asyncio.Future[None]) -> AsyncIterator[str]:
        last, silent = "", 0.0
        while not gone.done():
            over = self._job.over or self._jobs.closed  # before the look: the last one shows the end
            if (text := self._show()) != last:
                yield f"data: {text}\n\n"
                last, silent = text, 0.0
            if over:
                return
            await asyncio.wait([gone], timeout=_LOOK)
            silent += _LOOK
            if silent > _BEAT:
                yield ": still here\n\n"
                silent = 0.0


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
