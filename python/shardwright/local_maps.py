"""Records `local_map` of PyTorch in a captured graph: the pieces of its function, what they join to, and the axes it communicates over.

The planner makes a typed region of each call, checks the reductions in it, and plans the model around it. Source: `to_local` and
`from_local` of DTensor, and `torch.distributed.tensor.experimental.local_map` of PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import _func_map
from torch.utils import _pytree as pytree

from .errors import CaptureError

#: Meshes of the calls that were recorded since the capture began.
_MESHES: list[DeviceMesh] = []


def _sizes(mesh: str) -> list[int]:
    return [int(part.split("=")[1]) for part in mesh.split(",")]


def _words(placement: str) -> list[str]:
    """`S(0)R` as its words."""
    words: list[str] = []
    for character in placement:
        if character in "SRP":
            words.append(character)
        else:
            words[-1] += character
    return words


def _resized(x: torch.Tensor, mesh: str, placement: str, *, joins: bool) -> torch.Tensor:
    shape = list(x.shape)
    for size, word in zip(_sizes(mesh), _words(placement), strict=True):
        if word[0] == "S":
            dim = int(word[2:-1])
            shape[dim] = shape[dim] * size if joins else shape[dim] // size
    return x.new_empty(shape)


@torch.library.custom_op("shardwright::to_local", mutates_args=())
def _to_local(x: torch.Tensor, mesh: str, placement: str, gradient: str) -> torch.Tensor:
    raise CaptureError("E_CAPTURE", "to_local stands in captured graphs alone")


@torch.library.custom_op("shardwright::to_global", mutates_args=())
def _to_global(x: torch.Tensor, mesh: str, placement: str) -> torch.Tensor:
    raise CaptureError("E_CAPTURE", "to_global stands in captured graphs alone")


@_to_local.register_fake
def _(x: torch.Tensor, mesh: str, placement: str, gradient: str) -> torch.Tensor:
    return _resized(x, mesh, placement, joins=False)


@_to_global.register_fake
def _(x: torch.Tensor, mesh: str, placement: str) -> torch.Tensor:
    return _resized(x, mesh, placement, joins=True)


def _keep_local(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, ctx.mesh, _, ctx.gradient = inputs


def _keep_global(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, ctx.mesh, ctx.placement = inputs


def _local_backward(ctx: Any, gradient: torch.Tensor) -> Any:
    return _to_global(gradient, ctx.mesh, ctx.gradient), None, None, None


def _global_backward(ctx: Any, gradient: torch.Tensor) -> Any:
    # The gradient of an addend is the whole gradient.
    words = ["R" if word == "P" else word for word in _words(ctx.placement)]
    return _to_local(gradient, ctx.mesh, "".join(words), ctx.placement), None, None


_to_local.register_autograd(_local_backward, setup_context=_keep_local)
_to_global.register_autograd(_global_backward, setup_context=_keep_global)


def _recorded(
    func: Callable[..., Any],
    out_placements: Any,
    in_placements: Any,
    in_grad_placements: Any,
    device_mesh: DeviceMesh | None,
    redistribute_inputs: bool,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Takes the place of PyTorch's own function, whose signature it has; it runs in that module, so that it finds everything by import."""
    from shardwright.local_maps import record_call

    return record_call(func, out_placements, in_placements, in_grad_placements, device_mesh, args, kwargs)


