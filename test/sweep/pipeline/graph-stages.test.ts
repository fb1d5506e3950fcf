import { describe, expect, test } from 'vitest';

import type { Graph } from '../../../src/graph/types.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { cuttable } from '../../../src/passes/stages/split.ts';
import { leastCostPlan } from '../../../src/plan/least-cost-plan.ts';
import { Deadline } from '../../../src/plan/request/deadline.ts';
import { DEFAULT_REQUEST, type PlanRequest } from '../../../src/plan/request/request.ts';
import { simulatePasses } from '../../../src/simulate/timeline/simulate.ts';
import { type GraphPipeline, planGraphStages } from '../../../src/sweep/pipeline/graph-stages.ts';
import { param } from '../../../src/trace/tensor/state.ts';
import { input, type Tensor, trace } from '../../../src/trace/trace.ts';
import { TABLE } from '../../plan/support.ts';

/** A chain of products, each with work of its own. */
function chain(widths: readonly number[]): Graph {
  const graph = trace(
    ({ x }: { x: Tensor }) => {
      let y = x;
      for (const [i, width] of widths.entries())
        y = y.matmul(param(`w${i}`, [i === 0 ? 256 : widths[i - 1], width])).tanh();
      return y.sum();
    },
    { x: input([512, 256]) },
  );
  return jointGraph(graph, { table: TABLE, seed: 1 });
}

const WIDTHS = [2048, 512, 1024, 256, 4096, 512];
const on = (mesh: string): PlanRequest => ({ ...DEFAULT_REQUEST, mesh, cluster: 'dgx-h100' });

async function staged(
  graph: Graph,
  mesh: string,
  devices: number,
  microbatches: number,
): Promise<GraphPipeline> {
  const asked = { devices, microbatches, schedule: '1f1b', virtual: 1 } as const;
  const run = { table: TABLE, deadline: new Deadline(undefined) };
  const found = await planGraphStages(graph, on(mesh), asked, run);
  if ('infeasible' in found) throw new Error(found.part);
  return found.pipeline;
}

/** Seconds of a pass and bytes of the plan of a whole program, in a step of so many passes. */
async function alone(
  graph: Graph,
  mesh: string,
  passes = 1,
): Promise<{ readonly seconds: number; readonly bytes: number }> {
  const asked = passes === 1 ? on(mesh) : { ...on(mesh), accumulate: passes };
  const result = await leastCostPlan(graph, asked, { table: TABLE });
  if (result.status !== 'planned') throw new Error(graph.name);
  const { plan, prepared } = result;
  const { other } = simulatePasses(prepared.question.program, plan, TABLE);
  return { seconds: other, bytes: plan.memory.peakBytes };
}

describe('stages of a captured graph', () => {
  test('one stage and one microbatch have the step and the bytes of the plan of the whole', async () => {
    const graph = chain(WIDTHS);
    for (const mesh of ['dp=1', 'dp=2', 'dp=2,tp=2']) {
      const { seconds, stages } = await staged(graph, mesh, 1, 1);
      const whole = await alone(graph, mesh);
      // The plan rounds each price to a quantum.
      expect(Math.abs(seconds / whole.seconds - 1)).toBeLessThan(1e-6);
      expect(stages.map(({ peakBytes }) => peakBytes)).toEqual([whole.bytes]);
    }
  });

  test('on one device each, the stages have all work of the whole, and none twice', async () => {
    const graph = chain(WIDTHS);
    const { stages, planned } = await staged(graph, 'dp=1', 3, 4);
    const sum = stages.reduce((total, { seconds }) => total + seconds, 0);
    expect(Math.abs(sum / (await alone(graph, 'dp=1')).seconds - 1)).toBeLessThan(1e-6);
    expect(planned).toBeGreaterThan(3);
  });

  test('no other cuts have a shorter longest stage, each planned as one problem', async () => {
    const graph = chain(WIDTHS.slice(0, 5));
    const { points, cut } = cuttable(graph, TABLE);
    const longest: number[] = [];
    const known = new Map<string, number>();
    for (let i = 0; i < points.length; i++)
      for (let k = i + 1; k < points.length; k++) {
        // What lies between two cuts is the same program whatever is cut elsewhere.
        const ends = [`to ${i}`, `${i} to ${k}`, `from ${k}`];
        for (const [s, stage] of cut([points[i], points[k]]).stages.entries())
          if (!known.has(ends[s]))
            known.set(ends[s], (await alone(stage.graph, 'dp=2', 512)).seconds);
        longest.push(Math.max(...ends.map((name) => known.get(name) ?? NaN)));
      }
    expect(longest.length).toBeGreaterThan(5);
    // With many microbatches the longest stage alone counts.
    const { stages } = await staged(graph, 'dp=2', 3, 512);
    const chosen = Math.max(...stages.map(({ seconds }) => seconds));
    expect(Math.abs(chosen / Math.min(...longest) - 1)).toBeLessThan(1e-6);
  });

  test('equal layers are planned once, however many there are', async () => {
    const few = await staged(chain(new Array<number>(4).fill(256)), 'dp=2', 2, 8);
    const many = await staged(chain(new Array<number>(8).fill(256)), 'dp=2', 2, 8);
    // The first part, one between, the last part; the two stages, and each as the other sends.
    expect([few.planned, many.planned]).toEqual([7, 7]);
    expect(many.cutPoints).toBe(7);
  });
});
