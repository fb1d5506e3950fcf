import { describe, expect, test } from 'vitest';

import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { collectiveModel } from '../../src/cost/presets/presets.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import type { Plan, PlannedRedistribution } from '../../src/plan/record/types.ts';
import { verify } from '../../src/simulate/verify.ts';
import { load, planFor, TABLE } from './support.ts';

/**
 * Plans of the preset that charges redistributions by a formula which is not the price of what
 * runs. The formula is written here once more, over placement texts, as section 4.2 of the cost
 * specification has it.
 */
const MESH = 'x=32,y=8';
const [SIZES, MODEL] = [
  [32, 8],
  collectiveModel('autoparallel', loadCluster('dgx-h100'), parseMesh(MESH)),
] as const;
const copy = (bytes: number): number => Math.max(bytes / (3.35 * 2 ** 40) / 0.7, 7e-6);

function formula(r: PlannedRedistribution, fullBytes: number): number {
  const [from, to] = [r.from, r.to].map((text) => text.match(/S\(\d\)|R|P\(\w+\)/g) ?? []);
  const cut = (p: string): boolean => p.startsWith('S');
  const strided = (p: string): boolean => cut(p) && p !== 'S(0)';
  if (from.every((p) => p === 'R')) return 0;
  let bytes = Math.ceil(from.reduce((b, p, m) => (cut(p) ? b / SIZES[m] : b), fullBytes));
  let seconds = 0;
  for (const m of from.every((p) => p.startsWith('P')) && to.every(cut) ? [1, 0] : [0, 1]) {
    const [a, b] = [from[m], to[m]];
    if (a === b) continue;
    if (cut(a) && cut(b))
      seconds +=
        MODEL.seconds('all_to_all', bytes, [m]) + [a, b].filter(strided).length * copy(2 * bytes);
    else if (cut(a)) {
      bytes *= SIZES[m];
      seconds += MODEL.seconds('all_gather', bytes, [m]) + (strided(a) ? copy(2 * bytes) : 0);
    } else if (a.startsWith('P') && b === 'R') seconds += MODEL.seconds('all_reduce', bytes, [m]);
    else if (a.startsWith('P')) {
      seconds += MODEL.seconds('reduce_scatter', bytes, [m]) + (strided(b) ? copy(2 * bytes) : 0);
      bytes /= SIZES[m];
    }
  }
  return seconds;
}

const ONE_SHARE = {
  activations: 'report',
  inputs: 'S(0)R',
  outputs: 'S(0)R',
  memoryBytes: (2 * 1024 * 4096 * 16) / 256,
} as const;
const planned = (cost: string): Promise<Plan> =>
  planFor(load('peers/ffn-65536'), MESH, { ...ONE_SHARE, cost });
const moves = (plan: Plan): PlannedRedistribution[] =>
  [...plan.nodes, ...plan.outputs].flatMap((at) => at.redistributions);

describe('a plan at AutoParallel prices', () => {
  test('says of every redistribution what is charged and what runs', async () => {
    const plan = await planned('autoparallel');
    const lines = [
      ...plan.nodes.map(({ name, redistributions }) => ({ name, redistributions })),
      ...plan.outputs.map(({ value, redistributions }) => ({ name: value, redistributions })),
    ].flatMap(({ name, redistributions }) =>
      redistributions.map((r) => {
        const run = r.collectives.map((c) => `${c.kind}(${c.meshDims.join(',')})`).join(' ');
        return `${name} ${r.from} -> ${r.to}: ${(r.seconds * 1e6).toFixed(2)} charged, ${run} ${((r.executedSeconds ?? NaN) * 1e6).toFixed(2)}`;
      }),
    );
    expect(lines).toMatchInlineSnapshot(`
      [
        "t S(0)S(0) -> RS(0): 260.99 charged, all_gather(y) all_gather(x) all_to_all(y) 354.84",
        "t_1 S(0)S(1) -> RS(1): 260.99 charged, all_gather(x) 260.99",
        "t_3 P(sum)S(1) -> S(0)S(1): 260.99 charged, reduce_scatter(x) 260.99",
        "t_1_recomputed S(0)S(1) -> RS(1): 260.99 charged, all_gather(x) 260.99",
        "t_7 P(sum)S(0) -> S(0)S(0): 260.99 charged, all_to_all(y) reduce_scatter(x) all_gather(y) 361.84",
        "mm_1 S(0)P(sum) -> S(0)R: 62.42 charged, all_reduce(y) 62.42",
      ]
    `);
  });

  test('the charges are those of the formula, and the objective is their sum', async () => {
    const plan = await planned('autoparallel');
    const weight = 1024 * 4096 * 4;
    const sizeOf: Record<string, number> = {
      t: weight,
      t_1: weight,
      t_1_recomputed: weight,
      t_3: weight,
      t_7: weight,
    };
    let communication = 0;
    let executed = 0;
    for (const { name, redistributions } of [
      ...plan.nodes,
      ...plan.outputs.map((o) => ({ ...o, name: o.value })),
    ])
      for (const r of redistributions) {
        expect(r.seconds, name).toBeCloseTo(formula(r, sizeOf[name] ?? 65536 * 1024 * 4), 12);
        communication += r.seconds;
        executed += r.executedSeconds ?? NaN;
      }
    const { objective, proof } = plan;
    expect(objective.communicationSeconds).toBeCloseTo(communication, 12);
    expect(objective.executedCommunicationSeconds).toBeCloseTo(executed, 12);
    expect(objective.seconds).toBeCloseTo(objective.computeSeconds + communication, 9);
    expect(proof.recheckedSeconds).toBeCloseTo(objective.seconds, 9);
    expect(proof.status).toBe('optimal');
  });

  test('each use pays for its own redistribution, and the request says so', async () => {
    const plan = await planned('autoparallel');
    expect(plan.request.sharing).toBe(false);
    expect(moves(plan).filter((r) => r.copy !== undefined)).toEqual([]);
    expect(plan.assumptions.join(' ')).toMatch(
      /by AutoParallel's formula, one mesh dim after another, at each use/,
    );
  });

  test('the program runs the listed collectives and computes what the unsharded one does', async () => {
    const graph = load('torch/mlp/joint.expanded');
    const plan = await planFor(graph, 'x=2,y=2', {
      cost: 'autoparallel',
      objective: 'parameter-memory',
    });
    expect(
      moves(plan).some((r) => r.executedSeconds !== r.seconds && r.collectives.length > 0),
    ).toBe(true);
    const { mismatches, collectives } = verify(graph, plan, { table: TABLE });
    expect(mismatches).toEqual([]);
    expect(Object.values(collectives).reduce((a, b) => a + b, 0)).toBeGreaterThan(0);
  });
});

test.each(['alpha-beta', 'nccl', 'dtensor'])(
  '%s has one figure for a redistribution',
  async (cost) => {
    const plan = await planned(cost);
    expect(plan.objective).not.toHaveProperty('executedCommunicationSeconds');
    for (const r of moves(plan)) expect(r).not.toHaveProperty('executedSeconds');
    expect(plan.request.sharing).toBe(true);
  },
);
