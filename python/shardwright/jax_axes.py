"""Logical axis rules, as Flax and MaxText have them: placements of arrays by the names of their dims, and rules made of placements.

Source: `flax.linen.spmd.logical_to_mesh_axes`; `logical_axis_rules` in MaxText's `base.yml`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jax import tree_util
from jax.sharding import Mesh, PartitionSpec

from .errors import MismatchError

#: Mesh dims of a logical name, major first; none where it is whole.
Axes = tuple[str, ...]
#: Rules as they are given: pairs of a name and a mesh dim, several, or none.
Rules = Iterable[Sequence[Any]]


class AxisRules(NamedTuple):
    """Rules for `flax.linen.logical_axis_rules`, and the arrays that the plan places otherwise: no rule can tell them apart."""

    rules: list[tuple[str, Axes | None]]
    #: Specs by the path of an array: that of the plan, and that of the rules.
    others: dict[str, tuple[PartitionSpec, PartitionSpec]]


def read_rules(given: Rules | str | os.PathLike[str]) -> list[tuple[str, Any]]:
    """Rules as pairs: those given, or `logical_axis_rules` of a YAML file of MaxText, else of the `base_config` that it names beside it.

    Raises:
        MismatchError: where a file cannot be read, or has no rules; where a rule is not a pair.
    """
    place = os.fspath(given) if isinstance(given, (str, os.PathLike)) else "rules"
    rules = _of_file(Path(place), ()) if isinstance(given, (str, os.PathLike)) else list(given)
    for rule in rules:
        if isinstance(rule, str) or len(rule) != 2 or not isinstance(rule[0], str):
            hint = 'write ("mlp", "tp"), ("batch", ("dp", "fsdp")) or ("embed", None).'
            raise MismatchError("E_AXES", f"{rule!r} is not a pair of a name and mesh dims", place=place, hint=hint)
    return [(name, entry) for name, entry in rules]


def _of_file(file: Path, above: tuple[Path, ...]) -> list[Any]:
    """The rules of a file, which the configurations `above` name as their base."""
    try:
        import yaml
    except ImportError:
        raise MismatchError("E_AXES", "PyYAML is not installed", place=str(file), hint="pip install pyyaml.") from None
    try:
        config = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise MismatchError("E_AXES", f"it cannot be read: {error}", place=str(file)) from None
    found = config if isinstance(config, dict) else {}
    # MaxText takes what a configuration does not say from its base.
    if "logical_axis_rules" not in found and isinstance(found.get("base_config"), str):
        if file.resolve() in above:
            raise MismatchError("E_AXES", "it is its own base_config", place=str(file), hint="name another base_config.")
        return _of_file(file.parent / found["base_config"], (*above, file.resolve()))
    rules = found.get("logical_axis_rules")
    if not isinstance(rules, list):
        raise MismatchError("E_AXES", "it has no list logical_axis_rules", place=str(file), hint="give a configuration of MaxText.")
    return rules


def axes_of(entry: Any) -> Axes:
    """The mesh dims of an entry of a spec or a rule."""
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def spec_of(axes: Sequence[Axes]) -> PartitionSpec:
    """A spec without the dims at its end that are whole."""
    entries: list[Any] = [None if not own else own[0] if len(own) == 1 else own for own in axes]
    while entries and entries[-1] is None:
        entries.pop()
    return PartitionSpec(*entries)


def names_of(logical: Any, args: Sequence[Any]) -> list[PartitionSpec]:
    """The names of the dims of each leaf of the arguments; those of arguments behind the last tree are empty.

    Raises:
        MismatchError: where a tree of names has another number of leaves than its argument.
    """
    trees = logical if isinstance(logical, (tuple, list)) and not isinstance(logical, PartitionSpec) else (logical,)
    found: list[PartitionSpec] = []
    for n, arg in enumerate(args):
        count = len(tree_util.tree_leaves(arg))
        tree = trees[n] if n < len(trees) else None
        own = [PartitionSpec()] * count if tree is None else tree_util.tree_leaves(tree, is_leaf=lambda x: isinstance(x, PartitionSpec))
        if len(own) != count or not all(isinstance(names, PartitionSpec) for names in own):
            raise MismatchError(
                "E_AXES",
                f"argument {n} has {count} leaves, its tree of logical names {len(own)}",
                hint="give logical=flax.linen.get_partition_spec(state): a PartitionSpec of names for each leaf.",
            )
        found += own
    return found


def spec_by_rules(names: PartitionSpec, rules: Rules, mesh: Mesh) -> PartitionSpec | None:
    """The placement of an array by rules: the first rule of a name whose mesh dims no other dim of the array has. Mesh dims that are not
    in the mesh count as absent. None where a name has no rule: the rules do not say."""
    taken: dict[int, Axes] = {}
    own = [axes_of(entry) for entry in names]
    for name, entry in rules:
        at = next((n for n, these in enumerate(own) if these == (name,) and n not in taken), None)
        if at is None:
            continue
        axes = tuple(axis for axis in axes_of(entry) if axis in mesh.axis_names)
        if not any(axis in other for other in taken.values() for axis in axes):
            taken[at] = axes
    if any(these and n not in taken for n, these in enumerate(own)):
        return None
    return spec_of([taken.get(n, ()) for n in range(len(own))])


def rules_of(arrays: Mapping[str, tuple[PartitionSpec, PartitionSpec, int]], mesh: Mesh) -> AxisRules:
    """Rules that say most of a plan: a name has the mesh dims that the most bytes with that name have.

    Args:
        arrays: by path: the names of the dims, the placement, and the bytes.
        mesh: the mesh of the plan.
    """
    votes: dict[str, dict[Axes, int]] = defaultdict(lambda: defaultdict(int))
    for names, spec, size in arrays.values():
        placed = [*map(axes_of, spec), *[()] * len(names)]
        for entry, axes in zip(names, placed, strict=False):
            for name in axes_of(entry):
                votes[name][axes] += size
    chosen = {name: max(of.items(), key=lambda vote: (vote[1], vote[0]))[0] for name, of in votes.items()}
    rules: list[tuple[str, Axes | None]] = [(name, axes or None) for name, axes in sorted(chosen.items())]
    others = {}
    for path, (names, spec, _) in arrays.items():
        by_rules = spec_by_rules(names, rules, mesh)
        if names and by_rules is not None and by_rules != spec_of([axes_of(entry) for entry in spec]):
            others[path] = (spec, by_rules)
    return AxisRules(rules, others)
