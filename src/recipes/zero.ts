/**
 * Derives ZeRO-1 and ZeRO-2 from a priced data-parallel plan (arXiv:1910.02054), since the planning
 * problem places gradients and states with their parameter.
 */

import { peakOf } from '../cost/memory/peak.ts';
import { zeroStateBytes } from '../cost/memory/state-bytes.ts';
import { decode, type Decoded, stateMemory } from '../plan/choice/decode.ts';
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
): {
  readonly seconds: number;
  readonly communicationSeconds: number;
  readonly peakBytes: number;
  /** The calls and collectives of the step. */
  readonly step: Pick<Decoded, 'nodes' | 'outputs'>;
} {
  const { collectives, graph, flow, space } = model;
  const decoded = decode(model, choice);
  let change = 0;
  type Moves = Decoded['nodes'][number]['redistributions'];
  const scattered = (moves: Moves): Moves =>
    moves.map((move) => ({
      ...move,
      collectives: move.collectives.flatMap((collective) => {
        const { kind, meshDims, bytes, seconds } = collective;
        if (kind !== 'all_reduce') return [collective];
        const dims = space.mesh.resolve(meshDims);
        const parts = (['reduce_scatter', 'all_gather'] as const).map((part) => ({
          ...collective,
          kind: part,
          seconds: collectives.seconds(part, bytes, dims),
        }));
        change += (parts[0].seconds + parts[1].seconds - seconds) * (move.times ?? 1);
        return parts;
      }),
    }));
  const nodes = decoded.nodes.map((node, n) =>
    graph.nodes[n].kind === 'call' && flow.phases[n] !== 'forward'
      ? { ...node, redistributions: scattered(node.redistributions) }
      : node,
  );
  const outputs = decoded.outputs.map((output) =>
    output.role === 'grad'
      ? { ...output, redistributions: scattered(output.redistributions) }
      : output,
  );
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
    step: { nodes, outputs },
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
