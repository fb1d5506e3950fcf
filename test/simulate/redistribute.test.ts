import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { alphaBeta } from '../../src/cost/collectives/alpha-beta.ts';
import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { dtensorModel } from '../../src/cost/presets/dtensor.ts';
import { GreedyPlanner } from '../../src/cost/redistribution/greedy.ts';
import type { RedistributionPlan } from '../../src/cost/redistribution/plan.ts';
import { Redistributor } from '../../src/cost/redistribution/redistribute.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { MaskPartial } from '../../src/mesh/placements/partials/mask-partial.ts';
import { Pending } from '../../src/mesh/placements/partials/pending.ts';
import { REPLICATE } from '../../src/mesh/placements/replicate.ts';
import { Cut } from '../../src/mesh/placements/shards/cut.ts';
import { Shard } from '../../src/mesh/placements/shards/shard.ts';
import { Sharding } from '../../src/mesh/sharding/sharding.ts';
import { ShardingSpace } from '../../src/mesh/sharding/space.ts';
import { random, scatter, type Tile, type VirtualTensor } from '../../src/simulate/ranks/shards.ts';
import { executePlan } from '../support/execute-redistribution.ts';
import { FULL } from '../support/full.ts';
import { gather } from '../support/gather-shards.ts';

const cluster = loadCluster('dgx-h100');

function setup(sizes: readonly number[]) {
  const mesh = parseMesh(sizes.map((n, i) => `m${i}=${n}`).join(','));
  const space = new ShardingSpace(mesh);
  const model = alphaBeta(cluster, mesh);
  return {
    mesh,
    space,
    merged: new Redistributor(space, model),
    single: new Redistributor(space, model, { merge: false }),
    greedy: new GreedyPlanner(space, dtensorModel(mesh)),
  };
}
type World = ReturnType<typeof setup>;

/**
 * Whole numbers of at least 1, so that every reduction of every kind is exact (norms but for
 * rounding).
 */
function values(shape: readonly number[]): Float64Array {
  const next = random(7);
  return Float64Array.from(
    { length: shape.reduce((n, d) => n * d, 1) },
    () => 1 + Math.floor(next() * 1000),
  );
}

const equal = (a: Float64Array, b: Float64Array, tolerance: number): boolean =>
  a.length === b.length && a.every((x, i) => Math.abs(x - b[i]) <= tolerance * Math.abs(b[i]));

/**
 * Runs a plan on real operands: after every step the shards must stand for the same global tensor,
 * at the end they must be what the target sharding says, and the collectives must be those that
 * were priced, with the bytes that were priced.
 */
function check(
  world: World,
  plan: RedistributionPlan,
  shape: readonly number[],
  exactBytes: boolean,
): void {
  const { space } = world;
  const data = values(shape);
  // Roots and thirds are rounded, everything else is exact.
  const rounded = /Norm|avg/.test(space.text(plan.from) + space.text(plan.to));
  const tolerance = rounded ? 1e-12 : 0;
  const start = scatter(space, plan.from, shape, data);
  const { shards, collectives } = executePlan(plan, start, (step, after) => {
    if (!equal(gather(after), data, tolerance))
      throw new Error(`${plan.text}: wrong after ${step.kind} to ${space.text(step.to)}`);
  });
  expect(shards.sharding).toBe(plan.to);
  if (!space.isPartial(plan.to)) {
    const wanted = scatter(space, plan.to, shape, data).tiles;
    shards.tiles.forEach((tile, rank) => {
      const sameShape = tile.shape.join() === wanted[rank].shape.join();
      if (!sameShape || !equal(tile.data, wanted[rank].data, tolerance))
        throw new Error(
          `${plan.text}: rank ${rank} holds ${tile.data.join()}, not ${wanted[rank].data.join()}`,
        );
    });
  }
  const priced = plan.steps.filter(
    (s) => !['slice', 'to_partial', 'relabel'].includes(s.kind) && s.groupSize > 1,
  );
  expect(collectives.length).toBe(plan.collectives);
  expect(collectives.map((c) => [c.kind, c.meshDims, c.groupSize])).toEqual(
    priced.map((s) => [s.kind, s.meshDims, s.groupSize]),
  );
  if (exactBytes)
    expect(collectives.map((c) => c.elements * 4)).toEqual(priced.map((s) => s.bytes));
}

const MESHES = [[4], [2, 4], [2, 2, 2]];
const SHAPES = [
  [8, 16],
  [8, 8, 8],
  [7, 5],
  [3, 10],
  [9, 4, 5],
  [1, 13],
];

