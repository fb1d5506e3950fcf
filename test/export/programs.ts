import { type ExportedPlan, type ExportSource, exportSource } from '../../src/backend/target.ts';
import type { Graph } from '../../src/graph/types.ts';
import { shrinkGraph } from '../../src/passes/sizes/shrink.ts';
import { randomPlan } from '../../src/plan/choice/random-plan.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { request, TABLE } from '../plan/support.ts';
import { inFloat64 } from './float64.ts';

/** A graph at sizes that the mesh divides, in float64. */
export function small(graph: Graph, mesh: string): Graph {
  const meshSizes = mesh.split(',').map((dim) => Number(dim.split('=')[1]));
  return inFloat64(shrinkGraph(graph, TABLE, { meshSizes }).graph);
}

/** A plan drawn at random, whose cuts are all even. */
export function randomSource(graph: Graph, mesh: string, seed: number): ExportSource {
  const prepared = prepare(graph, request(mesh, { uneven: 'forbid' }), TABLE);
  const drawn = randomPlan(prepared, seed);
  return sourceOf(graph, { model: 'drawn', mesh: [], cluster: 'test', ...drawn });
}

/** Devices that compute so slowly that even small tensors are worth cutting. */
const SLOW = JSON.stringify({
  id: 'slow',
  peakFlopsPerSecond: { fp64: 1e8, fp32: 1e8, bf16: 1e8 },
  memoryBytes: 1e9,
  reservedBytes: 0,
  memoryBytesPerSecond: 1e9,
  devicesPerHost: 8,
  intra: { bytesPerSecond: 1e10, latencySeconds: 1e-7 },
  inter: { bytesPerSecond: 1e9, latencySeconds: 1e-6 },
  baseLatencySeconds: 1e-7,
  launchSeconds: 0,
  matmulLaunchSeconds: 0,
});

/** The optimum on slow devices. */
export async function solvedSource(
  graph: Graph,
  mesh: string,
  pins: readonly { node: string; spec: string }[] = [],
): Promise<ExportSource> {
  const prepared = prepare(graph, request(mesh, { cluster: SLOW, uneven: 'forbid', pins }), TABLE);
  const solved = await leastCostPlanOf(prepared);
  if (solved.status !== 'planned') throw new Error('infeasible');
  return sourceOf(graph, solved.plan);
}

export function sourceOf(graph: Graph, plan: ExportedPlan): ExportSource {
  return exportSource({ plan, program: graph }, TABLE);
}
