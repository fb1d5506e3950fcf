"""The package in an environment that has PyTorch, what PyTorch declares, and what the package declares: nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib")
from packaging.requirements import Requirement  # noqa: E402
from packaging.utils import canonicalize_name  # noqa: E402

ALONE = """
import os, sys
from importlib.machinery import PathFinder

class Present(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in sys.argv[1].split(",") else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Present if finder is PathFinder else finder for finder in sys.meta_path]
import torch.distributed as dist
import shardwright
from plans import PLANS
from models import mlp
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=0, world_size=1)
told = [None]
dist.all_gather_object(told, "the plan")
model, x, y = mlp()
shardwright.capture(model, (x,), loss=False, path=sys.argv[2] + ".fx.txt")
print(*told)
"""


def installed_with(names: list[str]) -> set[str]:
    """These packages, and what pip installs with them."""
    found: set[str] = set()
    while names:
        name = Requirement(names.pop())
        if canonicalize_name(name.name) in found or (name.marker and not name.marker.evaluate({"extra": ""})):
            continue
        found.add(canonicalize_name(name.name))
        names.extend(metadata.requires(name.name) or [])
    return found


def test_the_package_runs_with_what_it_declares(tmp_path: Path) -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    # The package itself may be installed, too: by pip, or as what pip left in the checkout.
    own = installed_with([*project["dependencies"], "torch"]) | {project["name"]}
    absent = [module for module, packages in metadata.packages_distributions().items() if own.isdisjoint(map(canonicalize_name, packages))]
    assert "pytest" in absent
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    call = [sys.executable, "-c", ALONE, ",".join(absent), str(tmp_path / "store")]
    run = subprocess.run(call, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert run.stdout.split("\n")[-2:] == ["the plan", ""], run.stderr[-2000:]
