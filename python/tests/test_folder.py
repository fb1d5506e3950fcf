from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from models import mlp
from plans import PLANS
from torch.nn import functional as F

import shardwright
from shardwright import planner

pytestmark = pytest.mark.usefixtures("plans")


def test_a_plan_reads_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"import shardwright; p = shardwright.load({str(PLANS / 'mlp-2x2-tensor')!r})\n"
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
    shutil.copytree(PLANS / "mlp-2x2-tensor", folder)
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


def test_a_program_of_an_older_plan_is_refused(tmp_path: Path) -> None:
    shutil.copytree(PLANS / "mlp-2x2-tensor", tmp_path / "torch")
    (tmp_path / "plan.json").write_text(json.dumps({"hashes": {"plan": "12"}}))
    with pytest.raises(shardwright.MismatchError, match=r"E_PLAN it is of plan sha256:\w+, plan\.json is plan sha256:12\n.* export"):
        shardwright.load(tmp_path)


def test_records_of_other_models_and_versions_are_refused(tmp_path: Path) -> None:
    shutil.copytree(PLANS / "mlp-2x2-tensor", tmp_path / "plan")
    file = tmp_path / "plan" / "capture.json"
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "model": "Other", "parameters": record["parameters"][1:]}))
    with pytest.raises(shardwright.MismatchError, match=r"it is of Other, which has no fc1\.weight, which the program of \S+ has"):
        shardwright.load(tmp_path / "plan")
    file.write_text(json.dumps({**record, "version": 9}))
    with pytest.raises(shardwright.MismatchError, match="E_VERSION it has version 9, this package reads 1"):
        shardwright.load(tmp_path / "plan")


@pytest.mark.parametrize(
    ("noted", "said"),
    [
        ({"param_dtype": "save"}, "capture.json: mixedPrecision.param_dtype: E_DTYPE 'save' is not a dtype of PyTorch"),
        ({"output_dtype": "ops.aten"}, "mixedPrecision.output_dtype: E_DTYPE 'ops.aten' is not a dtype"),
        ({"reduce_dtype": 32}, "mixedPrecision.reduce_dtype: E_DTYPE 32 is not a dtype"),
        ({"cast_forward_inputs": "bfloat16"}, "cast_forward_inputs: E_SYNTAX 'bfloat16' is neither true nor false"),
        ({"__class__": None}, "capture.json: mixedPrecision: E_SYNTAX there is no '__class__'; there are param_dtype, reduce_dtype"),
        ([], r"mixedPrecision: E_SYNTAX it is \[\], not an object"),
    ],
)
def test_a_mixed_precision_of_a_file_that_is_none_is_refused_by_name(noted: object, said: str) -> None:
    from shardwright.precision import precision_of

    with pytest.raises(shardwright.MismatchError, match=said):
        precision_of({"mixedPrecision": noted})


def test_a_mixed_precision_is_read_as_it_was_noted() -> None:
    import torch

    from shardwright.precision import precision_of

    noted = shardwright.MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    assert precision_of({"mixedPrecision": json.loads(json.dumps(noted.record()))}) == noted


@pytest.mark.parametrize("path", ["torch:save", "torch:Tensor.relu", "no_such_package:Output"])
def test_a_class_of_outputs_that_a_file_names_is_a_class(path: str) -> None:
    from shardwright.output_trees import rebuild_tree

    with pytest.raises(shardwright.MismatchError, match=r"E_OUTPUT the model returns a"):
        rebuild_tree({"tuple": [0], "class": path}, [1.0])


def test_the_command_is_found_around_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = {"node": "/usr/bin/node"}
    monkeypatch.setattr(planner.shutil, "which", lambda name, path=None: tools.get(name))
    monkeypatch.setattr(planner, "_installed_from", lambda: [])
    below = tmp_path / "checkout" / "runs"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    with pytest.raises(shardwright.CommandError, match=r"(?s)there is no command shardwright: not on the path, not in .*runs.*npm ci"):
        planner.find_command()
    main = tmp_path / "checkout" / "dist" / "cli" / "main.js"
    main.parent.mkdir(parents=True)
    main.write_text("")
    (tmp_path / "checkout" / "package.json").write_text('{"name": "another"}')
    with pytest.raises(shardwright.CommandError):
        planner.find_command()
    (tmp_path / "checkout" / "package.json").write_text('{"name": "shardwright"}')
    assert planner.find_command() == ["/usr/bin/node", str(main)]
    tools["shardwright"] = "/opt/shardwright"
    assert planner.find_command() == ["/opt/shardwright"]


def test_the_script_of_this_package_is_not_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, text in {"python": "#!/usr/bin/python3\nfrom shardwright.__main__ import main\n", "node": "#!/usr/bin/env node\n"}.items():
        (tmp_path / folder).mkdir()
        script = tmp_path / folder / "shardwright"
        script.write_text(text)
        script.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "python"), str(tmp_path / "node")]))
    assert planner.find_command() == [str(tmp_path / "node" / "shardwright")]


def test_torch_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch, "__version__", "2.7.1+cu126")
    with pytest.raises(shardwright.MismatchError, match=r"PyTorch is 2\.7\.1\+cu126, at least 2\.8 is needed"):
        shardwright.require_torch()


def test_a_program_that_decides_by_values_is_not_compiled() -> None:
    import torch

    plan = shardwright.load(PLANS / "mlp-2x2-tensor")
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


def test_a_plan_that_answers_the_same_question_is_taken(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model, x, y = mlp()
    answer = tmp_path / "plan" / "plan.json"

    def planned(**flags: Any) -> bool:
        """Whether it was made anew."""
        captured = shardwright.capture(model, (x,), loss=F.mse_loss, targets=(y,), path=tmp_path / "model.fx.txt")
        before = answer.stat().st_mtime_ns if answer.exists() else 0
        plan = shardwright.plan(captured, mesh="dp=2", cluster="dgx-h100", out=tmp_path / "plan", keep=True, no_recipes=True, **flags)
        assert plan.capture == captured.record
        return answer.stat().st_mtime_ns != before

    assert [planned(), planned()] == [True, False]
    assert "holds the plan for this model, mesh and cluster: it is taken" in capfd.readouterr().err
    assert [planned(pin=["fc1.weight=R"]), planned(pin=["fc1.weight=R"])] == [True, False]
    answer.write_text(answer.read_text() + "\n")
    assert [planned(pin=["fc1.weight=R"]), planned()] == [True, True]
    x = torch.cat([x, x])
    y = torch.cat([y, y])
    assert [planned(), planned()] == [True, False]