describe('plans executed on virtual shards', () => {
  for (const sizes of MESHES) {
    const world = setup(sizes);
    for (const shape of SHAPES) {
      test(`all pairs on (${sizes.join(', ')}), [${shape.join(', ')}]${FULL ? '' : ', sampled'}`, () => {
        const { space } = world;
        const ids = space.enumerate(shape.length, { partialOps: ['sum'], orders: true });
        const pairs = ids.length ** 2;
        // A stride that meets every source and target, prime to the number of pairs.
        const stride = FULL ? 1 : Math.max(1, Math.floor(pairs / 30)) | 1;
        let ran = 0;
        for (let i = 0; i < pairs; i += stride) {
          const from = ids[Math.floor(i / ids.length)];
          const to = ids[i % ids.length];
          const type = { shape, itemBytes: 4 };
          const seen = new Set<string>();
          const run = (plan: RedistributionPlan, exactBytes: boolean): void => {
            if (!seen.has(plan.text)) check(world, plan, shape, exactBytes);
            seen.add(plan.text);
            ran++;
          };
          for (const planner of [world.merged, world.single]) {
            const plan = planner.plan(type, from, to);
            if (plan === undefined) expect(planner.refusal(from, to)).toContain('refused');
            else run(plan, true);
          }
          // PyTorch's own plans are plans too.
          if (!space.get(from).inMeshOrder || !space.get(to).inMeshOrder) continue;
          const greedy = world.greedy.plan(type, from, to);
          if (greedy !== undefined) run(greedy, false);
        }
        expect(ran).toBeGreaterThan(10);
      }, 600_000);
    }
  }

  test('every kind of pending reduction, alone and on top of cuts', () => {
    const world = setup([2, 3]);
    const kinds = [
      'P(sum)',
      'P(avg)',
      'P(max)',
      'P(min)',
      'P(product)',
      'P(band)',
      'P(bor)',
      'P(bxor)',
    ];
    const norms = [
      '_NormP(2)',
      '_NormP(3)',
      '_NormP(1)',
      '_NormP(inf)',
      '_NormP(-inf)',
      '_NormP(0)',
    ];
    const shape = [7, 6];
    let refused = 0;
    for (const [k, kind] of [...kinds, ...norms].entries()) {
      const sources = [`${kind}R`, `R${kind}`, `${kind}${kind}`, `S(0)${kind}`, `${kind}S(1)`];
      const targets = [
        'RR',
        'S(0)S(1)',
        'S(0)S(0)',
        `R${kind}`,
        `${kind}R`,
        `${kind}S(0)`,
        'S(1)R',
      ];
      if (kind === 'P(sum)') sources.push('P(sum)P(avg)', 'P(avg)P(sum)');
      for (const [i, a] of sources.entries())
        for (const [j, b] of targets.entries()) {
          // Every third change of each kind, other ones of the next.
          if (!FULL && (i * targets.length + j + k) % 3 !== 0) continue;
          const from = world.space.parse(a);
          const to = world.space.parse(b);
          for (const planner of [world.merged, world.single]) {
            const plan = planner.plan({ shape, itemBytes: 4 }, from, to);
            if (plan === undefined) {
              expect(planner.refusal(from, to)).toMatch(/is refused: on mesh dim 'm\d'/);
              refused++;
              continue;
            }
            check(world, plan, shape, true);
          }
        }
    }
    expect(refused).toBeGreaterThan(0);
  });

  test('cuts that are not ceil chunks go through R, or by permutation', () => {
    const world = setup([2, 2]);
    const { space } = world;
    const texts = [
      '_S(0, 3)R',
      'R_S(0, 3)',
      '_S(0, 3)S(0)',
      'S(0)_S(0, 2)',
      '_S(0, 3)_S(1, 2)',
      '_S(0, 3)P(sum)',
      'Ragged(0, [2, 1], 4)R',
      'RRagged(0, [2, 1], 4)',
      'Ragged(0, [3, 0], 4)S(1)',
      'Interleaved(0, [8, 2, 2])R',
      'S(0)S(0)',
      'S(0)[1]S(0)[0]',
      'RS(1)',
      'RR',
    ];
    const shape = [12, 8];
    const ids = texts.map((t) => space.parse(t));
    for (const from of ids)
      for (const to of ids)
        for (const planner of [world.merged, world.single]) {
          const plan = planner.plan({ shape, itemBytes: 4 }, from, to);
          if (plan === undefined) expect(planner.refusal(from, to)).toContain('-> R, then R ->');
          else check(world, plan, shape, true);
        }
    const swap = world.merged.plan(
      { shape, itemBytes: 4 },
      space.parse('_S(0, 3)R'),
      space.parse('R_S(0, 3)'),
    );
    expect(swap?.steps.map((s) => s.kind)).toEqual(['collective_permute']);
    const far = world.single.plan(
      { shape, itemBytes: 4 },
      space.parse('_S(0, 3)R'),
      space.parse('RS(0)'),
    );
    expect(far?.text).toBe('_S(0, 3)R->RR->RS(0)');
    const units = space.parse('Ragged(0, [2, 1], 4)R');
    expect(() =>
      world.merged.plan({ shape: [13, 8], itemBytes: 4 }, units, space.replicated),
    ).toThrow(/does not fit \[13, 8\]: mesh dim 'm0': .*12 rows in all, the dim has 13/);
  });

  test('kinds that somebody adds: cuts by way of R, reductions as they say', () => {
    /** Rows dealt like cards. */
    class Dealt extends Cut {
      readonly kind = 'dealt';
      get text(): string {
        return `Dealt(${this.dim})`;
      }
      split(size: number, n: number): number[][] {
        return Array.from({ length: n }, (_, r) =>
          Array.from({ length: size }, (__, i) => i).filter((i) => i % n === r),
        );
      }
      withDim(dim: number): Dealt {
        return new Dealt(dim);
      }
    }
    /** The operand of largest size, with its sign. */
    class Farthest extends Pending {
      readonly kind = 'farthest';
      readonly text = 'Far';
      reduce(operands: readonly number[]): number {
        return operands.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a), 0);
      }
      operand(value: number, rank: number): number {
        return rank === 0 ? value : value / 2;
      }
    }
    const world = setup([2, 3]);
    const R = REPLICATE;
    const ids = [
      [new Dealt(0), R],
      [R, new Dealt(0)],
      [new Dealt(1), Shard.of(1)],
      [new Dealt(0), new Farthest()],
      [new Farthest(), new Farthest()],
      [R, new Farthest()],
      [Shard.of(0), new Dealt(0)],
      [Shard.of(0), Shard.of(0)],
      [R, R],
    ].map((placements) => world.space.intern(new Sharding(placements)));
    let ran = 0;
    for (const from of ids)
      for (const to of ids)
        for (const planner of [world.merged, world.single]) {
          const plan = planner.plan({ shape: [7, 5], itemBytes: 4 }, from, to);
          if (plan === undefined) continue;
          check(world, plan, [7, 5], true);
          ran++;
        }
    expect(ran).toBeGreaterThan(100);
    const both = world.merged.plan({ shape: [7, 5], itemBytes: 4 }, ids[4], world.space.replicated);
    expect(both?.steps.map((s) => [s.kind, s.meshDims])).toEqual([['all_reduce', [0, 1]]]);
    expect(world.single.plan({ shape: [7, 5], itemBytes: 4 }, ids[0], ids[1])?.text).toBe(
      'Dealt(0)R->RR->RDealt(0)',
    );
  });

  test('mesh dims of one device carry nothing', () => {
    const world = setup([4, 1]);
    const one = setup([1, 1]);
    for (const [{ space, merged }, w] of [
      [world, world],
      [one, one],
    ] as const)
      for (const from of space.enumerate(2, { partialOps: ['sum', 'max'], orders: true }))
        for (const to of space.enumerate(2, { partialOps: ['sum', 'max'], orders: true })) {
          const plan = merged.plan({ shape: [7, 6], itemBytes: 4 }, from, to);
          if (plan === undefined) continue;
          check(w, plan, [7, 6], true);
          if (w === one) expect(plan.collectives).toBe(0);
        }
  });

  test('random meshes, shapes and placements', () => {
    const worlds = [[3], [2, 3], [4, 2], [2, 1, 3], [2, 2, 2]].map(setup);
    fc.assert(
      fc.property(
        fc.nat(worlds.length - 1),
        fc.array(fc.integer({ min: 1, max: 13 }), { minLength: 1, maxLength: 3 }),
        fc.nat(),
        fc.nat(),
        (w, shape, a, b) => {
          const world = worlds[w];
          const ids = world.space.enumerate(shape.length, {
            partialOps: ['sum', 'avg'],
            orders: true,
          });
          const plan = world.merged.plan(
            { shape, itemBytes: 4 },
            ids[a % ids.length],
            ids[b % ids.length],
          );
          if (plan !== undefined) check(world, plan, shape, true);
        },
      ),
      { numRuns: FULL ? 3000 : 100 },
    );
  });
});

