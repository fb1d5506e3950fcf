/**
 * Lists the parameters and buffers of one data rank as its plan lays them out: the local sizes,
 * state bytes and passes of each, from which the costs over data ranks are made.
 */

import { defined } from '../../defined.ts';
import { roleName } from '../../graph/nodes.ts';
import { DTYPE_BYTES } from '../../graph/types.ts';
import { shardCode } from '../../mesh/sharding/space.ts';
import { elements } from '../../ops/record/record.ts';
import type { Model } from '../../plan/model/model.ts';
import type { CoreParameter } from '../units.ts';
import type { GraphUnits } from './graph-units.ts';
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
  const { graph, flow, strategies } = model;
  const tied = new Set((graph.ties ?? []).flatMap(([, ...others]) => others));
  const trained = new Set(
    flow.outputs.flatMap(({ output, value }) =>
      output.role === 'grad' && value >= 0 && output.of !== undefined ? [output.of] : [],
    ),
  );
  const uses = usesOf(model, graphUnits, moves);
  return graph.nodes.flatMap((node, n): CoreParameter[] => {
    const { role } = node.meta;
    const name = roleName(node);
    if (node.kind !== 'placeholder' || role === 'input' || role === 'tangent' || tied.has(name))
      return [];
    const state = model.stateBytes.get(n);
    if (state === undefined || strategies.nodes[n] === null) return [];
    const { meta } = flow.values[flow.results[n][0]];
    const used = uses.get(n);
    const unit = graphUnits.unit[n];
    const also = [...(used?.units ?? [])].find((u) => u !== unit);
    return [
      {
        name,
        unit,
        ...defined({ alsoUnit: also }),
        kind: 'dense',
        ...localSizes(model, choice, n),
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

/** Passes and units that use a parameter, itself or seen through views. */
interface ParameterUses {
  forward: boolean;
  backward: boolean;
  readonly units: Set<number>;
}

function usesOf(
  { flow }: Model,
  graphUnits: GraphUnits,
  moves: readonly Move[],
): ReadonlyMap<number, ParameterUses> {
  const uses = new Map<number, ParameterUses>();
  for (const { use, kind } of moves) {
    if (kind !== 'weight' || use.at.kind !== 'input') continue;
    const parameter = graphUnits.root[flow.values[use.value].node];
    const found: ParameterUses = uses.get(parameter) ?? {
      forward: false,
      backward: false,
      units: new Set(),
    };
    if (use.phase === 'forward') {
      found.forward = true;
      found.units.add(graphUnits.unit[use.at.node]);
    } else found.backward = true;
    uses.set(parameter, found);
  }
  return uses;
}

/** Sizes of a parameter on a device of the model dims. */
function localSizes(
  { graph, flow, strategies, space, nodeVariable }: Model,
  choice: Int32Array,
  n: number,
): Pick<CoreParameter, 'localElements' | 'localRows' | 'rows' | 'rowWays'> {
  const { shape } = flow.values[flow.results[n][0]].meta;
  const sharding = strategies.nodes[n]!.set.specs[choice[nodeVariable[n]]];
  const local = space.localShape(sharding, shape);
  const rowWays = space.mesh.sizes.reduce(
    (ways, size, d) => (space.kindAt(sharding, d) === shardCode(0) ? ways * size : ways),
    1,
  );
  // Buffers and scalars are never cut.
  const isCut = shape.length > 0 && graph.nodes[n].meta.role === 'parameter';
  return {
    localElements: elements(local),
    localRows: local[0] ?? 1,
    rows: shape[0] ?? 1,
    rowWays: isCut ? rowWays : Number.MAX_SAFE_INTEGER,
  };
}
