import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { describe, expect, test } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { eachOperand } from '../../src/graph/value.ts';
import { plannedProgram } from '../../src/lower/lower.ts';
import { promisedCollectives } from '../../src/lower/promised.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import type { Plan, PlannedRedistribution } from '../../src/plan/record/types.ts';
import type { PlanRequest } from '../../src/plan/request/request.ts';
import { verify } from '../../src/simulate/verify.ts';
import { input, parameter } from '../../src/trace/record/spec.ts';
import { trace } from '../../src/trace/trace.ts';
import { FULL } from '../support/full.ts';
import { DATA, program, squares } from './end-to-end-models.ts';
import { planFor, TABLE } from './support.ts';

/**
 * Programs that DTensor 2.13 ran on 4 or 8 processes from given placements, with the collectives
 * that it needed. It leaves loss and gradients pending; our plans end with the loss whole and every
 * gradient placed like its parameter, so that the collectives which only read a result are counted
 * apart.
 */
interface Recorded {
  readonly model: string;
  readonly mesh: readonly number[];
  readonly params: Readonly<Record<string, readonly string[]>>;
  readonly x: readonly string[];
  readonly forward: Readonly<Record<string, number>>;
  readonly backward: Readonly<Record<string, number>>;
  readonly loss_placement: readonly string[];
  readonly grad_placements: Readonly<Record<string, readonly string[]>>;
}
const file = fileURLToPath(new URL('../fixtures/oracle/e2e.json.gz', import.meta.url));
const recorded = JSON.parse(gunzipSync(readFileSync(file)).toString()) as Readonly<
  Record<string, Recorded>
>;
const names = Object.keys(recorded);

const spec = (words: readonly string[]): string =>
  words.map((w) => w.replace(/^S(\d)$/, 'S($1)').replace(/^P(\w+)$/, 'P($1)')).join('');
const total = (counts: Readonly<Record<string, number>>): number =>
  Object.values(counts).reduce((a, b) => a + b, 0);

const graphs = new Map<string, Graph>();
function graphOf(model: string): Graph {
  let graph = graphs.get(model);
  if (graph === undefined) graphs.set(model, (graph = program(model)));
  return graph;
}

function planOf(name: string, more: Partial<PlanRequest>): Promise<Plan> {
  const { model, mesh, params, x } = recorded[name];
  const graph = graphOf(model);
  const data = graph.nodes.filter((n) => n.kind === 'placeholder' && DATA.includes(n.name));
  const pins = [
    ...Object.entries(params).map(([node, words]) => ({ node, spec: spec(words) })),
    ...data.map((n) => ({ node: n.name, spec: spec(x) })),
  ];
  const meshText = mesh.map((n, i) => `m${i}=${n}`).join(',');
  return planFor(graph, meshText, { pins, cost: 'dtensor', optimizer: 'none', ...more });
}

/** Views through which nothing but a gradient leaves the program. */
function gradientViews(graph: Graph): ReadonlySet<string> {
  const users = new Map<string, string[]>();
  for (const node of graph.nodes)
    eachOperand(node, (name) => users.set(name, [...(users.get(name) ?? []), node.name]));
  const gradients = new Set(
    graph.outputs.flatMap((o) => (o.role === 'grad' && o.value !== null ? [o.value] : [])),
  );
  const found = new Set<string>();
  for (const node of [...graph.nodes].reverse()) {
    if (node.kind !== 'call' || TABLE.get(node.target)?.cls !== 'view') continue;
    const uses = users.get(node.name) ?? [];
    if (uses.every((user) => found.has(user)) && (uses.length > 0 || gradients.has(node.name)))
      found.add(node.name);
  }
  return found;
}

interface Counts {
  readonly forward: Record<string, number>;
  readonly backward: Record<string, number>;
  readonly reading: Record<string, number>;
}
const WORDS: Readonly<Record<string, string>> = {
  all_gather: 'AG',
  all_reduce: 'AR',
  reduce_scatter: 'RS',
  all_to_all: 'A2A',
};

