/** Seconds that no layout of a program is below: what the order of a sweep goes by. */

import type { Cluster } from '../cost/hardware/cluster.ts';
import { collectiveModel } from '../cost/presets/presets.ts';
import { type DType, DTYPE_BYTES } from '../graph/types.ts';
import { DeviceMesh, meshSize } from '../mesh/devices/mesh.ts';
import type { ModelConfig } from '../models/families.ts';
import type { SweepQuestion } from './model/question.ts';
import type { LayerKinds } from './model/representative-layers.ts';
import type { CoreRequest } from './model/types.ts';
import type { PricedPrograms } from './priced-programs.ts';

interface BoundedSweep {
  readonly question: SweepQuestion;
  readonly config: ModelConfig;
  readonly cluster: Cluster;
  readonly kinds: LayerKinds;
  /** Programs on one device among them: every bound is made of them. */
  readonly programs: PricedPrograms;
  /** The dtype of parameters and activations. */
  readonly dtype: DType;
  /** Seconds of the host in each step. */
  readonly hostSeconds: number;
}

/**
 * Seconds below which no step on this program can be, whatever the stages and data ranks: all
 * devices compute all the time, cut perfectly by the model dims, and the collectives that the plan
 * cannot do without are on top, as is the host's time of a step.
 */
export function leastStepSeconds(request: CoreRequest, of: BoundedSweep): number {
  const { question, kinds, programs, hostSeconds } = of;
  const { microbatch, axes } = request;
  const one = programs.core({ microbatch, axes: [] });
  if (one === undefined) return 0;
  const routed = programs.routed({ microbatch, axes: [] });
  const ways = meshSize(axes);
  const ofUnit = (u: number): number => {
    const { forward, backwardInput, backwardWeight } = one.units[u];
    const blocks =
      routed === undefined
        ? []
        : Object.values(routed.units).map(
            (list) => list[u].forwardSeconds + list[u].inputSeconds + list[u].weightSeconds,
          );
    return (
      forward.compute +
      backwardInput.compute +
      backwardWeight.compute +
      (blocks.length === 0 ? 0 : Math.min(...blocks))
    );
  };
  const compute = [0, ...kinds.standsFor.map((l) => l + 1), one.units.length - 1].reduce(
    (t, u) => t + ofUnit(u),
    0,
  );
  const moved = kinds.layers * leastCollectives(request, of);
  const microbatchesOfAll = (question.globalBatch * ways) / (question.devices * microbatch);
  return microbatchesOfAll * (compute / ways + moved) + hostSeconds;
}

/** Seconds of a layer's collectives on the model dims that a recipe has at least. */
function leastCollectives({ axes, microbatch }: CoreRequest, of: BoundedSweep): number {
  const { question, config, cluster, dtype } = of;
  const { shape, routed } = config.architecture;
  const item = DTYPE_BYTES[dtype];
  const ways = meshSize(axes);
  const mesh = new DeviceMesh([
    { name: 'rest', size: question.devices / ways },
    ...axes.map(({ name, size }) => ({ name, size })),
  ]);
  const model = collectiveModel(question.cost, cluster, mesh);
  const sequenceWays = axes.find((a) => a.name !== 'tp')?.size ?? 1;
  const tokens = (microbatch * question.sequence) / sequenceWays;
  return axes.reduce((sum, axis, d) => {
    if (axis.name === 'sp') {
      const queries =
        (tokens * shape.heads * shape.headWidth * item) /
        (axes.find((a) => a.name === 'tp')?.size ?? 1);
      return sum + 4 * model.seconds('all_to_all', queries, [d + 1]);
    }
    if (axis.name !== 'tp') return sum;
    const stream = tokens * shape.width * item;
    const reduced = Math.min(
      model.seconds('all_reduce', stream, [d + 1]),
      model.seconds('all_gather', stream, [d + 1]) +
        model.seconds('reduce_scatter', stream, [d + 1]),
    );
    // The sums after attention, and after a dense feed-forward layer; the same on the way back.
    return sum + (routed === undefined ? 4 : 2) * reduced;
  }, 0);
}
