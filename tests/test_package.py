"""The house: what is exported, what an import costs, and which way imports point."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ropelime

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ropelime"
FILES = sorted(SOURCE.rglob("*.py"))
FOLDERS = ("traces", "clients", "surrogate", "views", "batch", "web", "cli")

# Data goes one way: a module may import those before it, and none beside or after it.
ORDER = [
    ["_version", "errors", "typing"],
    ["registry", "text.display", "text.vocabulary", "example"],
    ["files", "progress"],
    ["text.prompt", "text.segmentation"],
    ["text.structured", "text.integrations", "text.actions", "text.marks"],
    ["text.features", "text.directives"],
    ["text.similarity"],
    ["text.ablated", "text.lexical", "text.documents", "text.annotated", "text.passages"],
    ["traces"],
    ["integrations.messages"],
    ["integrations.responses"],
    ["clients"],
    ["method.rope", "method.learnt"],
    ["method.scores"],
    ["method.samplers", "method.interactions", "method.groups"],
    ["method.kernels", "method.targets", "method.regression"],
    ["method.uncertainty"],
    ["method.attribution"],
    ["method.schedule", "method.coarse", "results.grounding", "results.close", "results.unsaid"],
    ["results.verdicts"],
    ["results.diagnostics", "results.verification"],
    ["surrogate"],
    ["options"],
    ["results.explanation"],
    ["results.ensemble", "results.validation", "results.annotations"],
    ["results.citations", "results.serialization"],
    ["results.measures"],
    ["results.decisions"],
    ["results.assertions", "results.rows"],
    ["results.audit", "results.digest"],
    ["results.summary"],
    ["views"],
    ["steps", "answering"],
    ["verify", "long"],
    ["explain"],
    ["ask", "audit", "summary", "guard"],
    ["stepwise"],
    ["trace"],
    ["integrations.langchain", "integrations.llama_index", "integrations.mcp"],
    ["batch", "web"],
    ["cli"],
]
MAY_IMPORT = {
    name: {m for row in ORDER[:i] for m in row} | ({name} if name in FOLDERS else set())
    for i, row in enumerate(ORDER)
    for name in row
}
# What is loaded only when it is needed: torch and transformers, optional extras, slow libraries.
LAZY = {"surrogate.local", "batch.ray", "batch.local"}
ROOMS = ("text", "method", "results", "integrations")
FUNCTIONS = ("ask", "audit", "explain", "guard", "summary", "trace")  # each in a module of its own name


def part(file: Path) -> str:
    """The module of the package, or the folder in it, that a file belongs to."""
    return named([p.removesuffix(".py") for p in file.relative_to(SOURCE).parts])


def named(parts: list[str]) -> str:
    """Modules of the method by themselves, all others by their folder."""
    return ".".join(parts[:2]) if parts[0] in ROOMS and parts[1:] != ["__init__"] else parts[0]


def imported(file: Path, *, inside: bool = True) -> set[str]:
    """Every absolute module name that a file imports, by default also inside functions."""
    found = set()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree) if inside else tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute here"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def parts_imported(file: Path, *, inside: bool = True) -> set[str]:
    """The parts of this package that a file imports."""
    known = {part(f) for f in FILES}
    names = (name.split(".") for name in imported(file, inside=inside))
    return {named(name[1:]) for name in names if name[0] == "ropelime" and len(name) > 1} & known


def shown(file: Path) -> str:
    return str(file.relative_to(SOURCE))


@pytest.mark.parametrize("file", [f for f in FILES if part(f) in MAY_IMPORT], ids=shown)
def test_imports_point_one_way(file: Path) -> None:
    assert parts_imported(file) <= MAY_IMPORT[part(file)]


def test_the_rule_covers_the_whole_package() -> None:
    named = {part(f) for f in FILES} - {*ROOMS, "__init__", "__main__"}
    assert named == set(MAY_IMPORT)
    found = parts_imported(SOURCE / "surrogate" / "base.py")
    assert "text.features" in found, "the rule sees imports"


@pytest.mark.parametrize("file", FILES, ids=shown)
def test_no_function_imports_another_module_of_ours(file: Path) -> None:
    """Only what loads torch or an optional extra, and the commands of the CLI, wait until they run."""
    if part(file) == "cli":
        return
    inside = imported(file) - imported(file, inside=False)
    ours = {name.removeprefix("ropelime.") for name in inside if name.startswith("ropelime")}
    assert not {name for name in ours if not any(name.startswith(lazy) for lazy in LAZY)}


def test_the_method_fits_one_screen() -> None:
    tree = ast.parse((SOURCE / "steps.py").read_text(encoding="utf-8"))
    (steps,) = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "steps"]
    assert steps.end_lineno is not None
    assert steps.end_lineno - steps.lineno + 1 <= 40
    called = [
        n.func.id for n in ast.walk(steps) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    ]
    order = ["split", "prepare", "collect", "fit", "explained"]
    assert set(order) <= set(called)


@pytest.mark.parametrize("file", [f for f in FILES if part(f) not in ("cli", "__main__")], ids=shown)
def test_nothing_else_imports_the_command_line(file: Path) -> None:
    assert "cli" not in parts_imported(file)


@pytest.mark.parametrize("file", FILES, ids=shown)
def test_the_product_does_not_know_its_benchmarks(file: Path) -> None:
    assert not {name for name in imported(file) if name.split(".")[0] == "benchmarks"}


@pytest.mark.parametrize("file", [f for f in FILES if part(f) not in ("cli", "web")], ids=shown)
def test_only_the_command_line_imports_the_web(file: Path) -> None:
    assert "web" not in parts_imported(file)


@pytest.mark.parametrize("file", [f for f in FILES if part(f) != "surrogate"], ids=shown)
def test_only_surrogates_import_torch(file: Path) -> None:
    assert not {name for name in imported(file) if name.split(".")[0] == "torch"}


def test_importing_it_is_light() -> None:
    heavy = {"torch", "sklearn", "transformers", "scipy", "matplotlib", "rich", "openai", "ray"}
    code = f"import sys, ropelime; print(*({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
    assert done.stderr == ""


def test_exports() -> None:
    modules = {part(f) for f in FILES}
    public = {name for name in vars(ropelime) if not name.startswith("_")}
    assert public - modules == set(ropelime.__all__) - {"__version__", *FUNCTIONS}
    assert sorted(ropelime.__all__) == ropelime.__all__
    for name in FUNCTIONS:
        assert callable(vars(ropelime)[name]), "the function and not the module of the same name"
    assert set(ropelime.__all__) == {
        "Audit",
        "Explanation",
        "InputError",
        "ModelError",
        "RankedSentence",
        "RopeLimeError",
        "Summary",
        "Trace",
        "__version__",
        "ask",
        "audit",
        "explain",
        "guard",
        "load",
        "load_surrogate",
        "summary",
        "trace",
    }


def test_errors_can_be_caught_by_what_they_mean() -> None:
    assert issubclass(ropelime.InputError, ValueError)
    assert issubclass(ropelime.ModelError, RuntimeError)
    for error in (ropelime.InputError, ropelime.ModelError):
        assert issubclass(error, ropelime.RopeLimeError)


def test_the_version_is_the_newest_of_the_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = r"^## \[(\d+\.\d+\.\d+[^\]]*)\] - (\d{4}-\d\d-\d\d|unreleased)$"
    newest = re.search(heading, text, re.MULTILINE)
    assert newest is not None
    assert newest[1] == ropelime.__version__
    assert f"\n[{newest[1]}]: https://" in text, "a heading is a link to the tag"


def test_functions_fit_a_screen() -> None:
    long = {
        f"{shown(file)}: {node.name}"
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.end_lineno or 0) - node.lineno + 1 > 60
    }
    assert not long
