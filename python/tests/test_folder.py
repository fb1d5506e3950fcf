from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import shardwright

PLANS = Path(__file__).parent / "plans"


def test_a_plan_reads_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"import shardwright; p = shardwright.load({str(PLANS / 'mlp-2x2-optimum')!r})\n"
        "assert p.mesh_shape == (2, 2) and p.mesh_dim_names == ('dp', 'tp')\n"
        "try: shardwright.capture\n"
        "except shardwright.MismatchError as e: assert 'not installed' in str(e)\n"
        "else: raise SystemExit('not refused')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_versions_and_parts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(shardwright.MismatchError, match=r"program\.py is not there"):
        shardwright.load(tmp_path)
    folder = tmp_path / "plan"
    shutil.copytree(PLANS / "mlp-2x2-optimum", folder)
    table = json.loads((folder / "placements.json").read_text())
    (folder / "placements.json").write_text(json.dumps({**table, "version": 2}))
    with pytest.raises(shardwright.MismatchError, match="it has version 2, this package reads 1"):
        shardwright.load(folder)
    (folder / "placements.json").write_text(json.dumps({**table, "plan": "sha256:0"}))
    with pytest.raises(shardwright.MismatchError, match=r"placements\.json is of plan sha256:0, collectives\.json of plan"):
        shardwright.load(folder)
    (folder / "placements.json").write_text("{")
    with pytest.raises(shardwright.MismatchError, match="cannot be read"):
        shardwright.load(folder)


def test_torch_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch, "__version__", "2.7.1+cu126")
    with pytest.raises(shardwright.MismatchError, match=r"PyTorch is 2\.7\.1\+cu126, at least 2\.8 is needed"):
        shardwright.require_torch()


def test_a_program_that_decides_by_values_is_not_compiled() -> None:
    import torch

    plan = shardwright.load(PLANS / "mlp-2x2-optimum")
    plan.program.DECIDES = ("cond_1 (cond)",)
    with pytest.raises(shardwright.MismatchError, match=r"E_COMPILE values decide what cond_1 \(cond\) run"):
        shardwright.parallelize(torch.nn.Linear(2, 2), plan, None, compile=True)


def test_the_command_s_refusals_are_exceptions(tmp_path: Path) -> None:
    script = tmp_path / "fake.py"
    error = {"code": "E_MESH", "message": "the mesh has no dim 'x'", "where": {"file": "m", "line": 3}, "hint": "write tp"}
    script.write_text(f"import json,sys; print(json.dumps({{'error': {error!r}}})); sys.exit(2)")
    with pytest.raises(shardwright.CommandError) as caught:
        shardwright.plan("m", mesh="x=2", cluster="dgx-h100", out=tmp_path / "p", command=[sys.executable, str(script)], quiet=True)
    assert (caught.value.code, caught.value.hint, caught.value.place) == ("E_MESH", "write tp", "m:3")
    with pytest.raises(shardwright.CommandError, match="cannot be called"):
        shardwright.plan("m", mesh="x=2", cluster="c", out=tmp_path / "p", command=["/no/such/command"])
