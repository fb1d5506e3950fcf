import { describe, expect, test } from 'vitest';

import { zeroStateBytes } from '../../src/cost/memory/state-bytes.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import { eachOperand } from '../../src/graph/value.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { adamw } from '../../src/passes/training/optimizer.ts';
import { trainStep } from '../../src/passes/training/train-step.ts';
import { leastCostPlan, leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare, withPins } from '../../src/plan/prepare/prepare.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { verify } from '../../src/simulate/verify.ts';
import { planFor, request, TABLE } from './support.ts';

/**
 * ZeRO-1 and ZeRO-2 as choices beside placements: a step that updates its parameters gives states
 * and gradients their own.
 */

const N = 1024;
const ROWS = 4 * N;
const LAYER = `swgraph 1
graph @main {
  in %w: bf16[${N}, ${N}] parameter "w"
  in %x: bf16[${ROWS}, ${N}] input "x"
  %wt = aten.t.default(%w): bf16[${N}, ${N}]
  %h = aten.mm.default(%x, %wt): bf16[${ROWS}, ${N}]
  %y = aten.mm.default(%h, %wt): bf16[${ROWS}, ${N}]
  %loss = aten.mean.default(%y): bf16[]
  out %loss output 0
}
`;
const GRAPH = trainStep(
  jointGraph(parseGraph(LAYER), { table: TABLE, seed: 1 }),
  adamw({ lr: 1e-3, weightDecay: 0.1 }),
  { table: TABLE },
);
const STATES = ['w_master', 'w_exp_avg', 'w_exp_avg_sq'];
const SPECS = ['R', 'S(0)', 'S(1)'];
const BATCH = { node: 'x', spec: 'S(0)' };

type Pin = { readonly node: string; readonly spec: string };
const asked = (pins: readonly Pin[], memoryBytes?: number): ReturnType<typeof request> =>
  request('d=4', {
    pins: [BATCH, ...pins],
    activations: 'report',
    ...(memoryBytes === undefined ? {} : { memoryBytes }),
  });
async function planned(pins: readonly Pin[], memoryBytes?: number): Promise<Plan | undefined> {
  const result = await leastCostPlan(GRAPH, asked(pins, memoryBytes), { table: TABLE });
  return 'plan' in result ? result.plan : undefined;
}

const free = prepare(GRAPH, asked([]), TABLE);
/** The same plan, from tables that are made once. */
async function pinned(pins: readonly Pin[]): Promise<Plan | undefined> {
  const { request: without } = free.question;
  const result = await leastCostPlanOf(withPins(free, { ...without, pins: [BATCH, ...pins] }));
  return 'plan' in result ? result.plan : undefined;
}

describe('states of a parameter that is whole', () => {
  test('are chosen as all placements of parameter and states, one by one, say: under every budget', async () => {
    const all: Plan[] = [];
    for (const w of SPECS)
      for (const master of SPECS)
        for (const average of SPECS)
          for (const square of SPECS) {
            const pins = STATES.map((node, i) => ({ node, spec: [master, average, square][i] }));
            const plan = await pinned([{ node: 'w', spec: w }, ...pins]);
            if (plan !== undefined) all.push(plan);
          }
    expect(all.length).toBe(3 ** 4);
    const elements = N * N;
    const state = { parameter: 2, gradient: 0, optimizer: 12 };
    const stages = ([0, 1, 3] as const).map(
      (stage) => zeroStateBytes(state, elements, stage, 4) + 4,
    );
    const chosen: string[] = [];
    for (const bytes of [...stages, stages[1] - 1, stages[0] - 1, 2 * stages[0]]) {
      const best = all
        .filter((p) => p.memory.peakBytes <= bytes)
        .reduce((a, b) => (b.objective.seconds < a.objective.seconds ? b : a));
      const plan = await planned([], bytes);
      expect(plan?.objective.seconds, `${bytes}`).toBe(best.objective.seconds);
      expect(plan?.proof.status).toBe('optimal');
      expect(plan?.memory.peakBytes).toBeLessThanOrEqual(bytes);
      const at = (name: string): string => plan!.nodes.find((n) => n.name === name)!.outputs[0];
      chosen.push(['w', ...STATES].map(at).join(' '));
    }
    // What ZeRO-1 takes is enough for a whole parameter; less is not.
    expect(chosen[1]).toMatch(/^R S\(\d\) S\(\d\) S\(\d\)$/);
    expect(chosen[3].startsWith('R')).toBe(false);
    expect(await planned([], stages[2] - 1)).toBeUndefined();
  });

  test('gradient and parameter move once: scattered as it is summed, gathered in the parameter’s own dtype', async () => {
    const plan = await planned([
      { node: 'w', spec: 'R' },
      ...STATES.map((node) => ({ node, spec: 'S(0)' })),
    ]);
    const moves = [...plan!.nodes, ...plan!.outputs].flatMap((n) =>
      n.redistributions.flatMap((r) => r.collectives),
    );
    const large = moves.filter((c) => c.bytes > 1024).map((c) => [c.kind, c.bytes]);
    expect(large).toEqual([
      ['reduce_scatter', N * N * 2],
      ['all_gather', N * N * 2],
    ]);
  });
});

