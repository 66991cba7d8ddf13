"""A batch on a Ray cluster: a pool of actors with a model each, fed by Ray Data."""

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

from ropelime.batch.lines import Group, Plan
from ropelime.batch.work import Done, Settings, Worker
from ropelime.errors import InputError, ModelError, RopeLimeError

_PATIENCE = 5.0  # seconds for a cluster to answer; Ray itself waits for minutes
# A cluster speaks gRPC: greeted like this, it says its settings. Others do not.
_HELLO, _SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), b"\x04"


def installed() -> Any:
    """Ray, or how to install it."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise InputError("--engine ray needs Ray: pip install 'ropelime[ray]'") from None
    return ray


def run(
    plan: Plan,
    settings: Settings,
    write: Callable[[Done], None],
    *,
    address: str | None = None,
    actors: int | None = None,
    gpus: float | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Explain every line of a plan.

    The input is read and the output is written on the machine that this runs on; no other one needs to
    see them. Actors need ropelime installed, and the model's files where a path names them.

    Args:
        plan: The lines.
        settings: What to do.
        write: Called with the rows of each group when it is done, in any order.
        address: Of the cluster; if not given, one is started on this machine and ended afterwards.
        actors: How many models work side by side; if not given, one for each GPU's share, or one.
        gpus: GPUs of an actor, or a part of one; one if the cluster has any.
        say: Called with a line on what is used.
    """
    ray = installed()
    with _cluster(ray, address, actors):
        share = _share(ray.cluster_resources(), actors, gpus)
        if say:
            say(f"Ray: {share}")
        try:
            for done in _results(ray, plan, settings, share):
                write(done)
        except ray.exceptions.RayError as error:
            last = str(error).strip().split("\n")[-1].rstrip(".")
            raise ModelError(
                f"Ray gave up: {last}. ropelime must be installed for the workers too. Rows that were "
                "written are whole, and the same command goes on."
            ) from None


def _results(ray: Any, plan: Plan, settings: Settings, share: RankedFeature) -> Iterator[Done]:
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    here = {f"node:{ray.util.get_node_ip_address()}": 0.001}
    one, pool = ray.data.TaskPoolStrategy(size=1), ray.data.ActorPoolStrategy(size=share.actors)
    numbered = [{"number": n, "group": pickle.dumps(g)} for n, g in enumerate(plan.groups)]
    rows = (
        ray.data.from_items(numbered, override_num_blocks=len(numbered))
        .map(_Reader(plan.path), compute=one, num_cpus=0, resources=here)
        .map(
            _Actor,
            compute=pool,
            fn_constructor_args=(settings,),
            num_cpus=share.cpus,
            num_gpus=share.gpus,
        )
    )
    over: set[int] = set()
    for row in rows.iter_rows():
        if row["refused"]:
            raise ModelError(str(row["refused"]))
        if row["number"] not in over:
            over.add(row["number"])
            yield Done(row["lines"], row["rows"], row["errors"], row["gone"])


class _Reader:
    """Reads groups of lines, on the machine that has the file."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        group: Group = pickle.loads(row["group"])
        return {"number": row["number"], "lines": pickle.dumps(group.read(self._path))}


class _Actor:
    """A worker with models of its own. What it refuses comes back as a row, not as a trace."""

    def __init__(self, settings: Settings) -> None:
        self._refused = ""
        try:
            self._worker = Worker(settings, settings.load())
        except RopeLimeError as error:
            self._refused = str(error)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        done = Done(b"", 0, 0)
        refused = self._refused
        if not refused:
            try:
                done = self._worker.finish(self._worker.begin(pickle.loads(row["lines"])))
            except RopeLimeError as error:
                refused = str(error)
        return {"number": row["number"], "refused": refused, **asdict(done)}


@contextmanager
def _cluster(ray: Any, address: str | None, actors: int | None) -> Iterator[None]:
    """Be connected to a cluster."""
    if ray.is_initialized():  # a program of the user's is connected already, and stays so
        yield
        return
    options: dict[str, Any] = {"address": address or "local"}
    if address is None:
        options |= {"num_cpus": max(os.cpu_count() or 1, actors or 1), "include_dashboard": False}
    elif address != "auto":
        _check(address)
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it speaks to its own developers
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        first = str(error).strip().split("\n")[0].rstrip(".")
        raise InputError(
            f"Ray cannot be used at {address or 'this machine'}: {first}. If the cluster is there, it "
            "may want a token (RAY_AUTH_MODE=token, RAY_AUTH_TOKEN). Leave --address out to start one "
            "here."
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _check(address: str) -> None:
    """Refuse an address where nobody is, within seconds."""
    host, colon, port = address.rpartition(":")
    if "/" in address or not colon or not host or not port.isdecimal():
        raise InputError(
            f"--address takes HOST:PORT of a cluster that this machine belongs to, or auto, not "
            f"{address}."
        )
    try:
        with socket.create_connection((host, int(port)), timeout=_PATIENCE) as connection:
            connection.sendall(_HELLO)
            said = connection.recv(4)
        why = "" if said[3:] == _SETTINGS else "something else does"
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
    if why:
        raise InputError(
            f"No Ray cluster answers at {address}: {why}. Check the address, or leave --address out "
            "to start one here."
        )


@dataclass(frozen=True)
class RankedFeature:
    """How many actors there are, and what each of them has."""

    actors: int
    cpus: int
    gpus: float

    def __str__(self) -> str:
        each = f"{self.cpus} CPUs" + (f" and {self.gpus:g} GPUs" if self.gpus else "")
        return f"{self.actors} actors with {each} each"


def _share(there: dict[str, float], actors: int | None, gpus: float | None) -> RankedFeature:
    """How many actors there are, and what each of them has."""
    all_gpus, all_cpus = there.get("GPU", 0.0), there.get("CPU", 1.0)
    each = (1.0 if all_gpus else 0.0) if gpus is None else gpus
    if each < 0 or (each and each > all_gpus):
        raise InputError(f"--gpus-per-actor {each:g}: the cluster has {all_gpus:g} GPUs.")
    count = actors or (int(all_gpus / each) if each else 1)
    if each and count * each > all_gpus:
        raise InputError(
            f"{count} actors with {each:g} GPUs each need {count * each:g}, and the cluster has "
            f"{all_gpus:g}. Choose fewer --actors, or less --gpus-per-actor."
        )
    if count > all_cpus:  # Ray would wait for more without a word
        raise InputError(f"{count} actors need a CPU each, and the cluster has {all_cpus:g}.")
    cpus = 1 if each else int(all_cpus // count)
    return RankedFeature(count, cpus, each)
