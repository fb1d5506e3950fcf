/**
 * Collectives inside `shard_map`: JAX names mesh axes, StableHLO lists the groups of devices that
 * communicate.
 */

import { defined } from '../../../defined.ts';
import type { Arg } from '../../../graph/types.ts';
import { itemAt } from '../../../item-at.ts';
import { meshSize } from '../../../mesh/devices/mesh.ts';
import { type GraphOfJaxpr, numbers } from '../builder.ts';
import { type Lower, opaque, operand, shapeOf } from '../equation.ts';
import type { Literal } from '../text/literal.ts';
import type { Equation } from '../text/syntax.ts';

/** Names of mesh axes in a parameter: `('model',)`, `'model'` or `model`. */
function axisNames(value: Literal | undefined): string[] {
  if (value === undefined || value === null || typeof value !== 'object') return [];
  if (value.kind === 'string') return [value.value];
  if (value.kind === 'name') return [value.name];
  return value.kind === 'list' ? value.items.flatMap(axisNames) : [];
}

/** Pairs of members, source and target: `((0, 1), (1, 0))`. */
function pairsOf(value: Literal | undefined): number[][] {
  const items = (of: Literal | undefined): readonly Literal[] =>
    of !== undefined && of !== null && typeof of === 'object' && of.kind === 'list' ? of.items : [];
  return items(value).map((pair) => items(pair).map(Number));
}

/** Devices that communicate: those that differ only along the axes. Undefined without a mesh. */
function groupsOf(b: GraphOfJaxpr, names: readonly string[]): number[][] | undefined {
  const axes = b.context.mesh?.axes;
  if (axes === undefined || names.some((name) => !axes.some((axis) => axis.name === name)))
    return undefined;
  const total = meshSize(axes);
  if (total > 1 << 16) return undefined;
  const groups = new Map<string, number[]>();
  for (let device = 0; device < total; device++) {
    let rest = device;
    const fixed: number[] = [];
    for (const { name, size } of axes.toReversed()) {
      if (!names.includes(name)) fixed.push(rest % size);
      rest = Math.floor(rest / size);
    }
    const key = fixed.join();
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [device]);
    else group.push(device);
  }
  return [...groups.values()];
}

function grouped(b: GraphOfJaxpr, e: Equation, keys: readonly string[]): Record<string, Arg> {
  const names = keys.flatMap((key) => axisNames(b.literal(e, key)));
  const groups = groupsOf(b, names);
  return { axes: names, ...defined({ replica_groups: groups }) };
}

const allReduce =
  (reducer: string): Lower =>
  (b, e) => {
    const kwargs = { reducer, ...grouped(b, e, ['axes']) };
    b.emit(e, 'stablehlo.all_reduce', [e.operands.map((atom) => b.value(atom))], kwargs);
  };

/** A collective that changes one dim, tiled (the dim grows or shrinks in place). */
const resizing =
  (target: string, dimKey: string, keyword: string): Lower =>
  (b, e) => {
    const groups = grouped(b, e, ['axis_name']);
    const dim = b.int(e, dimKey, 0);
    const [before, after] = [numbers(b.tensor(operand(b, e))), shapeOf(e)];
    const [from = NaN, to = NaN] = [before[dim], after[dim]];
    const ratio = to > from ? to / from : from / to;
    if (!b.bool(e, 'tiled') || before.length !== after.length || !Number.isInteger(ratio))
      return opaque(b, e);
    const kwargs = {
      [keyword]: dim,
      group_size: b.int(e, 'axis_size', ratio),
      ...(target.endsWith('reduce_scatter') ? { reducer: 'add' } : {}),
      ...groups,
    };
    b.emit(e, target, [b.value(operand(b, e))], kwargs);
  };

/** The collectives by primitive. */
export const COLLECTIVES: readonly (readonly [string, Lower])[] = [
  ...['psum', 'psum2', 'psum_invariant'].map((name): [string, Lower] => [name, allReduce('add')]),
  ['pmax', allReduce('maximum')],
  ['pmin', allReduce('minimum')],
  ['all_gather', resizing('stablehlo.all_gather', 'all_gather_dimension', 'all_gather_dim')],
  [
    'all_gather_invariant',
    resizing('stablehlo.all_gather', 'all_gather_dimension', 'all_gather_dim'),
  ],
  [
    'reduce_scatter',
    resizing('stablehlo.reduce_scatter', 'scatter_dimension', 'scatter_dimension'),
  ],
  ['psum_scatter', resizing('stablehlo.reduce_scatter', 'scatter_dimension', 'scatter_dimension')],
  [
    'ppermute',
    (b, e) => {
      const axes = axisNames(b.literal(e, 'axis_name'));
      const members = pairsOf(b.literal(e, 'perm'));
      const pairs = groupsOf(b, axes)?.flatMap((group) =>
        members.map((pair) => pair.map((member) => itemAt(group, member))),
      );
      b.emit(e, 'stablehlo.collective_permute', [b.value(operand(b, e))], {
        axes,
        ...defined({ source_target_pairs: pairs }),
      });
    },
  ],
];
