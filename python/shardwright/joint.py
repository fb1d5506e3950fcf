"""The program of one device as a joint graph of AOTAutograd, for PyTorch's own partitioner, Inductor and passes over graphs.

A parallel module gives the same as `aot_export_joint_with_descriptors` gives for a model, but with the plan's program: parameters and
inputs are local parts under the model's names, and collectives are those of the plan, in its order.
`aot_compile_joint_with_descriptors` accepts it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
import torch._functorch.config
from torch import nn
from torch._functorch.aot_autograd import aot_compile_joint_with_descriptors, aot_export_joint_with_descriptors
from torch._functorch.partitioners import default_partition
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor

from .errors import MismatchError
from .module import ParallelModule, run_of
from .placements import part_of, placements
from .precision import dtype_of
from .run import STATES, Run


def joint_graph(stack: ExitStack, module: ParallelModule, *, decompositions: dict[Any, Callable[..., Any]] | None = None) -> Any:
    """The plan's forward and backward program of this device as one graph; its ranks make it each for itself.

    `joint.graph_module` may be changed before `compile_joint` or `aot_compile_joint_with_descriptors` takes it: its inputs carry the
    names of parameters, buffers and inputs in `meta["desc"]`, as those of every joint graph do.

    Args:
        stack: must stay open until the graph is compiled.
        module: from `parallelize`; its weights may be on the meta device.
        decompositions: as of `aot_export_joint_with_descriptors`.

    Returns:
        A `JointWithDescriptors`.

    Raises:
        MismatchError: where values decide what the program runs (E_COMPILE).
    """
    run = run_of(module)
    decides: tuple[str, ...] = getattr(run.plan.program, "DECIDES", ())
    if decides:
        raise MismatchError("E_COMPILE", f"values decide what {', '.join(decides)} run: that is not a single graph", hint="compile=False.")
    stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
    local = _Local(run)
    inputs = tuple(_part(run, entry) for entry in run.primals if entry["role"] not in STATES)
    joint = aot_export_joint_with_descriptors(stack, local, inputs, decompositions=decompositions)
    _drop_detached(joint.graph_module)
    return joint


def compile_joint(
    module: ParallelModule,
    *,
    passes: Callable[[Any], None] | None = None,
    partition_fn: Callable[..., Any] = default_partition,
    fw_compiler: Callable[..., Any] | None = None,
    bw_compiler: Callable[..., Any] | None = None,
) -> None:
    """Compiles the joint graph of a module, which runs it from then on.

    Args:
        module: from `parallelize`.
        passes: changes the joint graph (a `JointWithDescriptors`) in place before it is partitioned.
        partition_fn: what cuts it into forward and backward. The default keeps the cut of the plan; others choose again what is saved
            and what is computed again, so that memory is no longer that of the plan.
        fw_compiler, bw_compiler: take `(graph_module, example_inputs)`; default Inductor.

    Raises:
        MismatchError: as `joint_graph`.
    """
    inductor = fw_compiler is None or bw_compiler is None
    with ExitStack() as stack:
        joint = joint_graph(stack, module, decompositions=_inductor_decompositions() if inductor else None)
        if passes is not None:
            passes(joint)
        # Inductor would write into a saved value after its last use, even where another one is a view of it.
        stack.enter_context(torch._functorch.config.patch(donated_buffer=False))
        compiled = aot_compile_joint_with_descriptors(
            joint,
            partition_fn=partition_fn,
            fw_compiler=fw_compiler or _inductor(False),
            bw_compiler=bw_compiler or _inductor(True),
        )
    run = run_of(module)
    rows = {entry["of"]: k for k, entry in enumerate(run.primals) if entry["role"] in STATES}
    inputs = [k for k, entry in enumerate(run.primals) if entry["role"] not in STATES]
    order = [*(rows[name] for name in (*joint.params_spec, *joint.buffers_spec)), *inputs]

    def call(*primals: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parts = _Parts.apply(run, *primals)
        found = compiled(*(parts[k] for k in order))
        return _Whole.apply(run, *(found if isinstance(found, tuple) else (found,)))

    run.call = call


def _drop_detached(graph_module: Any) -> None:
    """Drops `detach`: in a joint graph it would only be a second name of a saved value."""
    for node in list(graph_module.graph.nodes):
        if node.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            node.replace_all_uses_with(node.args[0])
            graph_module.graph.erase_node(node)
    graph_module.recompile()


def _inductor_decompositions() -> dict[Any, Callable[..., Any]]:
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()


def _inductor(is_backward: bool) -> Callable[..., Any]:
    from torch._inductor.compile_fx import compile_fx_inner

    return partial(compile_fx_inner, is_backward=is_backward)


def _part(run: Run, entry: dict[str, Any]) -> torch.Tensor:
    """A tensor without values that stands for this device's part of one of the primals."""
    dtype = dtype_of(entry["dtype"], "placements.json")
    whole = torch.empty(entry["shape"], dtype=dtype, device="meta")
    shape = part_of(whole, placements(entry), run.plan.mesh_shape, run.here.coordinate).shape
    has_gradient = entry.get("of", entry["name"]) in run.gradients
    return torch.empty(shape, dtype=dtype, device=run.here.device, requires_grad=has_gradient)