/**
 * Of redistributions, and of the rules that communicate inside (a mean over the global count sums
 * that count).
 */
function collectives(graph: Graph, plan: Plan): Counts {
  const counts: Counts = { forward: {}, backward: {}, reading: {} };
  const add = (into: Record<string, number>, list: readonly PlannedRedistribution[]): void => {
    for (const { kind } of list.flatMap((r) => r.collectives))
      into[WORDS[kind] ?? kind] = (into[WORDS[kind] ?? kind] ?? 0) + 1;
  };
  const views = gradientViews(graph);
  const phases = new Map(
    graph.nodes.map((n) => [n.name, n.meta.phase === 'backward' ? 'backward' : 'forward'] as const),
  );
  for (const node of plan.nodes)
    add(
      views.has(node.name) ? counts.reading : counts[phases.get(node.name) ?? 'forward'],
      node.redistributions,
    );
  for (const output of plan.outputs) add(counts.reading, output.redistributions);
  const inside = promisedCollectives(plannedProgram(graph, plan, TABLE), plan, TABLE).filter(
    (c) => c.bytes === null,
  );
  const where = new Set(
    plan.nodes.flatMap((n) =>
      n.internalSeconds === undefined || n.internalSeconds === 0 ? [] : [phases.get(n.name)],
    ),
  );
  expect([...where]).toEqual(inside.length > 0 ? ['forward'] : []);
  for (const { kind } of inside)
    counts.forward[WORDS[kind] ?? kind] = (counts.forward[WORDS[kind] ?? kind] ?? 0) + 1;
  return counts;
}

/**
 * The least that DTensor's program costs, in microseconds: the latency alone of what it ran, and of
 * reading the loss whole and every gradient placed like its parameter (one reduction for each mesh
 * dim that is pending).
 */
function least(r: Recorded): number {
  const reduceScatter = (n: number): number => 6.6 + 0.6 * (n - 1);
  const allReduce = (n: number): number => 6.6 + 1.2 * (n - 1);
  const smallest = Math.min(...r.mesh);
  let micro = 0;
  for (const [word, count] of [...Object.entries(r.forward), ...Object.entries(r.backward)])
    micro += count * (word === 'AR' ? allReduce(smallest) : reduceScatter(smallest));
  const read = (words: readonly string[], wanted?: readonly string[]): void =>
    words.forEach((word, m) => {
      if (word.startsWith('P'))
        micro +=
          wanted?.[m]?.startsWith('S') === true ? reduceScatter(r.mesh[m]) : allReduce(r.mesh[m]);
    });
  read(r.loss_placement);
  for (const [name, words] of Object.entries(r.grad_placements)) read(words, r.params[name]);
  return micro;
}

/**
 * Why the cheapest plan has more collectives in a pass than DTensor; it must then cost less in all.
 */
const WHY_MORE: Readonly<Record<string, string>> = {
  mlp_tp4:
    'the weights are small: both are gathered once, and no activation or gradient is reduced',
  mlp_bias_tp4: 'as mlp_tp4',
  mlp_dp2tp2:
    'weights and rows are gathered once; nothing is pending then, so that no gradient is reduced',
  mlp_dp4:
    'DTensor needs none until the gradients are read, then one all-reduce each; gathering the rows spares them',
  mlp_fsdp4:
    'rows and weights are gathered in the forward pass, and the backward pass needs nothing but one reduce-scatter',
  attn_dp4: 'as mlp_dp4: one gather of the rows in place of five all-reduces',
  llama_dp4: 'as mlp_dp4: three gathers of token numbers and targets in place of 22 all-reduces',
};

/** Why greedy propagation differs from DTensor, which propagates greedily too. */
const WHY_GREEDY: Readonly<Record<string, string>> = {
  attn_tp4:
    'the gradient of attention takes a pending sum that is scattered into heads at once; nothing is all-reduced',
  llama_tp4:
    'after the first block the residual is cut along the batch, and weights are gathered, not activations reduced',
  llama_tp4_embdim:
    'fewer in all but more forward: there too weights are gathered from the second block on',
  llama_dp4: 'the same number: the targets are counted by the loss, and not in the backward pass',
  llama_dp2tp4: 'as llama_tp4, with the residual cut along the batch by both mesh dims',
};

