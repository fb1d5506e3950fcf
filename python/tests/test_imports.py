"""No module of the package imports, at the top or inside a function, a module that imports it."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "shardwright"


def _imported(tree: ast.AST, known: set[str]) -> set[str]:
    """Modules of the package that run when this one does; imports of types alone do not run."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found.update(name for name in names if name in known)
        found |= _imported(node, known)
    return found


def _order(sources: dict[str, str]) -> list[str]:
    known = set(sources)
    return list(TopologicalSorter({name: _imported(ast.parse(text), known) for name, text in sources.items()}).static_order())


def test_modules_import_one_way() -> None:
    sources = {file.stem: file.read_text() for file in PACKAGE.glob("*.py") if file.stem != "__init__"}
    assert len(_order(sources)) == len(sources)


def test_a_circle_through_a_function_is_found() -> None:
    inside = "def f():\n    from .b import g\n"
    assert _order({"a": inside, "b": ""}) == ["b", "a"]
    with pytest.raises(CycleError):
        _order({"a": inside, "b": "from .a import f\n"})
