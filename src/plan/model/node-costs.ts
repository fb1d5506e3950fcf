/**
 * Seconds of strategies. In: the strategies of a node, the cluster. Out: compute and collective seconds of each
 * strategy.
 */
import { presetComputeCost } from '../../cost/presets/presets.ts';
import { atSizes } from '../../ops/record/context.ts';
import type { TensorMeta } from '../../ops/record/record.ts';
import type { NodeStrategies } from '../../strategy/nodes.ts';
import type { BuildInput } from './input.ts';
import type { NodeSeconds } from './model.ts';

/** Seconds of each strategy of a node: roofline at local sizes, and the collectives inside the rule itself. */
export function strategySeconds(entry: NodeStrategies, input: BuildInput): NodeSeconds {
  const { set, call, record } = entry;
  const compute = new Float64Array(set.count);
  const internal = new Float64Array(set.count);
  if (call === undefined || record === undefined) return { compute, internal };
  const width = set.inputCount + set.outputCount;
  const dims = input.space.meshRank;
  const remembered = new Map<string, number>();
  for (let s = 0; s < set.count; s++) {
    const at = (t: number, meta: TensorMeta): TensorMeta => {
      const id = set.specs[s * width + t];
      return id < 0 ? meta : { dtype: meta.dtype, shape: input.space.localShape(id, meta.shape) };
    };
    const inputs = call.inputs.map((meta, i) => at(i, meta));
    const outputs = call.outputs.map((meta, k) => (meta === null ? null : at(set.inputCount + k, meta)));
    const local = atSizes(call, inputs, outputs);
    // Many strategies see the same local sizes; pending reductions cost nothing to compute with.
    const key = `${inputs.map((m) => m.shape.join('x')).join()}>${outputs.map((m) => m?.shape.join('x')).join()}`;
    let cost = remembered.get(key);
    if (cost === undefined) {
      cost = presetComputeCost(input.collectives.preset, record, local, input.cluster).seconds;
      remembered.set(key, cost);
    }
    for (let d = 0; d < dims; d++) {
      for (const use of set.rules[set.choice[s * dims + d]]?.collectives ?? [])
        internal[s] += input.collectives.seconds(use.kind, use.bytes(local), [d]);
    }
    compute[s] = cost;
  }
  return { compute, internal };
}
