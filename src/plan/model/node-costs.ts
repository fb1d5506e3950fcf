/** Prices the strategies of a node on a cluster: compute and collective seconds of each. */
import { presetComputeCost } from '../../cost/presets/presets.ts';
import { internalError } from '../../errors.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import type { StrategySet } from '../../ops/expansion/expand.ts';
import { atSizes } from '../../ops/record/context.ts';
import type { TensorMeta, TypedContext } from '../../ops/record/record.ts';
import {
  bodyTraffic,
  type CollectiveSite,
  type InternalCollective,
  type Rule,
} from '../../ops/record/rule.ts';
import { asRun } from '../../ops/record/taken-rows.ts';
import type { NodeStrategies } from '../../strategy/nodes.ts';
import type { BuildInput } from './input.ts';
import type { NodeSeconds } from './model.ts';

/** The call of a node as the device with the largest shard of a strategy runs it. */
export function localCall(entry: NodeStrategies, s: number, space: ShardingSpace): TypedContext {
  const { set, call } = entry;
  if (call === undefined) throw internalError('a node without a call has no local sizes');
  const width = set.inputCount + set.outputCount;
  const at = (t: number, meta: TensorMeta): TensorMeta => {
    const id = set.specs[s * width + t];
    return id < 0 ? meta : { dtype: meta.dtype, shape: space.localShape(id, meta.shape) };
  };
  const inputs = call.inputs.map((meta, i) => at(i, meta));
  const outputs = call.outputs.map((meta, k) =>
    meta === null ? null : at(set.inputCount + k, meta),
  );
  return asRun(rulesOf(set, s, space.meshRank), call, atSizes(call, inputs, outputs), (i, dim) =>
    space.pieces(set.specs[s * width + i], dim),
  );
}

/** The rule that a strategy takes on each mesh dim. */
function rulesOf({ rules, choice }: StrategySet, s: number, dims: number): Rule[] {
  return Array.from({ length: dims }, (_, d) => rules[choice[s * dims + d]]);
}

/** A collective inside an operator under a strategy. */
interface InsideCollective {
  readonly kind: InternalCollective['kind'];
  readonly meshDim: number;
  readonly bytes: number;
  readonly site?: CollectiveSite | undefined;
}

/**
 * The collectives inside the rules that a strategy takes, in the order of the body that runs them:
 * each over one mesh dim after the other. Those of regions are listed mesh dim by mesh dim.
 */
export function collectivesInside(
  entry: NodeStrategies,
  s: number,
  space: ShardingSpace,
): InsideCollective[] {
  const { set } = entry;
  const dims = space.meshRank;
  const found = Array.from({ length: dims }, (_, d) => d).flatMap((meshDim) => {
    const uses = set.rules[set.choice[s * dims + meshDim]]?.collectives ?? [];
    if (uses.length === 0) return [];
    const local = localCall(entry, s, space);
    return uses.map(({ kind, bytes, site }, k) => ({
      step: site === undefined ? k : 0,
      inside: { kind, meshDim, bytes: bytes(local, space.mesh.sizes[meshDim]), site },
    }));
  });
  return found.sort((a, b) => a.step - b.step).map(({ inside }) => inside);
}

/**
 * Seconds of each strategy of a node: roofline at local sizes, and the collectives inside the rule
 * itself.
 */
export function strategySeconds(entry: NodeStrategies, input: BuildInput): NodeSeconds {
  const { set, call, record } = entry;
  const compute = new Float64Array(set.count);
  const internal = new Float64Array(set.count);
  if (call === undefined || record === undefined) return { compute, internal };
  const dims = input.space.meshRank;
  const remembered = new Map<string, number>();
  for (let s = 0; s < set.count; s++) {
    const local = localCall(entry, s, input.space);
    const { inputs, outputs } = local;
    const taken = rulesOf(set, s, dims);
    const body = input.collectives.bodies === 'joined' ? undefined : bodyTraffic(taken, local);
    // Many strategies see the same local sizes; pending reductions cost nothing to compute with.
    const read = inputs.map((m) => m.shape.join('x')).join();
    const written = outputs.map((m) => m?.shape.join('x')).join();
    const key = `${body?.bytes ?? ''}:${read}>${written}`;
    let cost = remembered.get(key);
    if (cost === undefined) {
      cost = presetComputeCost(input.collectives.preset, record, local, input.cluster, {
        body,
        ...entry.facts,
      }).seconds;
      remembered.set(key, cost);
    }
    for (let d = 0; d < dims; d++) {
      const members = input.space.mesh.sizes[d];
      for (const use of taken[d]?.collectives ?? [])
        internal[s] +=
          input.collectives.seconds(use.kind, use.bytes(local, members), [d]) *
          (use.site?.times ?? 1);
    }
    compute[s] = cost;
  }
  return { compute, internal };
}
