/**
 * Lists the parameters and buffers of one data rank as its plan lays them out: the local sizes,
 * state bytes and passes of each, from which the costs over data ranks are made.
 */

import { DTYPE_BYTES } from '../../graph/types.ts';
import { shardCode } from '../../mesh/sharding/space.ts';
import { elements } from '../../ops/record/record.ts';
import type { Model } from '../../plan/model/model.ts';
import type { CoreParameter } from '../model/types.ts';
import type { GraphUnits } from '../model/units.ts';
import type { Move } from './moves/pending-sums.ts';

/**
 * @param pending of each parameter (node) the model dims over which its gradient is a pending sum
 *   where it is made
 */
export function coreParameters(
  model: Model,
  choice: Int32Array,
  graphUnits: GraphUnits,
  moves: readonly Move[],
  pending: ReadonlyMap<number, readonly string[]>,
): CoreParameter[] {
  const { graph, flow, strategies, space } = model;
  const tied = new Set((graph.ties ?? []).flatMap(([, ...others]) => others));
  const trained = new Set(
    flow.outputs.flatMap(({ output, value }) =>
      output.role === 'grad' && value >= 0 && output.of !== undefined ? [output.of] : [],
    ),
  );
  const uses = new Map<number, { forward: boolean; backward: boolean; units: Set<number> }>();
  for (const { use, kind } of moves) {
    if (kind !== 'weight' || use.at.kind !== 'input') continue;
    const parameter = graphUnits.root[flow.values[use.value].node];
    const found = uses.get(parameter) ?? {
      forward: false,
      backward: false,
      units: new Set<number>(),
    };
    if (use.phase === 'forward') {
      found.forward = true;
      found.units.add(graphUnits.unit[use.at.node]);
    } else found.backward = true;
    uses.set(parameter, found);
  }
  return graph.nodes.flatMap((node, n): CoreParameter[] => {
    const { role } = node.meta;
    const name = node.meta.roleName ?? node.name;
    if (node.kind !== 'placeholder' || role === 'input' || role === 'tangent' || tied.has(name))
      return [];
    const state = model.stateBytes.get(n);
    const entry = strategies.nodes[n];
    if (state === undefined || entry === null) return [];
    const { meta } = flow.values[flow.results[n][0]];
    const sharding = entry.set.specs[choice[model.nodeVariable[n]]];
    const local = space.localShape(sharding, meta.shape);
    const used = uses.get(n);
    const rowWays = space.mesh.sizes.reduce(
      (ways, size, d) => (space.kindAt(sharding, d) === shardCode(0) ? ways * size : ways),
      1,
    );
    const unit = graphUnits.unit[n];
    const also = [...(used?.units ?? [])].find((u) => u !== unit);
    return [
      {
        name,
        unit,
        ...(also === undefined ? {} : { alsoUnit: also }),
        kind: 'dense',
        localElements: elements(local),
        localRows: local[0] ?? 1,
        rows: meta.shape[0] ?? 1,
        // Buffers and scalars are never cut.
        rowWays:
          meta.shape.length === 0 || role !== 'parameter' ? Number.MAX_SAFE_INTEGER : rowWays,
        itemBytes: DTYPE_BYTES[meta.dtype],
        state: { parameter: state.parameter, gradient: state.gradient, optimizer: state.optimizer },
        ...(meta.shape.length > 1 && unit > 0 && unit < graphUnits.count - 1
          ? { isNarrow: true }
          : {}),
        usedForward: used?.forward ?? false,
        usedBackward: used?.backward ?? false,
        trained: trained.has(name),
        pending: pending.get(n) ?? [],
      },
    ];
  });
}