describe('a masked lookup', () => {
  test('indices are masked and shifted locally, masked rows are 0 in the reduction, the value is read twice', () => {
    const { space, mesh, merged } = setup([4]);
    const placement = new MaskPartial([16, 8], 0);
    const lookup = space.intern(new Sharding([placement]));
    const indices = Float64Array.from([9, 0, 15, 4, 9]);
    const plan = merged.plan({ shape: [5], itemBytes: 8 }, space.replicated, lookup);
    if (plan === undefined) throw new Error('indices become a lookup');
    expect(plan.collectives).toBe(0);
    expect(plan.seconds).toBe(0);
    const masked = executePlan(plan, scatter(space, space.replicated, [5], indices)).shards.tiles;
    // Rank 2 holds table rows 8 to 11: index 9 is its row 1.
    expect([...masked[2].data]).toEqual([1, 0, 0, 0, 1]);
    expect([...(masked[2].masked ?? [])]).toEqual([0, 1, 1, 1, 0]);

    const table = values([16, 8]);
    const parts = scatter(space, space.parse('S(0)'), [16, 8], table).tiles;
    const tiles = masked.map((tile, rank): Tile => {
      const data = new Float64Array(5 * 8);
      const rows = new Uint8Array(5 * 8);
      tile.data.forEach((row, i) => {
        data.set(parts[rank].data.subarray(row * 8, row * 8 + 8), i * 8);
        rows.fill(tile.masked?.[i] ?? 0, i * 8, i * 8 + 8);
      });
      return { shape: [5, 8], data, masked: rows };
    });
    const rows: VirtualTensor = { space, sharding: lookup, shape: [5, 8], tiles };
    const wanted = Float64Array.from(
      [...indices].flatMap((i) => [...table.subarray(i * 8, i * 8 + 8)]),
    );
    for (const to of ['R', 'R', 'S(0)', 'S(1)']) {
      const reduce = merged.plan({ shape: [5, 8], itemBytes: 4 }, lookup, space.parse(to));
      if (reduce === undefined) throw new Error(`a lookup reduces to ${to}`);
      expect(gather(executePlan(reduce, rows).shards)).toEqual(wanted);
    }
    expect(mesh.size).toBe(4);
  });

  test('only indices become a lookup', () => {
    const { space, merged } = setup([2, 2]);
    const type = { shape: [8, 8], itemBytes: 4 };
    const refused = (from: string, to: string): string => {
      expect(merged.plan(type, space.parse(from), space.parse(to))).toBeUndefined();
      expect(merged.seconds(type, space.parse(from), space.parse(to))).toBe(Infinity);
      return merged.refusal(space.parse(from), space.parse(to)) ?? '';
    };
    expect(refused('P(sum)R', 'RMaskP(sum, [16, 8], 0)')).toContain(
      'only indices that nothing is pending on',
    );
    expect(refused('RR', 'MaskP(sum, [16, 8], 0)MaskP(sum, [16, 8], 0)')).toContain(
      'with another masked lookup',
    );
    expect(refused('S(0)R', 'MaskP(sum, [16, 8], 0)R')).toContain(
      'S(0) -> R, then R -> MaskP(sum, [16, 8], 0)',
    );
    expect(refused('RR', 'P(product)R')).toContain('equal values are not its operands');
  });
});

