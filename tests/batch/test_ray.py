"""Batches on a real Ray cluster on this machine: the same rows, whoever is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from batch_toy import OPTIONS, ToySettings, check, go, write_lines
from ropelime import InputError, ModelError
from ropelime.batch import local
from ropelime.batch import ray as engine
from ropelime.batch.run import run
from ropelime.batch.store import rows
from ropelime.batch.work import Settings
from ropelime.cli import main
from ropelime.surrogate.local import LocalSurrogate

# Ray warns of what it does itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
# How many workers, and how many runs, are killed: a few here, as many as wanted with ROPELIME_KILLS=20.
WORKERS, RUNS = (int(os.environ.get("ROPELIME_KILLS", usual)) for usual in ("2", "1"))
DRIVER = """
import sys
from functools import partial
from pathlib import Path
from batch_toy import go
from ropelime.batch import ray
go(Path(sys.argv[1]), Path(sys.argv[2]), pause=0.03, together=4, engine=partial(ray.run, actors=2),
   progress=lambda done, total: print(done, flush=True))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of this process, whose workers find the toys."""
    ray = pytest.importorskip("ray", reason="pip install 'ropelime[ray]'")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parents[1]), *filter(None, sys.path)]
    )
    with engine._cluster(ray, None, 2):
        yield ray
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.mark.ray
def test_the_rows_are_those_of_the_local_engine(
    cluster: Any, tiny: Callable[..., LocalSurrogate], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    model = tiny("llama")
    model.model.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    source = tmp_path / "in.jsonl"
    with source.open("w") as file:
        for i in range(24):
            line = {"prompt": f"Paris is number {i}. Berlin is not. Which is it?", "output": "Paris"}
            file.write(json.dumps(line) + "\n")
        file.write("broken\n")
    settings = Settings(surrogates=(str(folder),), dtype="float32")
    run(source, tmp_path / "local", settings, local.run, together=5)
    summary = run(source, tmp_path / "ray", settings, partial(engine.run, actors=2), together=5)
    assert (summary.total, summary.errors) == (25, 1)
    one, two = (sorted((tmp_path / name).read_text().splitlines()) for name in ("local", "ray"))
    assert len(one) == 26
    assert one == two


@pytest.mark.ray
def test_a_killed_worker_costs_a_retry_and_no_row(cluster: Any, tmp_path: Path) -> None:
    source, target = write_lines(tmp_path / "in.jsonl", 200), tmp_path / "out.jsonl"
    settings = ToySettings(OPTIONS, pause=0.01)
    killed: list[int] = []

    def follow(done: int, total: int) -> None:
        workers = [a["pid"] for a in _actors() if a["pid"] not in killed]
        if workers and len(killed) < WORKERS:
            killed.append(workers[0])
            os.kill(workers[0], signal.SIGKILL)

    run(source, target, settings, partial(engine.run, actors=2), together=4, progress=follow)
    assert len(killed) == WORKERS
    check(target, [f"n{i}" for i in range(200)])


def _actors() -> list[dict[str, Any]]:
    """The processes below this one that hold a model."""
    import psutil

    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "MapWorker" in " ".join(process.cmdline()):
                found.append({"pid": process.pid})
        except psutil.Error:
            continue
    return found


@pytest.mark.ray
def test_what_the_workers_refuse_is_told(cluster: Any, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", 4)
    settings = Settings(surrogates=(str(tmp_path / "no-model"),))
    with pytest.raises(ModelError, match="no-model"):
        run(source, tmp_path / "out", settings, partial(engine.run, actors=1))
    with pytest.raises(InputError, match="the cluster has 0 GPUs"):
        run(source, tmp_path / "out2", settings, partial(engine.run, gpus=0.5))
    with pytest.raises(InputError, match="99 actors need a CPU each"):
        run(source, tmp_path / "out2", settings, partial(engine.run, actors=99))


def test_what_every_actor_has() -> None:
    place = engine._placement
    assert place({"CPU": 8.0}, None, None) == engine.Placement(1, 8, 0.0)
    assert place({"CPU": 8.0}, 2, None) == engine.Placement(2, 4, 0.0)
    assert place({"CPU": 64.0, "GPU": 8.0}, None, None) == engine.Placement(8, 1, 1.0)
    assert place({"CPU": 64.0, "GPU": 8.0}, None, 0.5) == engine.Placement(16, 1, 0.5)
    assert place({"CPU": 64.0, "GPU": 8.0}, 4, 2.0) == engine.Placement(4, 1, 2.0)
    with pytest.raises(InputError, match="need 12, and the cluster has 8"):
        place({"CPU": 64.0, "GPU": 8.0}, 6, 2.0)


@pytest.mark.ray
def test_killed_runs_lose_nothing(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="pip install 'ropelime[ray]'")
    source, target = write_lines(tmp_path / "in.jsonl", 200), tmp_path / "out.jsonl"
    folders = [str(Path(__file__).parents[1]), *sys.path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1"}
    rng = random.Random(2)
    for _ in range(RUNS):
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", DRIVER, str(source), str(target)]
        with subprocess.Popen(command, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=env) as p:
            assert p.stdout is not None
            for _ in range(2):
                p.stdout.readline()  # it has begun, and the first rows are there
            time.sleep(rng.uniform(0.0, 0.1))
            p.send_signal(signal.SIGKILL)
            p.communicate()
        assert p.returncode == -signal.SIGKILL
    some = sum(1 for _ in rows(target))
    assert 0 < some < 200
    assert go(source, target, together=4).before == some, "the local engine continues it"
    check(target, [f"n{i}" for i in range(200)])


@pytest.mark.ray
def test_an_address_where_no_cluster_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="pip install 'ropelime[ray]'")
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    asked: list[Any] = []
    monkeypatch.setattr("ray.init", lambda **options: asked.append(options))
    source = write_lines(tmp_path / "in.jsonl", 2)
    how = ["batch", str(source), str(tmp_path / "out"), "--engine", "ray", "--address"]
    begin = time.monotonic()
    with socket.socket() as silent, socket.create_server(("127.0.0.1", 0)) as other:
        silent.bind(("127.0.0.1", 0))  # and does not listen

        def hang_up() -> None:
            connection, _ = other.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n")
            connection.close()

        threading.Thread(target=hang_up, daemon=True).start()
        for address, why in (
            (f"127.0.0.1:{silent.getsockname()[1]}", "Connection refused"),
            (f"127.0.0.1:{other.getsockname()[1]}", "another program does"),
            ("ray://127.0.0.1:1", "HOST:PORT"),
            ("nobody", "HOST:PORT"),
            (f"{'9' * 300}:1", "No Ray cluster answers"),
            (f"127.0.0.1:{'9' * 5000}", "No Ray cluster answers"),
        ):
            assert main([*how, address]) == 1
            assert why in capsys.readouterr().err
    assert not asked, "Ray itself would look for it for minutes"
    assert time.monotonic() - begin < 60


def test_without_ray_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'ropelime\[ray\]'"):
        engine.installed()