describe('gradients before the update', () => {
  const LAYERS = 3;
  const [rows, width] = [16, 64];
  const names = Array.from({ length: LAYERS }, (_, i) => `w${i}`);
  const chain = names.flatMap((w, i) => [
    `  %${w}t = aten.t.default(%${w}): bf16[${width}, ${width}]`,
    `  %h${i + 1} = aten.mm.default(%h${i}, %${w}t): bf16[${rows}, ${width}]`,
  ]);
  const text = [
    'swgraph 1',
    'graph @main {',
    ...names.map((w) => `  in %${w}: bf16[${width}, ${width}] parameter "${w}"`),
    `  in %h0: bf16[${rows}, ${width}] input "x"`,
    ...chain,
    `  %loss = aten.mean.default(%h${LAYERS}): bf16[]`,
    '  out %loss output 0',
    '}',
    '',
  ].join('\n');
  const graph = trainStep(
    jointGraph(parseGraph(text), { table: TABLE, seed: 1 }),
    adamw({ lr: 1e-3 }),
    { table: TABLE },
  );
  const aliases = graph.nodes.filter((n) => n.target === 'aten.alias.default');
  const gradients = aliases.map((n) => n.name);
  const sums: string[] = [];
  for (const node of aliases) eachOperand(node, (name) => void sums.push(name));

  test('may be cut where they are made, which the peak over time sees: ZeRO-2 beside ZeRO-1', async () => {
    expect(gradients).toHaveLength(LAYERS);
    const whole = names.map((node) => ({ node, spec: 'R' }));
    const states = names.flatMap((w) =>
      STATES.map((s) => ({ node: s.replace('w', w), spec: 'S(0)' })),
    );
    const plans = await Promise.all(
      ['P(sum)', 'S(0)'].map(async (spec) => {
        const pins = [
          { node: 'h0', spec: 'S(0)' },
          ...whole,
          ...states,
          ...sums.map((node) => ({ node, spec: 'P(sum)' })),
          ...gradients.map((node) => ({ node, spec })),
        ];
        const plan = await planFor(graph, 'd=4', { pins });
        expect(verify(graph, plan, { table: TABLE }).mismatches).toEqual([]);
        return plan;
      }),
    );
    const [late, early] = plans.map((p) => p.memory.peakBytes);
    // At the end of the backward pass three quarters are gone, of all gradients but the last.
    const gone = (3 / 4) * 2 * width * width;
    expect(late - early).toBeGreaterThanOrEqual((LAYERS - 2) * gone);
    expect(late - early).toBeLessThanOrEqual(LAYERS * gone);
    // A budget between the two leaves the choice to the plan.
    const memoryBytes = early + gone;
    const free = await planFor(graph, 'd=4', {
      pins: [
        { node: 'h0', spec: 'S(0)' },
        ...whole,
        ...states,
        ...sums.map((node) => ({ node, spec: 'P(sum)' })),
      ],
      memoryBytes,
    });
    expect(free.memory.peakBytes).toBeLessThanOrEqual(memoryBytes);
    expect(free.objective.seconds).toBeLessThanOrEqual(plans[1].objective.seconds * 1.01);
  });
});
