"""The layering: each folder imports only from those above it, and the numeric layers run on a bare GPU node."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "hapvr"
# Top to bottom: a layer may import from itself and from those before it.
LAYERS = [
    "processor",
    "errors",
    "places",
    "storage",
    "webhooks",
    "client",
    "actions",
    "checks",
    "config",
    "devices",
    "weights",
    "records",
    "workers",
    "video",
    "audio",
    "synthetic",
    "backbones",
    "features",
    "similarity",
    "losses",
    "evaluation",
    "conversion",
    "judge",
    "model",
    "batch",
    "model_evaluation",
    "mteb_model",
    "training",
    "methods",
    "decision",
    "matching",
    "library",
    "judge_fitting",
    "verdict_evaluation",
    "reports",
    "paper",
    "demo",
    "bench",
    "server",
    "cli",
    "__main__",
]
NUMERIC = ["backbones", "features", "similarity", "losses", "evaluation", "training", "methods", "conversion", "paper"]
ALLOWED_THERE = {"torch", "numpy", "safetensors", "PIL", "triton"}
ALLOWED_INSIDE = {
    "h5py",
    "tomllib",
    "tomli",
    "matplotlib",
    "openvino",
}  # within a function, which is not called where they are not installed


def layer_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path, *, at_the_top: bool = False) -> list[str]:
    """What a module imports, as module.name; at the top, or anywhere (in functions, and for type checkers)."""
    names: list[str] = []
    tree = ast.parse(path.read_text())
    for node in tree.body if at_the_top else ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


MODULES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"}
IMPORTS = {name: imports(path) for name, path in MODULES.items()}
# Which of our modules each one imports, wherever in the file.
GRAPH = {
    name: {found for one in names if (found := one if one in MODULES else one.rpartition(".")[0]) in MODULES} - {name}
    for name, names in IMPORTS.items()
}


def test_a_layer_imports_only_from_those_above_it() -> None:
    for module, names in IMPORTS.items():
        here = LAYERS.index(layer_of(MODULES[module]))
        for name in names:
            parts = name.split(".")
            if parts[0] == "hapvr" and parts[1] != "__version__":
                assert LAYERS.index(parts[1]) <= here, f"{module} imports {name}"


def test_the_numeric_layers_import_few_libraries() -> None:
    for module, names in IMPORTS.items():
        path = MODULES[module]
        if layer_of(path) not in NUMERIC:
            continue
        at_the_top = imports(path, at_the_top=True)
        for name in names:
            inside = set() if name in at_the_top else ALLOWED_INSIDE
            allowed = ALLOWED_THERE | inside | {"hapvr"} | sys.stdlib_module_names
            assert name.split(".")[0] in allowed, f"{module} imports {name}"


def test_no_package_imports_a_private_module_of_another() -> None:
    for module, names in GRAPH.items():
        for name in names:
            package, _, last = name.rpartition(".")
            assert not last.startswith("_") or module.startswith(f"{package}."), f"{module} imports {name}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Not even inside functions or for type checkers: such modules are one idea in two files."""
    sorter = TopologicalSorter(GRAPH)
    try:
        sorter.prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_every_layer_is_there() -> None:
    assert {layer_of(path) for path in MODULES.values()} == set(LAYERS)


def test_the_numeric_layers_import_without_decoders_storage_and_command_line() -> None:
    program = (
        "import sys\n"
        "refused = {'av', 'typer', 'rich', 'click', 'pydantic', 'lancedb', 'h5py', 'matplotlib', 'openvino'}\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in refused:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        + "\n".join(f"import hapvr.{layer}" for layer in NUMERIC)
        + "\nhapvr.methods.list_methods()"  # which imports every method
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("layer", NUMERIC)
def test_what_a_layer_offers_is_sorted_and_exists(layer: str) -> None:
    module = __import__(f"hapvr.{layer}", fromlist=["__all__"])
    assert module.__all__ == sorted(module.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    for name in module.__all__:
        assert getattr(module, name).__doc__, f"hapvr.{layer}.{name} is not documented"
