/**
 * Defines the collectives of a per-device program. They are PyTorch's functional collectives, with
 * its meaning of every argument:
 *
 * - `_c10d_functional.all_reduce.default(x, op, group)`: x reduced over the group;
 * - `_c10d_functional.all_gather_into_tensor.default(x, n, group)`: the x of all n members, joined
 *   along dim 0;
 * - `_c10d_functional.reduce_scatter_tensor.default(x, op, n, group)`: x reduced, then this
 *   member's n-th part of dim 0;
 * - `_c10d_functional.all_to_all_single.default(x, out, in, group)`: part i of dim 0 goes to member
 *   i (sizes `in`); the received parts (sizes `out`) are joined in the order of members;
 * - `_c10d_functional.permute_tensor.default(x, targets, group)`: member i sends x to member
 *   targets[i] (PyTorch's module of functional collectives has this name).
 *
 * A group is written as the mesh dims that it runs over, in the order of its members: `tp`, or
 * `dp,tp` where the last dim is the fastest. Every tensor that a collective takes is of equal shape
 * on all members: nodes of the program pad uneven pieces before and cut them to size after. A
 * collective is done when its value is there; a back end that overlaps them adds its own waits.
 */
import { internalError } from '../../errors.ts';
import type { Arg } from '../../graph/types.ts';
import { isList } from '../../graph/value.ts';
import type { CollectiveKind } from '../../mesh/collective-kinds.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { REDUCE_OPS } from '../../mesh/placements/partials/partial.ts';
import type { ReduceOp } from '../../mesh/placements/placement.ts';

const PREFIX = '_c10d_functional.';
const TARGETS: Readonly<Record<CollectiveKind, string>> = {
  all_reduce: `${PREFIX}all_reduce.default`,
  all_gather: `${PREFIX}all_gather_into_tensor.default`,
  reduce_scatter: `${PREFIX}reduce_scatter_tensor.default`,
  all_to_all: `${PREFIX}all_to_all_single.default`,
  collective_permute: `${PREFIX}permute_tensor.default`,
};
const KINDS = new Map(
  Object.entries(TARGETS).map(([kind, target]) => [target, kind as CollectiveKind]),
);

export function collectiveTarget(kind: CollectiveKind): string {
  return TARGETS[kind];
}

/** Kind of a collective call; undefined for other operators. */
export function collectiveKind(target: string): CollectiveKind | undefined {
  return KINDS.get(target);
}

/** The group argument for some mesh dims, in the order of the group's members. */
export function groupText(mesh: DeviceMesh, meshDims: readonly number[]): string {
  return meshDims.map((m) => mesh.names[m]).join(',');
}

/** Mesh dims of a group argument. */
export function groupDims(mesh: DeviceMesh, group: Arg | undefined): number[] {
  if (typeof group !== 'string') throw internalError('a collective has no group');
  return group.split(',').map((name) => mesh.indexOf(name));
}

/** Ranks of the group that a rank belongs to, in the order of members. */
export function groupOf(mesh: DeviceMesh, meshDims: readonly number[], rank: number): number[] {
  let base = rank;
  for (const m of meshDims)
    base -= (Math.floor(rank / mesh.strides[m]) % mesh.sizes[m]) * mesh.strides[m];
  let out = [base];
  for (const m of meshDims)
    out = out.flatMap((r) =>
      Array.from({ length: mesh.sizes[m] }, (_, c) => r + c * mesh.strides[m]),
    );
  return out;
}

export interface CollectiveCall {
  readonly kind: CollectiveKind;
  readonly meshDims: readonly number[];
  /** The operation of a reduction. */
  readonly op?: ReduceOp;
  /** For a permutation, the member to which each member sends. */
  readonly targets?: readonly number[];
}

/** Reads a collective call of a program. */
export function readCollective(
  mesh: DeviceMesh,
  target: string,
  args: readonly Arg[],
): CollectiveCall {
  const kind = collectiveKind(target);
  if (kind === undefined) throw internalError(`${target} is not a collective`);
  const meshDims = groupDims(mesh, args.at(-1));
  if (kind === 'all_reduce' || kind === 'reduce_scatter') {
    const op = REDUCE_OPS.find((name) => name === args[1]);
    if (op === undefined) throw internalError(`${target} reduces by nothing known`);
    return { kind, meshDims, op };
  }
  if (kind !== 'collective_permute') return { kind, meshDims };
  const targets = args[1];
  if (targets === undefined || !isList(targets))
    throw internalError(`${target} has no list of targets`);
  return { kind, meshDims, targets: targets.map(Number) };
}