describe('scattering and gathering', () => {
  test('operands of a pending reduction are not the value', () => {
    const { space } = setup([4]);
    const data = values([6]);
    for (const kind of ['P(sum)', 'P(avg)', 'P(bxor)', '_NormP(2)']) {
      const { tiles } = scatter(space, space.parse(kind), [6], data);
      expect(tiles.every((t) => !equal(t.data, data, 1e-9))).toBe(true);
    }
  });

  test('shards that disagree, miss elements or have a wrong shape are found', () => {
    const { space } = setup([2, 2]);
    const data = values([4, 4]);
    const good = scatter(space, space.parse('S(0)R'), [4, 4], data);
    expect(gather(good)).toEqual(data);
    const broken = (change: (tiles: Tile[]) => void): VirtualTensor => {
      const tiles = good.tiles.map((t) => ({ ...t, data: t.data.slice() }));
      change(tiles);
      return { ...good, tiles };
    };
    expect(() => gather(broken((t) => (t[1].data[3] += 1)))).toThrow(/ranks disagree on element 3/);
    expect(() => gather(broken((t) => (t[2] = { shape: [4, 2], data: t[2].data })))).toThrow(
      /rank 2 holds \[4, 2\]/,
    );
    expect(() => scatter(space, space.parse('S(2)R'), [4, 4], data)).toThrow(
      /cuts dim 2 of a 2-D tensor/,
    );
    expect(() => scatter(space, 0, [4, 5], data)).toThrow(/20 elements, the data 16/);
  });

  test('a plan wants the shards that it starts from', () => {
    const { space, merged } = setup([2]);
    const plan = merged.plan({ shape: [4], itemBytes: 4 }, space.parse('S(0)'), space.replicated);
    if (plan === undefined) throw new Error('no plan');
    expect(() => executePlan(plan, scatter(space, space.replicated, [4], values([4])))).toThrow(
      /starts from S\(0\)/,
    );
  });
});
