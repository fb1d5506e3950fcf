"""The notebook in `examples`: its cells, run again, show what stands below them; and how plans and comparisons look."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest
from plans import PLANS

import shardwright
from shardwright.showing import bytes_text, folded, in_words, seconds_text

#: Writes what the cells show into the notebook.
RECORD = os.environ.get("SHARDWRIGHT_RECORD") == "1"
NOTEBOOK = Path(__file__).parents[2] / "examples" / "compare-and-plan.ipynb"


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Runs a cell and gives the value of its last line, as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_the_cells_of_the_notebook_show_what_stands_below_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    shown = 0
    notebook = json.loads(NOTEBOOK.read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        value = run_cell("".join(cell["source"]), names)
        for output in cell["outputs"]:
            assert output["output_type"] == "execute_result", "the notebook has an output that is not a value"
            data = {kind: "".join(text) for kind, text in output["data"].items()}
            html = value._repr_html_() if hasattr(value, "_repr_html_") else None
            if RECORD:
                output["data"] = {"text/plain": [repr(value)]} if html is None else {"text/html": [html], "text/plain": [repr(value)]}
                data = {kind: "".join(text) for kind, text in output["data"].items()}
            assert html == data.get("text/html")
            # A notebook breaks long lists and tuples into lines.
            wanted = data["text/plain"]
            assert repr(value) == wanted if html is not None else value == ast.literal_eval(wanted)
            shown += 1
    assert shown >= 5
    if RECORD:
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def test_a_comparison_has_the_rows_of_the_command_as_numbers(capfd: pytest.CaptureFixture[str]) -> None:
    comparison = shardwright.compare("gpt2", devices="4xA100", seq=256, plans="dp,fsdp", threads=1, quiet=True)
    assert comparison.best is not None
    plans = {(plan["name"], plan["mesh"]): plan for plan in comparison.answer["plans"]}
    assert len(comparison.rows) == len(plans)
    for row in comparison.rows:
        plan = plans[row.name, row.mesh]
        assert (row.step_seconds, row.peak_bytes, row.fits) == (plan["stepSeconds"], plan["peakBytes"], plan["fits"])
    assert comparison.best.step_seconds == min(row.step_seconds for row in comparison.rows if row.fits)
    assert len(repr(comparison).splitlines()) == 3
    assert seconds_text(comparison.best.step_seconds) in comparison._repr_html_()
    report = comparison.report(format="md")
    assert comparison.best.name in report.text and report._repr_html_() is None
    assert capfd.readouterr().err == ""


def test_a_comparison_that_is_refused_has_code_and_hint() -> None:
    with pytest.raises(shardwright.CommandError, match="E_CLUSTER") as refused:
        shardwright.compare("gpt2", devices=4, cluster="dgx-h1000", quiet=True)
    assert "dgx-h100" in (refused.value.hint or "")


@pytest.mark.usefixtures("plans")
def test_an_export_alone_looks_like_a_plan_without_figures() -> None:
    exported = shardwright.load(PLANS / "mlp-2x2-tensor")
    assert repr(exported).startswith("Plan of ") and "dp=2,tp=2" in repr(exported)
    assert "<table>" not in exported._repr_html_()
    with pytest.raises(shardwright.MismatchError, match=r"plan\.json is not there"):
        assert exported.peak_bytes


def test_the_figures_of_a_plan_are_those_of_its_file(tmp_path: Path) -> None:
    out = tmp_path / "plan"
    plan = shardwright.plan("gpt2", mesh="dp=2", cluster="h100", layers=1, seq=128, batch=2, no_recipes=True, out=out, quiet=True)
    written = json.loads((out / "plan.json").read_text())
    assert plan.step_seconds == written["step"]["stepSeconds"]
    assert plan.peak_bytes == written["step"]["peakBytes"]
    assert plan.serial_seconds == written["objective"]["seconds"]
    assert plan.bound_seconds == written["proof"]["bound"] <= plan.serial_seconds
    lines = repr(plan).splitlines()
    assert len(lines) == 3 and len(max(lines, key=len)) < 160
    html = plan._repr_html_()
    assert html.count("<tr>") == 1 + len(folded((p["name"], p["shape"], p["placement"]) for p in written["parameters"]))
    assert "<polyline" in html and bytes_text(written["memory"]["peakBytes"]) in html
    page = plan.report(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == page.text
    assert 'report.html">' in (page._repr_html_() or "")
    assert "<iframe" in (plan.report()._repr_html_() or "")


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        ("RR", "whole on every device"),
        ("S(0)R", "dim 0 cut over dp"),
        ("S(0)S(0)", "dim 0 cut over dp and tp"),
        ("S(1)S(0)", "dim 1 cut over dp, dim 0 cut over tp"),
        ("RP(sum)", "a pending sum over tp"),
        ("S(0)[1]S(0)[0]", "S(0)[1]S(0)[0]"),
        ("_S(0, 3)R", "_S(0, 3)R"),
    ],
)
def test_placements_in_words(placement: str, words: str) -> None:
    assert in_words(placement, ("dp", "tp")) == words


def test_figures_have_three_digits() -> None:
    assert [seconds_text(s) for s in (12.34, 0.0352, 1.5e-6, 2e-10)] == ["12.3 s", "35.2 ms", "1.50 µs", "0.200 ns"]
    assert [bytes_text(b) for b in (12, 7.45 * 2**30, 2**20 * 100.2)] == ["12 B", "7.45 GiB", "100 MiB"]
