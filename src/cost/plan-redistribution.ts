/** The redistribution planner for one tensor: the cheapest collectives between two placements. */

import { checkKinds } from '../arguments.ts';
import { defined } from '../defined.ts';
import { ShardwrightError } from '../errors.ts';
import { type DType, DTYPE_BYTES } from '../graph/types.ts';
import { itemAt } from '../item-at.ts';
import type { CollectiveKind } from '../mesh/collective-kinds.ts';
import type { DeviceMesh } from '../mesh/devices/mesh.ts';
import type { Sharding } from '../mesh/sharding/sharding.ts';
import { ShardingSpace } from '../mesh/sharding/space.ts';
import type { Cluster } from './hardware/cluster.ts';
import { collectiveModel, defaultCostPreset } from './presets/presets.ts';
import { Redistributor } from './redistribution/redistribute.ts';

/** A tensor, where it lies, and where it is to lie. */
export interface RedistributionQuestion {
  /** Sizes of the whole tensor. */
  readonly shape: readonly number[];
  readonly dtype: DType;
  readonly mesh: DeviceMesh;
  readonly cluster: Cluster;
  readonly from: Sharding;
  readonly to: Sharding;
  /** A cost preset; by default the one that a plan on this cluster takes. */
  readonly cost?: string;
}

/** One step of a redistribution. */
export interface PlannedStep {
  /** A collective, or `slice`, `to_partial` or `relabel`, which are local. */
  readonly kind: CollectiveKind | 'slice' | 'to_partial' | 'relabel';
  /** Names of the mesh dims of its group. */
  readonly meshDims: readonly string[];
  readonly bytes: number;
  readonly seconds: number;
}

/** The cheapest way between two placements of a tensor. */
export interface PlannedRedistribution {
  /** `S(0)S(1)->RS(1)->RR`. */
  readonly text: string;
  readonly steps: readonly PlannedStep[];
  readonly seconds: number;
  /** Bytes of the largest part of the tensor that a device holds on the way. */
  readonly peakBytes: number;
}

/**
 * Plans the cheapest chain of collectives that brings a tensor from one placement to another.
 *
 * @throws E_PLACEMENT where DTensor has no such redistribution, with the way round
 */
export function planRedistribution(question: RedistributionQuestion): PlannedRedistribution {
  checkKinds('planRedistribution', {
    question: [question, ['shape', 'dtype', 'mesh', 'cluster', 'from', 'to']],
  });
  const { shape, dtype, mesh, cluster, from, to } = question;
  const space = new ShardingSpace(mesh);
  const model = collectiveModel(question.cost ?? defaultCostPreset(cluster), cluster, mesh);
  const planner = new Redistributor(space, model);
  const ends = [space.intern(from), space.intern(to)] as const;
  const plan = planner.plan({ shape, itemBytes: DTYPE_BYTES[dtype] }, ...ends);
  if (plan === undefined) {
    const refusal = planner.refusal(...ends) ?? `${from.text} -> ${to.text} is refused`;
    const [reason = refusal, route] = refusal.split('; ');
    throw new ShardwrightError('E_PLACEMENT', reason, defined({ hint: route }));
  }
  const { text, steps, seconds, peakBytes } = plan;
  return {
    text,
    seconds,
    peakBytes,
    steps: steps.map(({ kind, meshDims, bytes, seconds: each }) => ({
      kind,
      meshDims: meshDims.map((m) => itemAt(mesh.names, m)),
      bytes,
      seconds: each,
    })),
  };
}