def record_call(
    func: Callable[..., Any],
    out_placements: Any,
    in_placements: Any,
    in_grad_placements: Any,
    mesh: DeviceMesh | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """One call of `local_map`, on pieces and with marks around it.

    Raises:
        CaptureError: where it does not say what its pieces are, or asks which rank it is.
    """
    place = f"local_map of {getattr(func, '__name__', type(func).__name__)}"
    if mesh is None or in_placements is None:
        missing = "device_mesh" if mesh is None else "in_placements"
        raise CaptureError(
            "E_LOCAL_MAP", f"it has no {missing}; a plan is made before there are DTensors", place=place, hint=f"{missing}=."
        )
    _MESHES.append(mesh)
    dims = _text_of(mesh, place)
    flat, spec = pytree.tree_flatten(args)
    if len(in_placements) != len(flat):
        raise CaptureError("E_LOCAL_MAP", f"it has {len(in_placements)} in_placements for {len(flat)} arguments", place=place)
    gradients = in_grad_placements if in_grad_placements is not None else in_placements
    pieces = [
        _cut(x, dims, stated, gradient, f"argument {number} of {place}")
        for number, (x, stated, gradient) in enumerate(zip(flat, in_placements, gradients, strict=True))
    ]
    if any(isinstance(x, torch.Tensor) for x in pytree.tree_leaves(kwargs)):
        raise CaptureError("E_LOCAL_MAP", "tensors given by name have no placements", place=place, hint="hand them over by position.")
    with _without_ranks(place):
        out = func(*pytree.tree_unflatten(pieces, spec), **kwargs)
    results, tree = pytree.tree_flatten(out)
    placements = out_placements if isinstance(out_placements, tuple) else (out_placements,)
    if len(placements) != len(results):
        raise CaptureError("E_LOCAL_MAP", f"it has {len(placements)} out_placements for {len(results)} results", place=place)
    pairs = zip(results, placements, strict=True)
    joined = [_to_global(x, dims, _placement(p, dims, place)) if isinstance(x, torch.Tensor) else x for x, p in pairs]
    return pytree.tree_unflatten(joined, tree)


def _cut(x: Any, mesh: str, stated: Any, gradient: Any, place: str) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    # PyTorch hands over a plain tensor without placements as it is, the same on every rank.
    whole = [Replicate()] * len(_sizes(mesh))
    placement = _placement(whole if stated is None else stated, mesh, place)
    for dim, rows in enumerate(x.shape):
        parts = prod(size for size, word in zip(_sizes(mesh), _words(placement), strict=True) if word == f"S({dim})")
        if rows % parts:
            raise CaptureError("E_LOCAL_MAP", f"dim {dim} of {rows} rows does not divide by {parts} devices", place=place, hint="pad it.")
    return _to_local(x, mesh, placement, _placement(whole if gradient is None else gradient, mesh, place))


def _text_of(mesh: DeviceMesh, place: str) -> str:
    if mesh.mesh_dim_names is None:
        raise CaptureError("E_LOCAL_MAP", "its mesh has no names", place=place, hint="init_device_mesh(..., mesh_dim_names=('dp', 'tp')).")
    return ",".join(f"{name}={size}" for name, size in zip(mesh.mesh_dim_names, mesh.shape, strict=True))


def _placement(stated: Sequence[Any], mesh: str, place: str) -> str:
    words: list[str] = []
    for one in stated:
        if type(one) is Shard:
            words.append(f"S({one.dim})")
        elif isinstance(one, Partial) and one.reduce_op == "sum":
            words.append("P")
        elif isinstance(one, Replicate):
            words.append("R")
        else:
            raise CaptureError("E_LOCAL_MAP", f"{one} is not planned", place=place, hint="Shard(dim), Replicate() and Partial('sum').")
    if len(words) != len(_sizes(mesh)):
        raise CaptureError("E_LOCAL_MAP", f"{len(words)} placements for the mesh {mesh}", place=place, hint="one for each dim of the mesh.")
    return "".join(words)


@contextmanager
def _without_ranks(place: str) -> Iterator[None]:
    """One text is captured for all ranks: a number of this one must not get into it."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise CaptureError(
            "E_LOCAL_MAP",
            "it asks for the number of its rank, and one program is captured for all ranks",
            place=place,
            hint="hand over a tensor that is cut, such as torch.arange(n) with Shard(0): each rank finds its number in it.",
        )

    with ExitStack() as stack:
        for holder, name in ((dist, "get_rank"), (DeviceMesh, "get_local_rank"), (DeviceMesh, "get_coordinate")):
            stack.enter_context(patch.object(holder, name, refuse))
        yield


@contextmanager
def recording_local_maps() -> Iterator[None]:
    """Calls of `local_map` are written into the graph inside, also of functions that were wrapped before.

    Wrapped functions hold PyTorch's own function, so that its code is what must be another.
    """
    wrapped: Any = _func_map._local_map_wrapped
    before = wrapped.__code__
    _MESHES.clear()
    wrapped.__code__ = _recorded.__code__
    try:
        yield
    finally:
        wrapped.__code__ = before


def name_groups(graph: Any) -> None:
    """Groups of collectives get the names of the mesh axes that they go over.

    Raises:
        CaptureError: for a group that is none of a mesh of `local_map`.
    """
    axes = _axes_by_group()
    for node in graph.graph.nodes:
        if getattr(node.target, "namespace", "") not in ("_c10d_functional", "c10d_functional") or not isinstance(node.args[-1], str):
            continue
        named = axes.get(node.args[-1])
        if named is None:
            raise CaptureError(
                "E_LOCAL_MAP",
                f"{node.target} goes over a group that is no axis of a mesh of local_map",
                place=node.name,
                hint="communicate inside of local_map, over its mesh: fc.all_reduce(x, 'sum', (mesh, 0)).",
            )
        node.args = (*node.args[:-1], named)
    graph.recompile()


def _axes_by_group() -> dict[str, str]:
    named: dict[str, str] = {}
    for mesh in _MESHES:
        names = mesh.mesh_dim_names or ()
        if mesh.size() == dist.get_world_size() and dist.group.WORLD is not None:
            named[dist.group.WORLD.group_name] = ",".join(names)
        for name in names:
            named[mesh.get_group(name).group_name] = name
        root = mesh._get_root_mesh()
        for flat in getattr(root, "_flatten_mapping", {}).values():
            over = _axes_of_flat(mesh, flat)
            if over is not None:
                named[flat.get_group().group_name] = over
    return named


def _axes_of_flat(mesh: DeviceMesh, flat: DeviceMesh) -> str | None:
    """The axes that a flattened mesh joins: those along which its ranks lie in the mesh."""
    names = mesh.mesh_dim_names or ()
    ranks = flat.mesh.flatten().tolist()
    places = [(mesh.mesh == rank).nonzero().flatten().tolist() for rank in ranks]
    if not all(places):
        return None
    over = [d for d in range(len(names)) if len({place[d] for place in places}) > 1]
    return ",".join(names[d] for d in over) if prod(mesh.shape[d] for d in over) == len(ranks) else None
