"""The Ray engine: a pool of actors with a model each, fed by Ray Data."""

from __future__ import annotations

import logging
import os
import pickle
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ropelime.batch.lines import BatchPlan, LineGroup
from ropelime.batch.work import Done, Settings, Worker
from ropelime.errors import InputError, ModelError, RopeLimeError

_CONNECT_TIMEOUT = 5.0  # seconds; Ray itself waits for minutes
# The HTTP/2 preface, which a gRPC server answers with its SETTINGS frame (type 4).
_PREFACE, _SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), b"\x04"


def installed() -> Any:
    """Ray, or an error that says how to install it."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise InputError("--engine ray needs Ray: pip install 'ropelime[ray]'") from None
    return ray


def run(
    plan: BatchPlan,
    settings: Settings,
    write: Callable[[Done], None],
    *,
    address: str | None = None,
    actors: int | None = None,
    gpus: float | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Explain every line of a plan.

    Only this machine reads the input and writes the output. Actors need ropelime installed, and the
    files of a model that is named by a path.

    Args:
        plan: The lines.
        settings: How to explain them.
        write: Called with the rows of each group when it is done, in any order.
        address: The cluster's; if not given, one is started on this machine and stopped afterwards.
        actors: How many models run in parallel; if not given, as many as the GPUs allow, or one.
        gpus: GPUs of an actor, or a fraction of one; one if the cluster has any.
        say: Called with a line of text on the resources.
    """
    ray = installed()
    with _cluster(ray, address, actors):
        placement = _placement(ray.cluster_resources(), actors, gpus)
        if say:
            say(f"Ray: {placement}")
        try:
            for done in _results(ray, plan, settings, placement):
                write(done)
        except ray.exceptions.RayError as error:
            last = str(error).strip().split("\n")[-1].rstrip(".")
            raise ModelError(
                f"Ray failed: {last}. ropelime must be installed for the workers too. Earlier rows are "
                "complete, and the same command continues."
            ) from None


def _results(ray: Any, plan: BatchPlan, settings: Settings, placement: Placement) -> Iterator[Done]:
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    here = {f"node:{ray.util.get_node_ip_address()}": 0.001}
    one, pool = ray.data.TaskPoolStrategy(size=1), ray.data.ActorPoolStrategy(size=placement.actors)
    each = {"num_cpus": placement.cpus, "num_gpus": placement.gpus}
    numbered = [{"number": n, "group": pickle.dumps(g)} for n, g in enumerate(plan.groups)]
    rows = (
        ray.data.from_items(numbered, override_num_blocks=len(numbered))
        .map(_read, fn_args=(plan.path.resolve(),), compute=one, num_cpus=0, resources=here)
        .map(_Actor, fn_constructor_args=(settings,), compute=pool, **each)
    )
    over: set[int] = set()
    for row in rows.iter_rows():
        if row["refused"]:
            raise ModelError(str(row["refused"]))
        if row["number"] not in over:
            over.add(row["number"])
            yield Done(row["lines"], row["rows"], row["errors"], row["gone"])


def _read(row: dict[str, Any], path: Path) -> dict[str, Any]:
    """Read a group of lines, on the machine that has the file."""
    group: LineGroup = pickle.loads(row["group"])
    return {"number": row["number"], "lines": pickle.dumps(group.read(path))}


class _Actor:
    """A worker with its own models; its errors come back as rows instead of tracebacks."""

    def __init__(self, settings: Settings) -> None:
        self._refused = ""
        try:
            self._worker = Worker(settings, settings.load())
        except RopeLimeError as error:
            self._refused = str(error)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        done, refused = Done(b"", 0, 0), self._refused
        if not refused:
            try:
                done = self._worker.finish(self._worker.begin(pickle.loads(row["lines"])))
            except RopeLimeError as error:
                refused = str(error)
        return {"number": row["number"], "refused": refused, **asdict(done)}


@contextmanager
def _cluster(ray: Any, address: str | None, actors: int | None) -> Iterator[None]:
    if ray.is_initialized():  # the user's program is connected already, and stays so
        yield
        return
    options: dict[str, Any] = {"address": address or "local"}
    if address is None:
        options |= {"num_cpus": max(os.cpu_count() or 1, actors or 1), "include_dashboard": False}
    elif address != "auto":
        _check(address)
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its messages are for Ray's developers
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        first = str(error).strip().split("\n")[0].rstrip(".")
        raise InputError(
            f"Ray cannot be used at {address or 'this machine'}: {first}. The cluster may require a "
            "token (RAY_AUTH_MODE=token, RAY_AUTH_TOKEN). Omit --address to start one here."
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _check(address: str) -> None:
    """Refuse an address without a cluster, within seconds."""
    host, colon, port = address.rpartition(":")
    if "/" in address or not colon or not host or not port.isdecimal():
        where = "HOST:PORT of a cluster that this machine belongs to, or auto"
        raise InputError(f"--address takes {where}, not {address}.")
    try:
        with socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT) as connection:
            connection.sendall(_PREFACE)
            reply = connection.recv(4)
        why = "" if reply[3:] == _SETTINGS else "another program does"
    except (OSError, OverflowError, ValueError) as error:  # as for a name of 300 characters
        why = getattr(error, "strerror", None) or str(error)
    if why:
        cure = "Check it, or omit --address to start one here."
        raise InputError(f"No Ray cluster answers at {address}: {why}. {cure}")


@dataclass(frozen=True)
class Placement:
    """The number of actors, and the resources of each."""

    actors: int
    cpus: int
    gpus: float

    def __str__(self) -> str:
        each = f"{self.cpus} CPUs" + (f" and {self.gpus:g} GPUs" if self.gpus else "")
        return f"{self.actors} actors with {each} each"


def _placement(cluster: dict[str, float], actors: int | None, gpus: float | None) -> Placement:
    """Divide the resources of a cluster among actors."""
    all_gpus, all_cpus = cluster.get("GPU", 0.0), cluster.get("CPU", 1.0)
    each = (1.0 if all_gpus else 0.0) if gpus is None else gpus
    if each < 0 or (each and each > all_gpus):
        raise InputError(f"--gpus-per-actor {each:g}: the cluster has {all_gpus:g} GPUs.")
    count = actors or (int(all_gpus / each) if each else 1)
    if each and count * each > all_gpus:
        raise InputError(
            f"{count} actors with {each:g} GPUs each need {count * each:g}, and the cluster has "
            f"{all_gpus:g}. Choose fewer --actors, or less --gpus-per-actor."
        )
    if count > all_cpus:  # Ray would wait silently
        raise InputError(f"{count} actors need a CPU each, and the cluster has {all_cpus:g}.")
    return Placement(count, 1 if each else int(all_cpus // count), each)
