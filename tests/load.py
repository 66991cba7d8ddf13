"""Load on ``ropelime serve``: many clients, slow ones and hostile ones among them, for some minutes.

    python tests/load.py --minutes 5

It starts a server with a tiny model, and says at the end whether every accepted job was answered or
cancelled, how long ``GET /api/config`` took, and how the server's memory grew. The exit code is 1 if
one of them is not as promised. The same seed gives the same clients.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parent))

from web_server import PLAIN, serving

LATENCY = 0.2  # seconds: the bound of the 95th percentile of /api/config
GROWTH = 150  # MB
OVER = ("done", "failed", "cancelled")


@dataclass
class Tally:
    """What the clients have seen."""

    answers: Counter[str] = field(default_factory=Counter)
    accepted: dict[str, str] = field(default_factory=dict)  # jobs, and their last state
    latencies: list[float] = field(default_factory=list)

    def follow(self, name: str, job: dict[str, Any]) -> None:
        """Note the state of a job, and why it failed if it did."""
        self.accepted[name] = job.get("state", "lost")
        if self.accepted[name] == "failed":
            self.answers[f"failed: {str(job.get('error'))[:70]}"] += 1

    def percentile(self, share: float) -> float:
        """A percentile of the latencies, in seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


@dataclass
class Load:
    """One run."""

    url: str
    end: float
    tally: Tally = field(default_factory=Tally)

    def over(self) -> bool:
        return time.monotonic() > self.end

    async def decent(self, draw: random.Random) -> None:
        """Ask, follow the job to its end or cancel it, and look at the result."""
        async with httpx.AsyncClient(base_url=self.url, timeout=60) as client:
            while not self.over():
                try:
                    await self.visit(client, draw)
                except httpx.HTTPError as error:
                    self.tally.answers[type(error).__name__] += 1
                await asyncio.sleep(draw.uniform(0.5, 3))

    async def visit(self, client: httpx.AsyncClient, draw: random.Random) -> None:
        tally = self.tally
        sent = {**PLAIN, "seed": draw.randrange(1000), "prompt": "It is so. " * draw.randint(3, 30)}
        answer = await client.post("/api/jobs", json=sent)
        tally.answers[f"POST {answer.status_code}"] += 1
        if answer.status_code != 202:
            return
        name, stop = answer.json()["id"], draw.random() < 0.2
        tally.accepted[name] = "accepted"
        if stop:
            tally.answers[f"DELETE {(await client.delete(f'/api/jobs/{name}')).status_code}"] += 1
        while tally.accepted[name] not in OVER:
            found = await client.get(f"/api/jobs/{name}")
            tally.follow(name, found.json())
            if tally.accepted[name] == "lost":
                return
            await asyncio.sleep(0.3)
        if tally.accepted[name] == "done":
            found = await client.get(f"/api/explanations/{name}")
            tally.answers[f"GET result {found.status_code}"] += 1

    async def slow(self, draw: random.Random) -> None:
        """Send a request, or read its answer, one byte after the other."""
        while not self.over():
            try:
                reader, writer = await asyncio.open_connection(*self._place(), limit=1024)
                body = b"x" * 2000
                head = f"POST /api/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
                ask = b"GET /static/app.js HTTP/1.1\r\nhost: localhost\r\n\r\n"
                text = head.encode() + b"\r\n" + body if draw.random() < 0.7 else ask
                for at in range(len(text)):
                    writer.write(text[at : at + 1])
                    await writer.drain()
                    await asyncio.sleep(draw.uniform(0.05, 0.5))
                    if self.over() or reader.at_eof():
                        break
                writer.close()
            except OSError:
                self.tally.answers["slow: hung up"] += 1

    async def hostile(self, draw: random.Random) -> None:
        """Send what costs much: wrong items, marks, blank messages, garbage, and many connections."""
        attacks = (self._items, self._marks, self._blank, self._garbage, self._connections)
        async with httpx.AsyncClient(base_url=self.url, timeout=60) as client:
            while not self.over():
                try:
                    await draw.choice(attacks)(client, draw)
                except (httpx.HTTPError, OSError) as error:
                    self.tally.answers[f"hostile: {type(error).__name__}"] += 1
                await asyncio.sleep(draw.uniform(0.1, 1))

    async def _post(self, client: httpx.AsyncClient, body: Any) -> None:
        headers = {"content-type": "application/json"}
        sent = {"content": body, "headers": headers} if isinstance(body, bytes) else {"json": body}
        answer = await client.post("/api/jobs", **sent)
        self.tally.answers[f"hostile: POST {answer.status_code}"] += 1
        if answer.status_code == 202:  # nobody asks about it: the server has to cancel it by itself
            self.tally.accepted[answer.json()["id"]] = "left alone"

    async def _items(self, client: httpx.AsyncClient, draw: random.Random) -> None:
        item = draw.choice(["1", "{}", "[]"])
        name = draw.choice(["context", "messages", "features"])
        body = f'{{"output": "a", "{name}": [{",".join([item] * 600_000)}]}}'
        await self._post(client, body.encode())

    async def _marks(self, client: httpx.AsyncClient, draw: random.Random) -> None:
        mark = draw.choice(["។", "།", "၊", "ๆ", "\u17d2", "「a。」と“"])
        text = "One. " + mark * (100_000 // len(mark))
        await self._post(
            client, {**PLAIN, "prompt": text, "features": draw.choice(["word", "sentence"])}
        )

    async def _blank(self, client: httpx.AsyncClient, draw: random.Random) -> None:
        blank = [{"role": "user", "content": ""}] * 15_000
        messages = [*blank, {"role": "user", "content": "One is here. Two is there."}]
        await self._post(client, {"messages": messages, "output": "a", "surrogate": "tiny"})

    async def _garbage(self, client: httpx.AsyncClient, draw: random.Random) -> None:
        for _ in range(20):
            _, writer = await asyncio.open_connection(*self._place())
            writer.write(draw.randbytes(200) + b"\r\n\r\n")
            await writer.drain()
            writer.close()

    async def _connections(self, client: httpx.AsyncClient, draw: random.Random) -> None:
        held = []
        try:
            for _ in range(200):
                held.append(socket.create_connection(self._place(), 5))
                held[-1].send(b"GET / HTTP/1.1\r\n")
            await asyncio.sleep(3)
        finally:
            for each in held:
                each.close()

    async def settle(self) -> None:
        """Ask what has become of every accepted job, once the server has had time to cancel some."""
        async with httpx.AsyncClient(base_url=self.url, timeout=60) as client:
            until = time.monotonic() + 120
            while time.monotonic() < until:
                # Asking keeps a job alive, so those that were left alone have to be over by now.
                for name, state in self.tally.accepted.items():
                    if state not in OVER:
                        found = await client.get(f"/api/jobs/{name}")
                        gone = found.status_code == 404  # only jobs that are over are forgotten
                        self.tally.follow(name, {"state": "cancelled"} if gone else found.json())
                if all(state in OVER for state in self.tally.accepted.values()):
                    return
                await asyncio.sleep(1)

    def _place(self) -> tuple[str, int]:
        where = httpx.URL(self.url)
        return where.host, where.port or 80


def watch(url: str, seconds: float) -> Tally:
    """Ask for the configuration now and then, in a process that does nothing else."""
    tally, end = Tally(), time.monotonic() + seconds
    with httpx.Client(base_url=url, timeout=30) as client:
        while time.monotonic() < end:
            start = time.monotonic()
            try:
                tally.answers[f"GET config {client.get('/api/config').status_code}"] += 1
                tally.latencies.append(time.monotonic() - start)
            except httpx.HTTPError as error:
                tally.answers[f"GET config: {type(error).__name__}"] += 1
            time.sleep(0.1)
    return tally


def memory(pid: int) -> float:
    """Resident megabytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1e3


async def run(load: Load, options: argparse.Namespace) -> None:
    """All clients, each with a generator of its own."""
    kinds = [load.slow] * options.slow + [load.hostile] * options.hostile
    kinds += [load.decent] * (options.clients - len(kinds))
    draws = [random.Random(f"{options.seed}/{number}") for number in range(len(kinds))]
    works = [kind(draw) for kind, draw in zip(kinds, draws, strict=True)]
    await asyncio.gather(*works)
    await asyncio.sleep(options.rest)
    await load.settle()


def main() -> int:
    """Run it and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--clients", type=int, default=200, help="all of them (default 200)")
    parser.add_argument("--slow", type=int, default=20)
    parser.add_argument("--hostile", type=int, default=5)
    parser.add_argument(
        "--rest", type=float, default=65, help="seconds until what was left is looked at"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            first = client.post("/api/jobs", json=PLAIN).json()["id"]
            while client.get(f"/api/jobs/{first}").json()["state"] not in OVER:
                time.sleep(0.1)
        start = memory(server.process.pid)
        load = Load(server.url, time.monotonic() + 60 * options.minutes)
        with ProcessPoolExecutor(1, get_context("spawn")) as apart:
            watched = apart.submit(watch, server.url, 60 * options.minutes)
            asyncio.run(run(load, options))
            seen = watched.result()
        grown = memory(server.process.pid) - start
    tally = load.tally
    tally.latencies = seen.latencies
    tally.answers.update(seen.answers)
    states = Counter(tally.accepted.values())
    for name, count in sorted(tally.answers.items()):
        print(f"{count:8,}  {name}")
    print(f"accepted jobs: {dict(states)}")
    print(f"/api/config: p50 {tally.percentile(0.5):.3f} s, p95 {tally.percentile(0.95):.3f} s")
    print(f"memory: {start:.0f} MB at the start, {grown:+.0f} MB at the end")
    kept = set(states) <= set(OVER) and tally.percentile(0.95) < LATENCY and grown < GROWTH
    print("as promised" if kept else "NOT as promised")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
