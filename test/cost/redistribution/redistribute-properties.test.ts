import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { alphaBeta } from '../../../src/cost/collectives/alpha-beta.ts';
import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import type { RedistributionPlan } from '../../../src/cost/redistribution/plan.ts';
import { Redistributor } from '../../../src/cost/redistribution/redistribute.ts';
import { type DeviceMesh, parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { heldRows, type Sharding } from '../../../src/mesh/sharding/sharding.ts';
import { ShardingSpace } from '../../../src/mesh/sharding/space.ts';
import { FULL } from '../../support/full.ts';

const cluster = loadCluster('dgx-h100');

function setup(sizes: readonly number[]) {
  const mesh = parseMesh(sizes.map((n, i) => `m${i}=${n}`).join(','));
  const space = new ShardingSpace(mesh);
  return { mesh, space, planner: new Redistributor(space, alphaBeta(cluster, mesh)) };
}

/** Element numbers of the global tensor that each rank holds. */
function held(sharding: Sharding, mesh: DeviceMesh, shape: readonly number[]): Set<number>[] {
  const rows = shape.map((size, d) => heldRows(sharding, mesh, d, size));
  return mesh.devices.map((_, rank) => {
    let out = [0];
    shape.forEach((size, d) => {
      out = out.flatMap((base) => rows[d][rank].map((i) => base * size + i));
    });
    return new Set(out);
  });
}

/**
 * Runs a plan on sets of elements: after every step each rank must hold what its sharding says,
 * made from what its group held before; a reduction must cover exactly the mesh dims that stop
 * being pending.
 */
function check(
  plan: RedistributionPlan,
  space: ShardingSpace,
  mesh: DeviceMesh,
  shape: readonly number[],
): void {
  let before = space.get(plan.from);
  for (const step of plan.steps) {
    const after = space.get(step.to);
    const has = held(before, mesh, shape);
    const needs = held(after, mesh, shape);
    const where = `${plan.text} at ${step.kind} to ${after.text}`;
    const fallen = mesh.sizes
      .map((_, m) => m)
      .filter(
        (m) => before.placements[m].kind === 'partial' && after.placements[m].kind !== 'partial',
      );
    const reduces = step.kind === 'all_reduce' || step.kind === 'reduce_scatter';
    if (step.kind !== 'relabel')
      expect(fallen, where).toEqual(reduces ? [...step.meshDims].sort() : []);
    expect(mesh.sizeOf(step.meshDims)).toBe(step.groupSize);
    for (const group of mesh.groups(step.meshDims)) {
      const union = new Set(group.flatMap((r) => [...has[r]]));
      const tile = (s: Set<number>): string => [...s].sort((a, b) => a - b).join(',');
      for (const r of group) {
        // Ranks of a local step and of a reduction need nothing that they do not hold themselves.
        const local = reduces || ['slice', 'to_partial', 'relabel'].includes(step.kind);
        const source = local ? has[r] : union;
        const absent = [...needs[r]].filter((e) => !source.has(e));
        if (absent.length > 0)
          throw new Error(`${where}: rank ${r} cannot get ${absent.join(', ')}`);
      }
      if (step.kind !== 'collective_permute') continue;
      // One to one: what the group wants is what it has, in another order.
      const wanted = group.map((r) => tile(needs[r])).sort();
      expect(wanted, where).toEqual(group.map((r) => tile(has[r])).sort());
    }
    before = after;
  }
  expect(before.text).toBe(space.text(plan.to));
}

const MESHES = [[4], [2, 4], [3, 2], [2, 2, 2], [2, 3, 2], [4, 1], [2, 1, 2]];
const SHAPES = [[24, 12], [12, 24, 12], [7, 5], [5, 12, 3], [1, 24], [24]];

const problems = fc.record({
  mesh: fc.constantFrom(...MESHES),
  shape: fc.constantFrom(...SHAPES),
  picks: fc.tuple(fc.nat(), fc.nat(), fc.nat()),
});

describe('redistributions on random meshes', () => {
  const worlds = new Map(MESHES.map((sizes) => [sizes.join(), setup(sizes)]));
  const world = (sizes: readonly number[]) => {
    const found = worlds.get(sizes.join());
    if (found === undefined) throw new Error('no such mesh');
    return found;
  };

  test('plans do what they say, and cost the sum of their steps', () => {
    fc.assert(
      fc.property(problems, ({ mesh: sizes, shape, picks }) => {
        const { mesh, space, planner } = world(sizes);
        const ids = space.enumerate(shape.length, { partialOps: ['sum', 'avg'], orders: true });
        const [from, to] = picks.map((p) => ids[p % ids.length]);
        const type = { shape, itemBytes: 4 };
        const plan = planner.plan(type, from, to);
        const seconds = planner.seconds(type, from, to);
        if (plan === undefined) {
          expect(seconds).toBe(Infinity);
          expect(planner.refusal(from, to)).toBeDefined();
          return;
        }
        expect(plan.seconds).toBeCloseTo(seconds, 14);
        expect(plan.steps.reduce((sum, s) => sum + s.seconds, 0)).toBe(plan.seconds);
        expect(plan.text.startsWith(space.get(from).orderedText)).toBe(true);
        expect(plan.text.endsWith(space.get(to).orderedText)).toBe(true);
        check(plan, space, mesh, shape);
      }),
      { numRuns: FULL ? 800 : 150 },
    );
  });

  test('triangle inequality wherever the direct change is allowed', () => {
    fc.assert(
      fc.property(problems, ({ mesh: sizes, shape, picks }) => {
        const { space, planner } = world(sizes);
        const ids = space.enumerate(shape.length, { partialOps: ['sum', 'max'], orders: true });
        const [a, b, c] = picks.map((p) => ids[p % ids.length]);
        if (planner.refusal(a, c) !== undefined) return;
        const type = { shape, itemBytes: 2 };
        const detour = planner.seconds(type, a, b) + planner.seconds(type, b, c);
        expect(planner.seconds(type, a, c)).toBeLessThanOrEqual(detour);
      }),
      { numRuns: FULL ? 3000 : 400 },
    );
  });

  test('a matrix holds the seconds of single questions, whatever else was asked before', () => {
    const sizes = [2, 4, 2];
    const { space, planner } = setup(sizes);
    const ids = Int32Array.from(space.enumerate(3, { partialOps: ['sum'] }));
    for (const shape of [
      [64, 32, 16],
      [64, 20, 20],
      [1, 64, 30],
    ]) {
      const type = { shape, itemBytes: 2 };
      const matrix = planner.matrix(type, ids, ids);
      const fresh = setup(sizes);
      for (let i = 0; i < ids.length; i += 7)
        for (let j = 0; j < ids.length; j += 5) {
          const from = fresh.space.parse(space.text(ids[i]));
          const to = fresh.space.parse(space.text(ids[j]));
          expect(matrix[i * ids.length + j]).toBe(fresh.planner.seconds(type, from, to));
        }
    }
  });

  test('merging never costs more than going mesh dim by mesh dim', () => {
    const { mesh, space, planner } = setup([2, 2, 2]);
    const single = new Redistributor(space, alphaBeta(cluster, mesh), { merge: false });
    const ids = space.enumerate(2, { partialOps: ['sum'] });
    const type = { shape: [64, 24], itemBytes: 4 };
    const merged = planner.matrix(type, ids, ids);
    single
      .matrix(type, ids, ids)
      .forEach((seconds, i) => expect(merged[i]).toBeLessThanOrEqual(seconds));
  });
});

describe('the default model', () => {
  test('mesh dims of one device never communicate', () => {
    const { space, planner } = setup([4, 1]);
    const type = { shape: [64, 64], itemBytes: 4 };
    for (const [from, to] of [
      ['RS(0)', 'RR'],
      ['RS(0)', 'RP(sum)'],
      ['RP(sum)', 'RP(max)'],
      ['S(0)S(0)', 'S(0)R'],
      ['S(0)S(0)', 'S(0)S(1)'],
    ]) {
      const plan = planner.plan(type, space.parse(from), space.parse(to));
      expect(plan?.seconds, `${from} -> ${to}`).toBe(0);
      expect(plan?.collectives).toBe(0);
      expect(plan?.steps.map((s) => s.kind)).toEqual(['relabel']);
    }
    const plan = planner.plan(type, space.parse('S(0)S(1)'), space.parse('RR'));
    expect(plan?.collectives).toBe(1);
    const one = setup([1, 1]);
    for (const id of one.space.enumerate(2, { partialOps: ['sum'] }))
      expect(one.planner.seconds(type, id, one.space.replicated)).toBe(0);
  });

  test('bytes are those of padded pieces', () => {
    const { space, planner } = setup([4]);
    const plan = planner.plan(
      { shape: [10, 10], itemBytes: 4 },
      space.parse('S(0)'),
      space.parse('R'),
    );
    // Four chunks of three rows travel, ten rows remain.
    expect(plan?.steps[0].bytes).toBe(12 * 10 * 4);
    expect(plan?.peakBytes).toBe(400);
  });

  test('a gather along an inner dim pays for putting the pieces together, unless the outer dims are one', () => {
    const { space, planner } = setup([8]);
    const seconds = (shape: number[], dim: number): number =>
      planner.seconds({ shape, itemBytes: 2 }, space.parse(`S(${dim})`), space.replicated);
    const copy = (2 * 256 * 256 * 2) / (3350e9 * 0.8);
    expect(seconds([256, 256], 1) - seconds([256, 256], 0)).toBeCloseTo(copy, 14);
    expect(seconds([1, 256, 256], 1)).toBe(seconds([256, 256], 0));
    // For large tensors it is cheaper to exchange to dim 0 first; the planner finds that.
    expect(seconds([4096, 4096], 1) - seconds([4096, 4096], 0)).toBeLessThan(256 * copy);
  });

  test('strided cuts go through R and stay where they are wanted', () => {
    const { space, planner } = setup([2, 2]);
    const type = { shape: [24, 8], itemBytes: 4 };
    const strided = space.parse('_S(0, 3)R');
    expect(planner.plan(type, strided, space.parse('S(1)R'))?.text).toBe('_S(0, 3)R->RR->S(1)R');
    expect(planner.plan(type, space.replicated, strided)?.collectives).toBe(0);
    expect(planner.seconds(type, strided, strided)).toBe(0);
    const both = planner.plan(type, space.parse('_S(0, 3)P(sum)'), space.parse('_S(0, 3)R'));
    expect(both?.steps.map((s) => s.kind)).toEqual(['all_reduce']);
  });

  test('sizes count where pieces are not ceil chunks, whatever was priced before', () => {
    const { space, planner } = setup([2]);
    const strided = space.parse('_S(0, 3)');
    const bytes = (shape: number[]): number | undefined =>
      planner.plan({ shape, itemBytes: 4 }, strided, space.replicated)?.steps[0].bytes;
    // Equal totals, both dims even: 12 rows leave 6 on a rank; 8 rows in chunks of 3, 3 and 2 leave
    // 2 + 2 + 1.
    expect(bytes([12, 8])).toBe(2 * 6 * 8 * 4);
    expect(bytes([8, 12])).toBe(2 * 5 * 12 * 4);
  });

  test('a reduction on a mesh dim of one device gives way to one that is really pending', () => {
    const { space, planner } = setup([4, 1]);
    const plan = planner.plan(
      { shape: [8], itemBytes: 4 },
      space.parse('RP(max)'),
      space.parse('P(sum)R'),
    );
    expect(plan?.collectives).toBe(0);
    expect(plan?.steps.at(-1)?.to).toBe(space.parse('P(sum)R'));
  });

  test('the same question has the same answer, another type another one', () => {
    const { space, planner } = setup([2, 2, 2]);
    const [from, to] = [space.parse('S(0)S(1)S(0)'), space.parse('RS(0)S(1)')];
    const first = planner.plan({ shape: [64, 32], itemBytes: 4 }, from, to);
    expect(planner.plan({ shape: [64, 32], itemBytes: 4 }, from, to)).toBe(first);
    // 64 x 32 and 32 x 64 divide evenly and are equally large: one question. 4-byte and 2-byte
    // items are two.
    expect(planner.plan({ shape: [32, 64], itemBytes: 4 }, from, to)).toBe(first);
    expect(planner.plan({ shape: [64, 32], itemBytes: 2 }, from, to)).not.toBe(first);
  });

  test('a dim that the tensor lacks is an error', () => {
    const { space, planner } = setup([2]);
    expect(() => planner.seconds({ shape: [4], itemBytes: 4 }, space.parse('S(1)'), 0)).toThrow(
      /cuts dim 1 of a 1-D/,
    );
  });
});
