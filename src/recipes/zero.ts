/**
 * Derives ZeRO-1 and ZeRO-2 from a priced data-parallel plan (arXiv:1910.02054), since the planning
 * problem places gradients and states with their parameter.
 */

import { peakOf } from '../cost/memory/peak.ts';
import { zeroStateBytes } from '../cost/memory/state-bytes.ts';
import { decode, stateMemory } from '../plan/choice/decode.ts';
import { planMemoryTimeline } from '../plan/choice/timeline.ts';
import type { Model } from '../plan/model/model.ts';
import type { Prepared } from '../plan/prepare/prepared.ts';
import { holdsPeak } from '../plan/request/request.ts';

/**
 * Prices ZeRO-1 and ZeRO-2 from a data-parallel plan. In the planning problem gradients and
 * optimizer states follow their parameter, so these two are not choices of it: they are priced from
 * the choice of `dp`, each gradient's all-reduce made a reduce-scatter and an all-gather of the
 * updated parameter, and their states are those of arXiv:1910.02054, figure 1. A shard counts as
 * the largest one. Where the preset charges redistributions by a formula, the difference is that of
 * the collectives which run.
 *
 * @param choice of the plan `dp`
 */
export function zeroFromData(
  { model, question: { request } }: Pick<Prepared, 'model' | 'question'>,
  choice: Int32Array,
  stage: 1 | 2,
): { readonly seconds: number; readonly communicationSeconds: number; readonly peakBytes: number } {
  const { collectives, graph, flow, space } = model;
  const decoded = decode(model, choice);
  let change = 0;
  const replace = (moves: (typeof decoded.nodes)[number]['redistributions']): void => {
    for (const move of moves)
      for (const { kind, meshDims, bytes, seconds } of move.collectives) {
        if (kind !== 'all_reduce') continue;
        const dims = space.mesh.resolve(meshDims);
        const split =
          collectives.seconds('reduce_scatter', bytes, dims) +
          collectives.seconds('all_gather', bytes, dims);
        change += (split - seconds) * (move.times ?? 1);
      }
  };
  decoded.nodes.forEach((node, n) => {
    if (graph.nodes[n].kind === 'call' && flow.phases[n] !== 'forward')
      replace(node.redistributions);
  });
  for (const output of decoded.outputs) if (output.role === 'grad') replace(output.redistributions);
  let stateBytes = 0;
  for (const [n, state] of model.stateBytes) {
    const local = state.localElements[choice[model.nodeVariable[n]]];
    const shard = Math.ceil(local / space.mesh.size);
    const ways = local === 0 ? 1 : local / shard;
    stateBytes += Math.round(zeroStateBytes(state, local, stage, ways));
  }
  const seconds = decoded.computeSeconds + decoded.communicationSeconds + change;
  return {
    seconds,
    communicationSeconds: decoded.communicationSeconds + change,
    peakBytes: holdsPeak(request)
      ? zeroPeak(model, choice, stage)
      : Math.min(stateBytes, stateMemory(model, choice).peakBytes),
  };
}

/**
 * Peak memory with optimizer states, and of stage 2 gradients from the step after they are made,
 * cut over all devices.
 */
function zeroPeak(model: Model, choice: Int32Array, stage: 1 | 2): number {
  const { intervals } = planMemoryTimeline(model, choice);
  const cut = (bytes: number): number => Math.ceil(bytes / model.space.mesh.size);
  const kept = intervals.flatMap((interval) => {
    if (interval.kind === 'optimizer') return [{ ...interval, bytes: cut(interval.bytes) }];
    if (interval.kind !== 'gradient' || stage === 1 || interval.start === interval.end)
      return [interval];
    return [
      { ...interval, end: interval.start },
      { ...interval, start: interval.start + 1, bytes: cut(interval.bytes) },
    ];
  });
  return peakOf(kept).peakBytes;
}
