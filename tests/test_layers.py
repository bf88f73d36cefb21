"""Imports run one way, and the light packages need no torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import stcon

SOURCE = Path(stcon.__file__).parent
# what stands lower may import what stands higher (docs/architecture.md); those of one line may import each other
LAYERS = [
    ("errors", "_notices", "_cache", "_numba"),
    ("theory",),
    ("automata",),
    ("grammar",),
    ("vocab",),
    ("kernels", "constraint"),
    ("models", "engine"),
    ("api",),
    ("testing",),
    ("server", "integrations", "agents"),
    ("bench",),
    ("commands",),
    ("cli", "__main__"),
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def _imports(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Modules of ours that are imported, and whether that happens when the module itself is imported."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    typed = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.dump(branch.test)
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for name in names:
            if name.startswith("stcon."):
                yield name.split(".")[1], id(node) not in inside and id(node) not in typed


def test_imports_run_one_way() -> None:
    """No module imports, on being imported, from a layer below its own."""
    wrong = []
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        if parts[0] == "__init__":
            continue
        level = LEVEL[parts[0]]
        for name, eager in _imports(ast.parse(file.read_text("utf-8"))):
            if eager and LEVEL[name] > level:
                wrong.append(f"{'/'.join(parts)} imports stcon.{name}")
    assert not wrong, wrong


def test_light_packages_import_without_torch() -> None:
    """In a fresh interpreter where torch cannot be imported."""
    modules = ["stcon", "stcon.cli"] + [
        f"stcon.{name}" for name in ("theory", "automata", "grammar", "vocab", "constraint")
    ]
    modules += ["stcon.kernels.reference", "stcon.kernels.cpu", "stcon.engine.loop"]
    code = "import sys; sys.modules['torch'] = None; sys.modules['transformers'] = None\n"
    code += "\n".join(f"import {name}" for name in modules)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
