"""The pytrees at the border of a step: which leaves are arrays, PRNG keys or Python values, and which results replace which arguments."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax import tree_util


@dataclass(frozen=True)
class Kind:
    """The kind of a leaf: an array; a typed PRNG key of the named implementation, whose data is an array; or a Python value."""

    shape: tuple[int, ...] = ()
    dtype: str = ""
    #: A number of Python, whose type gives way to that of what it meets. A step gives an array for it, and takes that then.
    weak: bool = field(default=False, compare=False)
    #: Name of the implementation of a typed key.
    key: str | None = None
    #: A leaf that the step reads as it is, such as the activation function of an Equinox module.
    value: Any = None

    @property
    def is_array(self) -> bool:
        """True if the program gets an array for this leaf."""
        return self.dtype != ""


@dataclass(frozen=True)
class Form:
    """The structure of a pytree and the kinds of its leaves: what a program is made for."""

    tree: Any
    kinds: tuple[Kind, ...]

    def arrays(self, tree: Any) -> list[Any]:
        """The leaves of a tree of this form that are arrays or keys."""
        return self.pick(tree_util.tree_leaves(tree))

    def pick(self, leaves: Sequence[Any]) -> list[Any]:
        """Returns the leaves that are arrays or keys."""
        return [leaf for leaf, kind in zip(leaves, self.kinds, strict=True) if kind.is_array]

    def fill(self, arrays: Sequence[Any], values: bool = True) -> Any:
        """The tree with these arrays; `values`: with the Python values, too, else with None for them."""
        rest = iter(arrays)
        leaves = [next(rest) if kind.is_array else kind.value if values else None for kind in self.kinds]
        return tree_util.tree_unflatten(self.tree, leaves)

    @property
    def kind_tree(self) -> Any:
        """The tree with the kinds of its arrays, and None for Python values."""
        return self.fill(self.array_kinds, values=False)

    @property
    def array_kinds(self) -> list[Kind]:
        """The kinds of the arrays."""
        return [kind for kind in self.kinds if kind.is_array]


def form_of(tree: Any) -> Form:
    """The form of a pytree of arrays, numbers, keys, shapes (`jax.ShapeDtypeStruct`) and Python values."""
    leaves, structure = tree_util.tree_flatten(tree)
    numbers = not _has_equinox(tree)
    return Form(structure, tuple(_kind(leaf, numbers) for leaf in leaves))


def _kind(leaf: Any, numbers: bool) -> Kind:
    dtype = getattr(leaf, "dtype", None)
    shape = getattr(leaf, "shape", None)
    if dtype is not None and shape is not None:
        if jax.numpy.issubdtype(dtype, jax.dtypes.prng_key):
            return Kind(tuple(shape), "uint32", key=str(jax.random.key_impl(leaf)))
        canonical = jax.dtypes.canonicalize_dtype(dtype)
        return Kind(tuple(shape), canonical.name, weak=bool(getattr(leaf, "weak_type", False)))
    if numbers and isinstance(leaf, (bool, int, float, complex)):
        return Kind((), jax.dtypes.canonicalize_dtype(np.result_type(leaf)).name, weak=not isinstance(leaf, bool))
    return Kind(value=leaf)


def _has_equinox(tree: Any) -> bool:
    """Equinox takes numbers in its modules (the rate of a dropout) for constants, as `eqx.filter_jit` does."""
    equinox = sys.modules.get("equinox")
    if equinox is None:
        return False
    module = equinox.Module
    return any(isinstance(node, module) for node in tree_util.tree_leaves(tree, is_leaf=lambda node: isinstance(node, module)))


def data_of(leaf: Any) -> Any:
    """The array of a leaf: the data of a typed key, everything else as it is."""
    is_key = hasattr(leaf, "dtype") and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def leaf_of(array: Any, kind: Kind) -> Any:
    """The leaf of an array of the program."""
    return array if kind.key is None else jax.random.wrap_key_data(array, impl=kind.key)


def shape_of(kind: Kind) -> jax.ShapeDtypeStruct:
    """The shape of the array that the program gets."""
    if kind.key is None:
        return jax.ShapeDtypeStruct(kind.shape, kind.dtype, weak_type=kind.weak)
    shape = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=kind.key))).shape
    return jax.ShapeDtypeStruct((*kind.shape, *shape), kind.dtype)


def replaced(arguments: Sequence[Any], result: Any, donated: Sequence[bool]) -> dict[int, int]:
    """Which array of the arguments is replaced by which array of the result: those of an argument, or of a part of one, that comes back in
    the same structure with the same shapes and types.

    Args:
        arguments: trees whose leaves are kinds.
        result: the same of what the step returns.
        donated: whether the array at a place is donated.
    """
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    offered: dict[Any, list[tuple[int, list[Kind]]]] = defaultdict(list)
    for start, part in _parts(result, 0):
        leaves, structure = tree_util.tree_flatten(part)
        offered[structure].append((start, leaves))

    def match(tree: Any, at: int) -> None:
        leaves, structure = tree_util.tree_flatten(tree)
        if not leaves:
            return
        # A lone array may look like another: only a key, or what is donated, is looked for.
        lone = tree_util.treedef_is_leaf(structure)
        if lone and not (donated[at] or leaves[0].key is not None):
            return
        for start, others in offered[structure]:
            places = range(start, start + len(leaves))
            if others == leaves and taken.isdisjoint(places):
                taken.update(places)
                pairs.update(zip(range(at, at + len(leaves)), places, strict=True))
                return
        if not lone:
            for start, part in _children(tree, at):
                match(part, start)

    at = 0
    for argument in arguments:
        match(argument, at)
        at += len(tree_util.tree_leaves(argument))
    return pairs


def _children(tree: Any, at: int) -> Iterator[tuple[int, Any]]:
    parts = tree_util.tree_leaves(tree, is_leaf=lambda node: node is not tree)
    for part in parts:
        yield at, part
        at += len(tree_util.tree_leaves(part))


def _parts(tree: Any, at: int) -> Iterator[tuple[int, Any]]:
    """A tree and all trees in it, outermost first, each with the place of its first leaf."""
    level = [(at, tree)]
    while level:
        yield from level
        level = [
            child
            for start, node in level
            if not tree_util.treedef_is_leaf(tree_util.tree_structure(node))
            for child in _children(node, start)
        ]
