import { describe, expect, test } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { adamw } from '../../src/passes/training/optimizer.ts';
import { trainStep } from '../../src/passes/training/train-step.ts';
import { decode } from '../../src/plan/choice/decode.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { simulatedSeconds } from '../../src/recipes/compare/simulated.ts';
import { simulateSeconds } from '../../src/simulate/timeline/simulate.ts';
import { planFor, request, solveFor, TABLE } from './support.ts';

/** `--accumulate`: a step of several passes, of which the last reduces gradients. */

const N = 1024;
const layer = (rows: number): string => `swgraph 1
graph @main {
  in %w1: bf16[${N}, ${N}] parameter "w1"
  in %w2: bf16[${N}, ${N}] parameter "w2"
  in %x: bf16[${rows}, ${N}] input "x"
  %h = aten.mm.default(%x, %w1): bf16[${rows}, ${N}]
  %r = aten.relu.default(%h): bf16[${rows}, ${N}]
  %y = aten.mm.default(%r, %w2): bf16[${rows}, ${N}]
  %loss = aten.mean.default(%y): bf16[]
  out %loss output 0
}
`;
const joint = (rows: number): ReturnType<typeof jointGraph> =>
  jointGraph(parseGraph(layer(rows)), { table: TABLE, seed: 1 });
const GRAPH = joint(32 * N);
/** Data parallel: whole weights, and gradients that are sums over the devices. */
const DATA = [
  { node: 'x', spec: 'S(0)' },
  { node: 'w1', spec: 'R' },
  { node: 'w2', spec: 'R' },
];

/** Seconds of the moves of gradients, once each. */
function reductionSeconds({ outputs }: Plan): number {
  return outputs
    .filter(({ role }) => role === 'grad')
    .flatMap(({ redistributions }) => redistributions)
    .reduce((sum, { seconds }) => sum + seconds, 0);
}

describe('a step of several passes', () => {
  test('counts the reductions of gradients once for all of them', async () => {
    const once = await planFor(GRAPH, 'd=4', { pins: DATA });
    const reduced = reductionSeconds(once);
    expect(reduced).toBeGreaterThan(0);
    for (const accumulate of [1, 2, 8]) {
      const plan = await planFor(GRAPH, 'd=4', { pins: DATA, accumulate });
      const expected = once.objective.seconds - reduced * (1 - 1 / accumulate);
      expect(plan.objective.seconds).toBeCloseTo(expected, 12);
      expect(plan.proof.recheckedSeconds).toBeCloseTo(expected, 9);
    }
  });

  test('has the plan of the least seconds among all placements of weights', async () => {
    const graph = joint(256);
    const fastest = async (accumulate: number): Promise<[number, string[]]> => {
      const specs = ['R', 'S(0)', 'S(1)'];
      let best: [number, string[]] = [Infinity, []];
      for (const w1 of specs)
        for (const w2 of specs) {
          const pins = [
            { node: 'w1', spec: w1 },
            { node: 'w2', spec: w2 },
          ];
          const { objective } = await planFor(graph, 'd=4', { pins, accumulate });
          if (objective.seconds < best[0] * (1 - 1e-9)) best = [objective.seconds, [w1, w2]];
        }
      return best;
    };
    for (const accumulate of [1, 64]) {
      const [seconds] = await fastest(accumulate);
      const { objective, proof } = await planFor(graph, 'd=4', { accumulate });
      expect(proof.status).toBe('optimal');
      expect(objective.seconds).toBeCloseTo(seconds, 12);
    }
  });

  test('takes the simulated seconds of passes without reductions and of one with them', async () => {
    const result = await solveFor(GRAPH, 'd=4', { pins: DATA, accumulate: 4 });
    if (result.status !== 'planned') throw new Error(result.status);
    const { prepared, choice, plan } = result;
    const { program, request: asked } = prepared.question;
    const passes = (often: number): number => {
      const outputs = plan.outputs.map((output) => ({
        ...output,
        redistributions: output.redistributions.map((move) => ({
          ...move,
          ...(output.role === 'grad' ? { times: often } : {}),
        })),
      }));
      const { accumulate: _, ...one } = asked;
      return simulateSeconds(program, { ...plan, outputs, request: one }, TABLE);
    };
    const seconds = simulatedSeconds(prepared, choice, decode(prepared.model, choice));
    expect(passes(1)).toBeGreaterThan(passes(0));
    expect(seconds).toBeCloseTo(3 * passes(0) + passes(1), 12);
  });

  test('holds gradients throughout, and what waits for its reduction beside them', async () => {
    const bytes = 2 * N * N;
    const [one, four] = await Promise.all(
      [1, 4].map((accumulate) => planFor(GRAPH, 'd=4', { pins: DATA, accumulate })),
    );
    // Both weights' gradients, and both parts of them.
    expect(four.memory.timeline?.byKind.gradient).toBe(4 * bytes);
    const before = one.memory.timeline?.byKind.gradient ?? 0;
    expect(four.memory.peakBytes - one.memory.peakBytes).toBeGreaterThanOrEqual(4 * bytes - before);
    // Gradients that are made where they are kept wait for nothing.
    const pins = [
      { node: 'x', spec: 'R' },
      { node: 'w1', spec: 'S(1)' },
      { node: 'w2', spec: 'S(0)' },
    ];
    const cut = await planFor(joint(64), 'd=4', { pins, accumulate: 4 });
    expect(reductionSeconds(cut)).toBe(0);
    expect(cut.memory.timeline?.byKind.gradient).toBe((2 * bytes) / 4);
  });

  test('moves the gradient of an input in each pass', async () => {
    const graph = jointGraph(parseGraph(layer(32 * N)), { table: TABLE, seed: 1, wrt: ['x'] });
    const pins = [...DATA.slice(1), { node: 'x', spec: 'S(1)' }];
    const [one, four] = await Promise.all(
      [1, 4].map((accumulate) => planFor(graph, 'd=4', { pins, accumulate })),
    );
    expect(reductionSeconds(one)).toBeGreaterThan(0);
    expect(four.objective.seconds).toBeCloseTo(one.objective.seconds, 12);
  });

  test('refuses what is no pass of such a step', async () => {
    const refusal = async (graph: typeof GRAPH, accumulate: number): Promise<string> => {
      try {
        await solveFor(graph, 'd=4', request('d=4', { accumulate }));
      } catch (error) {
        return String(error);
      }
      return 'nothing';
    };
    expect(await refusal(GRAPH, 0)).toContain('a step of 0 passes (--accumulate)');
    expect(await refusal(GRAPH, 2.5)).toContain('a step of 2.5 passes');
    expect(await refusal(parseGraph(layer(8)), 4)).toContain('the program returns no gradients');
    const whole = trainStep(GRAPH, adamw({ lr: 1e-3, weightDecay: 0.1 }), { table: TABLE });
    expect(await refusal(whole, 4)).toContain('the program updates its parameters in each pass');
  });
});