/** Programs whose numbers are computed with `SHARDWRIGHT_FULL=1` alone: llama_dp2tp4 has both cuts. */
const ALIKE = ['llama_tp4', 'llama_dp4'];

describe('end-to-end programs of DTensor from the same placements', () => {
  const more: string[] = [];
  test.each(names)(
    '%s: the cheapest plan needs no more collectives, or costs less for a written reason',
    async (name) => {
      const r = recorded[name];
      const plan = await planOf(name, {});
      expect(plan.proof.status).toBe('optimal');
      const ours = collectives(graphOf(r.model), plan);
      const fewer =
        total(ours.forward) <= total(r.forward) && total(ours.backward) <= total(r.backward);
      if (!fewer) {
        more.push(name);
        expect(WHY_MORE[name], JSON.stringify(ours)).toBeDefined();
        expect(plan.objective.communicationSeconds * 1e6).toBeLessThan(least(r));
      }
      if (!FULL && ALIKE.includes(name)) return;
      // Loss, gradients and every value between are those of one process.
      const verified = verify(graphOf(r.model), plan, { table: TABLE });
      expect(verified.mismatches).toEqual([]);
      expect(verified.maxRelativeError).toBeLessThan(1e-9);
    },
  );

  test('no reason is left over', () => expect(more.sort()).toEqual(Object.keys(WHY_MORE).sort()));

  const other: string[] = [];
  test.each(names)(
    '%s: greedy propagation needs the same collectives, or no more for a written reason',
    async (name) => {
      const r = recorded[name];
      const plan = await planOf(name, { solver: 'propagate' });
      const ours = collectives(graphOf(r.model), plan);
      const sorted = (counts: Readonly<Record<string, number>>): string =>
        Object.entries(counts)
          .map((e) => e.join(' '))
          .sort()
          .join();
      if (
        sorted(ours.forward) === sorted(r.forward) &&
        sorted(ours.backward) === sorted(r.backward)
      )
        return;
      other.push(name);
      expect(WHY_GREEDY[name], JSON.stringify(ours)).toBeDefined();
      expect(total(ours.forward) + total(ours.backward)).toBeLessThanOrEqual(
        total(r.forward) + total(r.backward),
      );
    },
  );

  test('no reason is left over for greedy propagation', () =>
    expect(other.sort()).toEqual(Object.keys(WHY_GREEDY).sort()));
});

test('a weight sharded over data parallel devices: solved as a whole its rows are not made pending sums', async () => {
  const step = jointGraph(
    trace(({ x, w }) => squares(x.matmul(w)), {
      x: input([4096, 4096]),
      w: parameter([4096, 11008]),
    }),
    { seed: 1 },
  );
  const pins = ['x', 'w'].map((node) => ({ node, spec: 'S(0)R' }));
  // Twice the bytes that are held at least: room for the gathered weight.
  const given = {
    pins,
    cost: 'dtensor',
    optimizer: 'none',
    activations: 'report',
    memoryBytes: 2 * 4 * (4096 * 4096 + 4096 * 11008),
  } as const;
  const whole = await planFor(step, 'dp=2,tp=4', given);
  const greedy = await planFor(step, 'dp=2,tp=4', { ...given, solver: 'propagate' });
  const product = whole.nodes.find((n) => n.target === 'aten.mm.default');
  // The batch stays cut by dp; the weight is whole over dp, and over tp in its column form.
  expect(product?.inputs).toEqual(['S(0)R', 'RS(1)']);
  expect(greedy.nodes.find((n) => n.target === 'aten.mm.default')?.outputs[0]).toContain('P(sum)');
  expect(whole.proof.status).toBe('optimal');
  expect(whole.objective.seconds).toBeLessThan(greedy.objective.seconds);
});
