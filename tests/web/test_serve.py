"""``ropelime serve`` as a process: how it starts, who may ask, many at once, and being killed."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import httpx
import pytest

from ropelime.cli import main, parser, serve
from ropelime.cli.serve import _LIMITS, _settings
from ropelime.surrogate import Surrogate
from ropelime.web import log, service
from ropelime.web import memory as web_memory
from ropelime.web.history import History
from ropelime.web.settings import Limits, ServerSettings
from web_server import PLAIN, finished, serving, tiny_folder, until

LONG = {**PLAIN, "prompt": "One is here. " * 25, "features": "word"}
ENDLESS = {  # many times longer than any test that cancels it
    **PLAIN,
    "prompt": "One is here. " * 150,
    "features": "word",
    "preset": "faithful",
    "scoring": "exact",
    "sampler": "bernoulli:1000",
}


def memory(process: subprocess.Popen[str]) -> float:
    """Resident megabytes of a process."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1e3


@pytest.mark.slow
def test_it_serves_and_stops_when_it_is_told_to(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert server.token is None
        with httpx.Client(base_url=server.url, timeout=30) as client:
            assert client.get("/api/config").json()["surrogates"] == ["tiny"]
            assert finished(client, PLAIN)["state"] == "done"
            name = client.post("/api/jobs", json=LONG).json()["id"]
            with client.stream("GET", f"/api/jobs/{name}/events") as stream:
                lines = stream.iter_lines()
                assert next(lines).startswith("data: ")
                server.process.send_signal(signal.SIGINT)  # an open stream does not hold it up
                assert list(lines)
        assert server.process.wait(20) == 0


def test_the_address_is_shown_once_it_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def welcome(_: ServerSettings, port: int) -> None:
        socket.create_connection(("127.0.0.1", port), 5).close()  # refused before it listens
        shown.append(port)
        signal.raise_signal(signal.SIGINT)

    def loaded(self: service.Service, label: str) -> Surrogate:
        called.append("load")
        return load(self, label)

    shown: list[int] = []
    called: list[str] = []
    load = service.Service.load
    monkeypatch.setattr(serve, "_welcome", welcome)
    monkeypatch.setattr(log, "set_up", lambda: None)
    monkeypatch.setattr(web_memory, "limit", lambda: called.append("limit"))
    monkeypatch.setattr(web_memory, "hold", lambda: called.append("hold"))
    monkeypatch.setattr(service.Service, "load", loaded)
    folder = ["--history", str(tmp_path), "--surrogate", str(tiny_folder())]
    assert main(["serve", "--port", "0", *folder]) == 0
    assert len(shown) == 1
    assert called == ["limit", "load", "hold"]


def test_the_process_takes_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own settings stay; the garbage collector does not look at what is held."""
    caches = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    monkeypatch.setenv(caches[0], "7")
    monkeypatch.setenv(caches[1], "")
    monkeypatch.delenv(caches[1])  # and what is set here is taken back
    web_memory.limit()
    assert [os.environ[name] for name in caches] == ["7", "64"]
    gc.unfreeze()  # a server that another test has started in this process
    web_memory.hold()
    try:
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()


@pytest.mark.slow
def test_prompts_of_all_lengths_take_little_memory(tmp_path: Path) -> None:
    """A chip with bfloat16 has a kernel for each length, which torch would keep: 160 MB of them."""
    with serving(tmp_path) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        assert finished(client, PLAIN)["state"] == "done"
        start = memory(server.process)
        for length in range(3, 30):
            assert finished(client, {**PLAIN, "prompt": "It is so. " * length})["state"] == "done"
        assert memory(server.process) - start < 100


@pytest.mark.slow
def test_other_machines_need_the_token_that_it_makes(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0") as server:
        assert server.token is not None
        assert len(server.token) >= 32
        with httpx.Client(base_url=server.url) as client:
            assert client.get("/").status_code == 200
            assert client.get("/api/config").status_code == 401
            assert client.get("/api/config", headers={"host": "evil.example"}).status_code == 400
            given = {"authorization": f"Bearer {server.token}"}
            assert client.get("/api/config", headers=given).status_code == 200
            assert client.get("/api/config", headers={**given, "host": "10.1.2.3"}).status_code == 200


def test_a_token_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROPELIME_TOKEN", "a-token-of-my-own")
    arguments = ["serve", "--host", "0.0.0.0", "--max-features", "7"]
    found = _settings(parser().parse_args(arguments))
    assert (found.token, found.limits.features) == ("a-token-of-my-own", 7)
    given = _settings(parser().parse_args([*arguments, "--token", "another-of-my-own"]))
    assert given.token == "another-of-my-own"
    monkeypatch.delenv("ROPELIME_TOKEN")
    assert _settings(parser().parse_args(["serve"])).token is None


@pytest.mark.slow
def test_fifty_at_once_and_killed_in_the_middle(tmp_path: Path) -> None:
    """All are answered, in order or with 429; what was reported as done is there after a kill."""
    done: list[str] = []
    with serving(tmp_path, "--max-waiting", "30") as server:
        limits = httpx.Limits(max_connections=60)
        with httpx.Client(base_url=server.url, timeout=300, limits=limits) as client:
            assert finished(client, LONG)["state"] == "done"  # what a first time needs is there
            start = memory(server.process)
            held = client.post("/api/jobs", json=ENDLESS).json()["id"]  # nothing leaves the queue
            until(lambda: client.get(f"/api/jobs/{held}").json()["state"] == "running")
            with ThreadPoolExecutor(50) as pool:
                gate = threading.Barrier(50)

                def ask(number: int) -> httpx.Response:
                    gate.wait()
                    return client.post("/api/jobs", json={**LONG, "seed": number})

                answers = list(pool.map(ask, range(50)))
                codes = [answer.status_code for answer in answers]
                assert set(codes) == {202, 429}
                assert codes.count(202) == 30
                assert client.get(f"/api/jobs/{held}").json()["state"] == "running"
                assert client.delete(f"/api/jobs/{held}").status_code == 200
                jobs = [a.json() for a in answers if a.status_code == 202]
                jobs.sort(key=lambda job: job["ahead"])

                over = threading.Event()

                def follow(job: dict[str, str]) -> None:
                    try:
                        with client.stream("GET", f"/api/jobs/{job['id']}/events") as stream:
                            for line in stream.iter_lines():
                                if '"state":"done"' in line:
                                    done.append(job["id"])
                    except httpx.TransportError:
                        assert over.is_set(), "only the kill ends a stream"

                following = [pool.submit(follow, job) for job in jobs]
                until(lambda: len(done) >= 8, 300)
                grown = memory(server.process) - start
                over.set()
                server.kill()
                for future in following:
                    future.result(30)
    assert 8 <= len(done) < len(jobs), "it was killed in the middle"
    assert grown < 200, f"{grown:.0f} MB more"
    with serving(tmp_path) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        kept = [item["id"] for item in client.get("/api/explanations?limit=200").json()["items"]]
        assert set(done) <= set(kept), "nothing that was done is lost"
        assert len(kept) <= len(done) + 3, "the first, and at most what was kept but not yet reported"
        asked = [job["id"] for job in jobs]
        times = [asked.index(name) for name in reversed(kept) if name in asked]
        assert times == list(range(len(times))), "in the order in which they came"
        for name in kept:
            assert client.get(f"/api/explanations/{name}/explanation.json").status_code == 200
        assert finished(client, PLAIN)["state"] == "done", "and the server still works"


@pytest.mark.slow
def test_killed_while_it_writes(tmp_path: Path) -> None:
    """Killed at many moments, the history opens again and holds all that it said it kept."""
    code = (
        "import sys; sys.path.insert(0, 'tests'); from pathlib import Path\n"
        "from toy import toy; from ropelime.web.history import History\n"
        "history, found, start = History(Path(sys.argv[1])), toy(), int(sys.argv[2])\n"
        "for i in range(10**6):\n"
        "    history.add(f'{start}-{i}', {'id': f'{start}-{i}'}, {'pad': 'x' * 50_000}, found)\n"
        "    print(f'{start}-{i}', flush=True)\n"
    )
    root = Path(__file__).parents[2]
    reported: list[str] = []
    for round_ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), str(round_)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
        )
        assert writer.stdout is not None
        reported.append(writer.stdout.readline().strip())
        time.sleep(0.1 + 0.13 * round_)
        writer.kill()
        reported += writer.stdout.read().split()
        writer.wait()
        writer.stdout.close()
        kept = [row.id for row in History(tmp_path).page(10**6)]
        assert set(reported) <= set(kept)
        assert len(kept) <= len(reported) + round_ + 1
    assert len(reported) > 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--surrogate", "no/such/model"], "Unknown surrogate"),
        (["--surrogate", "smollm2", "--surrogate", "no.gguf"], "There is no file no.gguf"),
        (["--host", "no such host"], "is not an address"),
        (["--host", "9" * 300], "is not an address"),
        (["--host", "9" * 300, "--token", "t" * 16], "is not an address"),
        (["--token", "short"], "at least 16"),
        (["--dtype", "int3"], "Unknown dtype 'int3'"),
    ],
)
def test_what_is_wrong_is_said_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["serve", "--port", "0", "--history", str(tmp_path), *arguments]) == 1
    assert words in capsys.readouterr().err


def test_a_port_that_is_taken_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port), "--history", str(tmp_path)]) == 1
    assert f"port {port}: Address already in use" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--port", "70000"], ["--max-features", "0"]])
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["serve", *arguments])


def test_a_missing_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert main(["serve"]) == 1
    assert "pip install 'ropelime[web]'" in capsys.readouterr().err


def test_models_run_as_the_operator_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here, there = str(tiny_folder()), "http://localhost:8000/v1#elsewhere"
    arguments = ["--device", "cpu", "--dtype", "float16", "--surrogate", here, "--surrogate", there]
    options = parser().parse_args(["serve", "--history", str(tmp_path), *arguments])
    asked: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(service, "load_surrogate", lambda name, **how: asked.append((name, how)))
    served = service.Service(_settings(options))
    for label in served.settings.surrogates:
        served.load(label)
    running = {"device": "cpu", "dtype": "float16", "allow_pickle": False}
    assert asked == [(here, running), (there, {})], "a server runs its model as it likes"


def test_the_limits_of_the_command_line_are_those_of_the_server() -> None:
    for name, value in asdict(Limits()).items():
        assert _LIMITS[name].endswith(f"(default {value})")
    assert len(_LIMITS) == len(asdict(Limits()))
