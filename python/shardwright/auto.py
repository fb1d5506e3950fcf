"""The whole road in one call: capture, plan on the first rank, and run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from .command import plan as make_plan
from .constraints import Stated
from .distribute import parallelize
from .folder import load
from .graph_capture import Captured, capture
from .local_batch import LocalBatch
from .making import mesh_text, on_first, open_mesh
from .module import programs_of, uncompiled
from .precision import MixedPrecision
from .shared import put_present, shared_pins


def auto_parallelize(
    model: nn.Module,
    example_inputs: Sequence[Any],
    device_mesh: DeviceMesh | str,
    *,
    cluster: str,
    example_kwargs: Mapping[str, Any] | None = None,
    loss: Any = None,
    targets: Sequence[Any] = (),
    folder: str | os.PathLike[str] = "plan",
    compile: bool | Literal["joint"] = False,
    timeout: timedelta | None = None,
    check_batches: bool = True,
    inputs: Literal["whole", "local"] | Sequence[str] = "whole",
    outputs: Literal["whole", "placed"] = "whole",
    programs: int = 16,
    accumulate: int | None = None,
    check_finite: bool = False,
    mixed_precision: MixedPrecision | None = None,
    in_placements: Stated | None = None,
    out_placements: Stated | None = None,
    batch_dim: int | Mapping[str, int] = 0,
    also: Sequence[Sequence[Any] | Mapping[str, Any]] = (),
    tune: int = 0,
    tune_seconds: float = 120,
    **flags: Any,
) -> Any:
    """Captures a model, plans it for the mesh and takes it over.

    Parameters and buffers that another parallel model has already are shared with it: the plan is made with them where they are.

    The first rank of the mesh captures and plans, the others wait; `folder` must be on a disk that all of them see.

    Args:
        model: as for `capture` and `parallelize`.
        example_inputs: of the global batch.
        device_mesh: with names, or sizes by name, "dp=2,tp=2", of one over all ranks; "dp=-1" takes as many as there are, and the
            process group is initialised where it is not.
        cluster: as for `plan`.
        example_kwargs: inputs by name.
        loss: as for `capture`; None: the model returns all that it returns.
        targets: as for `capture`.
        folder: where plan and program are written; a run that starts again with the same model, mesh and flags takes what is there.
        compile: as for `parallelize`; the plan is then priced so, unless `compiled=False`.
        timeout, check_batches, inputs, outputs, programs, accumulate, check_finite: as for `parallelize`.
        mixed_precision: dtypes in which the step computes; weights keep theirs.
        in_placements, out_placements: as for `capture`.
        also: inputs, by position or by name, whose evaluation without gradients is planned now and not when it comes first.
        batch_dim: the dim of inputs that is the batch, for a `recipe`, by name of the input where they differ. Inputs that have as many
            rows there as the first one have a batch.
        tune: run so many plans for a few steps each (the best and those recipes of the mesh that differ), and keep the fastest that
            fits. Predicted and measured steps are printed and stand in `folder`/tuned.json, which answers the same question again.
        tune_seconds: after which no further plan is run.
        flags: of `plan`.

    Raises:
        MismatchError: as of `parallelize`; on a rank that does not see the folder.
        ShardwrightError: on every rank, with the class and the message of the first; where that fails by another exception, which
            it raises itself, E_RANK on the others.
    """
    device_mesh = open_mesh(device_mesh)
    mesh = mesh_text(device_mesh)
    put_present(uncompiled(model))
    shared = shared_pins(uncompiled(model), device_mesh)
    if shared:
        own = flags.get("pin") or []
        flags["pin"] = [*shared, *([own] if isinstance(own, str) else own)]
    # Literal prices of other planners know calls one by one only.
    compiled = {"compiled": True} if compile and flags.get("cost") != "autoparallel" else {}
    local = None if inputs == "whole" else LocalBatch(device_mesh, None if inputs == "local" else tuple(inputs))
    if local is not None:
        (example_inputs, targets), example_kwargs = local.gather((tuple(example_inputs), tuple(targets)), example_kwargs or {})
    # The model returns what it returns, of which a script picks its loss.
    trained = False if loss is None else loss

    how: dict[str, Any] = {"loss": trained, "targets": targets, "mixed_precision": mixed_precision}
    how |= {"in_placements": in_placements, "out_placements": out_placements, "command": flags.get("command")}
    # A model whose weights are on the meta device does not tell the device.
    how |= {"device": device_mesh.device_type}
    # Passes of the step that is planned; a model without a trained parameter has no gradients to add up.
    adds = accumulate is not None and accumulate > 1 and any(p.requires_grad for p in model.parameters())
    passes = {"accumulate": accumulate} if adds else {}
    dtypes = {}
    if mixed_precision is not None:
        mixed_precision.buffers(model)
        dtypes = mixed_precision.flags()

    tunes = tune > 1 and not flags.get("recipe")
    made: list[Captured] = []

    # Calls with hooks inside of the model are computed with whole weights; the plan is for those without.
    how["hooks"] = False

    def make() -> Path:
        captured = capture(model, example_inputs, example_kwargs, **how, path=Path(folder) / "model.fx.txt")
        rows = {"batch_dim": _batch_dims(captured, batch_dim)} if flags.get("recipe") else {}
        asked = {**rows, **compiled, **dtypes, **passes, **flags}
        make_plan(captured, mesh=mesh, cluster=cluster, out=folder, recipes=tunes, keep=True, **asked)
        made.append(captured)
        return Path(folder)

    planned = load(on_first(device_mesh, make))
    if tunes:
        # Trials are for those alone who ask for them.
        from .tuning import make_candidates, tuned

        planning = {"mesh": mesh, "cluster": cluster, **compiled, **dtypes, **passes, **flags}
        running: dict[str, Any] = {"compile": compile, "outputs": outputs, "loss": trained}
        planned = tuned(
            model,
            planned,
            repr(
                (mesh, Path(cluster).read_text() if cluster.endswith(".json") else cluster, tune, sorted(map(str, flags.items())), running)
            ),
            lambda: make_candidates(made[0], Path(folder), tune, batch_dim=_batch_dims(made[0], batch_dim), **planning),
            device_mesh,
            lambda copied, plan, limit: parallelize(copied, plan, device_mesh, timeout=limit, check_batches=False, **running),
            ((*example_inputs, *targets), dict(example_kwargs or {})),
            budget=tune_seconds,
            quiet=bool(flags.get("quiet")),
        )
    module = parallelize(
        model,
        planned,
        device_mesh,
        compile=compile,
        timeout=timeout,
        check_batches=check_batches,
        inputs=inputs,
        outputs=outputs,
        loss=trained,
        programs=programs,
        accumulate=accumulate,
        check_finite=check_finite,
        flags={**compiled, **flags},
    )
    for example in also:
        args, kwargs = ((), example) if isinstance(example, Mapping) else (tuple(example), {})
        programs_of(module).plan_ahead(uncompiled(module), args, kwargs)
    return module


def _batch_dims(captured: Captured, dims: int | Mapping[str, int]) -> list[str]:
    """Dims of the batch, as the command takes them."""
    found: dict[str, tuple[int, int]] = {}
    for name, row in zip(captured.inputs, captured.record["inputs"], strict=True):
        dim = dims if isinstance(dims, int) else dims.get(row["name"])
        if dim is not None and dim < len(row["shape"]):
            found[name] = dim, row["shape"][dim]
    rows = next((size for _, size in found.values()), 0)
    return [f"{name}={dim}" for name, (dim, size) in found.items() if size == rows]