class _Local(nn.Module):
    """The program of this device as a module whose parameters and buffers are its parts of the model's, under the model's names."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.__dict__["shardwright"] = run
        for entry in run.primals:
            if entry["role"] not in STATES:
                continue
            path, _, last = entry["of"].rpartition(".")
            owner: nn.Module = self
            for name in path.split(".") if path else []:
                if name not in owner._modules:
                    owner.add_module(name, nn.Module())
                owner = owner._modules[name]  # type: ignore[assignment]
            part = _part(run, entry)
            if entry["role"] == "parameter":
                owner._parameters[last] = nn.Parameter(part, requires_grad=part.requires_grad)
            else:
                owner._buffers[last] = part

    def forward(self, *inputs: torch.Tensor) -> Any:
        run: Run = self.__dict__["shardwright"]
        given = iter(inputs)
        states = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        primals = [states[entry["of"]] if entry["role"] in STATES else next(given) for entry in run.primals]
        returned = _Program.apply(run, *primals)
        outputs = []
        for row, value in zip(run.outputs, returned, strict=True):
            if row["role"] == "output":
                outputs.append(value)
            else:
                states[row["of"]].copy_(value)
        return tuple(outputs)


class _Program(torch.autograd.Function):
    """The two functions of `program.py` on local parts."""

    @staticmethod
    def forward(ctx: Any, run: Run, *parts: torch.Tensor) -> Any:
        returned, ctx.saved = run.forward(run.here, list(parts))
        ctx.run = run
        outputs = [value for row, value in zip(run.outputs, returned, strict=True) if row["role"] == "output"]
        states = [value for row, value in zip(run.outputs, returned, strict=True) if row["role"] != "output"]
        ctx.mark_non_differentiable(*states, *(value for k, value in enumerate(outputs) if k not in run.differentiable))
        return tuple(returned)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        run: Run = ctx.run
        outputs = [gradient for row, gradient in zip(run.outputs, gradients, strict=True) if row["role"] == "output"]
        found = run.backward(run.here, ctx.saved, [outputs[entry.get("index", 0)] for entry in run.tangents])
        if not run.tangents:
            found = [gradient if gradient is None else gradient * outputs[0] for gradient in found]
        has = [entry.get("of", entry["name"]) in run.gradients for entry in run.primals]
        return (None, *(gradient if wanted else None for gradient, wanted in zip(found, has, strict=True)))


class _Parts(torch.autograd.Function):
    """From the model's DTensors to local parts; gradients go back as the plan places them."""

    @staticmethod
    def forward(ctx: Any, run: Run, *primals: torch.Tensor) -> Any:
        ctx.run = run
        parts = tuple(p._local_tensor.view_as(p._local_tensor) if isinstance(p, DTensor) else p.view_as(p) for p in primals)
        ctx.mark_non_differentiable(*(part for part in parts if not part.is_floating_point()))
        return parts

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return (None, *ctx.run.placed_gradients(gradients))


class _Whole(torch.autograd.Function):
    """From local results to what the caller gets, and from its gradients to local ones."""

    @staticmethod
    def forward(ctx: Any, run: Run, *results: torch.Tensor) -> Any:
        ctx.run = run
        wrapped = tuple(run.wrap(value, row) for value, row in zip(results, run.user_outputs, strict=True))
        ctx.mark_non_differentiable(*(value for k, value in enumerate(wrapped) if k not in run.differentiable))
        return wrapped

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        run: Run = ctx.run
        if not run.tangents:
            return (None, *gradients)
        local: list[torch.Tensor | None] = [None] * len(gradients)
        for entry in run.tangents:
            k = entry.get("index", 0)
            local[k] = run.tangent(entry, gradients[k])
        return (None, *local)
