import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { describe, expect, test } from 'vitest';

import { dtensorModel } from '../../../src/cost/presets/dtensor.ts';
import { GreedyPlanner, greedySteps, stepKind } from '../../../src/cost/redistribution/greedy.ts';
import { Redistributor } from '../../../src/cost/redistribution/redistribute.ts';
import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { parseSharding } from '../../../src/mesh/sharding/parse.ts';
import { localShape } from '../../../src/mesh/sharding/sharding.ts';
import { ShardingSpace } from '../../../src/mesh/sharding/space.ts';
import { mergeAsDTensor } from '../../support/merge-as-dtensor.ts';

/** `S0S1`, `P S0 P`, `S0R` of the tables to the printed form. */
function spec(short: string): string {
  return short.replaceAll(' ', '').replaceAll(/S(\d)/g, 'S($1)').replaceAll('P', 'P(sum)');
}
function setup(sizes: readonly number[], devicesPerHost = 8) {
  const mesh = parseMesh(sizes.map((n, i) => `m${i}=${n}`).join(','));
  const space = new ShardingSpace(mesh);
  const planner = new GreedyPlanner(space, dtensorModel(mesh, devicesPerHost));
  const plan = (from: string, to: string, shape: readonly number[]) => {
    const found = planner.plan({ shape, itemBytes: 4 }, space.parse(from), space.parse(to));
    if (found === undefined) throw new Error(`refused: ${from} -> ${to}`);
    return found;
  };
  return { mesh, space, planner, plan };
}
const micro = (seconds: number): number => seconds * 1e6;

describe('the greedy planner of DTensor', () => {
  test.each([
    [8, [49.7734, 16.6717, 92.9468, 49.7734]],
    [4, [41.8058, 17.7514, 77.0116, 41.8058]],
    [2, [29.4705, 19.3353, 52.341, 29.4705]],
    [16, [236.9056, 59.9629, 467.2112, 236.9056]],
  ])('4 MiB on n = %i', (n, expected) => {
    const { plan } = setup([n]);
    const pairs = [
      ['S(0)', 'R'],
      ['S(0)', 'S(1)'],
      ['P(sum)', 'R'],
      ['P(sum)', 'S(0)'],
    ];
    pairs.forEach(([from, to], i) =>
      expect(micro(plan(from, to, [1024, 1024]).seconds)).toBeCloseTo(expected[i], 3),
    );
  });

  test('uneven 10 x 10 keeps fractional bytes', () => {
    const { plan, planner, space } = setup([4]);
    expect(micro(plan('S(0)', 'R', [10, 10]).seconds)).toBeCloseTo(8.403186, 6);
    expect(micro(plan('S(0)', 'S(1)', [10, 10]).seconds)).toBeCloseTo(9.400796, 6);
    expect(micro(plan('P(sum)', 'R', [10, 10]).seconds)).toBeCloseTo(10.206372, 6);
    expect(micro(plan('P(sum)', 'S(0)', [10, 10]).seconds)).toBeCloseTo(8.403186, 6);
    expect(plan('R', 'S(0)', [10, 10]).seconds).toBe(0);
    expect(plan('R', 'P(sum)', [10, 10]).seconds).toBe(0);
    const type = { shape: [10, 10], itemBytes: 4 };
    expect(planner.seconds(type, space.parse('S(0)'), space.parse('P(sum)'))).toBe(Infinity);
    expect(planner.seconds(type, space.parse('P(sum)'), space.parse('P(avg)'))).toBe(Infinity);
  });

  test.each<[number[], number[], string, string, number]>([
    [[2, 2], [8, 8], 'S0S0', 'RR', 14.402],
    [[2, 2], [8, 8], 'PP', 'RR', 15.6054],
    [[2, 2], [8, 8], 'PP', 'S0S0', 14.402],
    [[2, 2], [8, 8], 'S0S1', 'S1S0', 15.4014],
    [[2, 2], [8, 8], 'S0S0', 'S1S1', 15.4014],
    [[2, 2], [8, 8], 'S0P', 'RS0', 15.0027],
    [[2, 2], [8, 8], 'S0S0', 'RS0', 14.402],
    [[2, 2], [8, 8], 'S0S0', 'S0R', 7.2007],
    [[2, 2, 2], [8, 8, 8], 'S0S0S0', 'S1S1S1', 22.6136],
    [[2, 2, 2], [8, 8, 8], 'PPP', 'RS0R', 22.8435],
    [[2, 2, 2], [8, 8, 8], 'S1S0S0', 'RS0S0', 7.2027],
    [[2, 2, 2], [8, 8, 8], 'PS0P', 'RRR', 22.8435],
    [[2, 2, 2], [8, 8, 8], 'PRP', 'RRR', 15.6435],
    [[2, 2], [4096, 4096], 'S0S0', 'S1S1', 371.7284],
    [[2, 2], [4096, 4096], 'PP', 'RR', 1440.9136],
    [[2, 2], [4096, 4096], 'S0S1', 'S1S0', 371.7284],
  ])('on %j, %j: %s -> %s', (sizes, shape, from, to, expected) => {
    expect(micro(setup(sizes).plan(spec(from), spec(to), shape).seconds)).toBeCloseTo(expected, 3);
  });

  test.each([
    [[2, 2], 'S0S1', 'S1S0', 'S(0)S(1)->S(0)R->S(1)R->S(1)S(0)'],
    [[2, 2], 'S0P', 'RS0', 'S(0)P(sum)->S(0)R->RR->RS(0)'],
    [
      [2, 2, 2],
      'S0S0S0',
      'S1S1S1',
      'S(0)[0]S(0)[1]S(0)[2]->S(0)[0]S(0)[1]R->S(0)RR->S(1)RR->S(1)[0]S(1)[1]R->S(1)[0]S(1)[1]S(1)[2]',
    ],
  ])('trace on %j: %s -> %s', (sizes, from, to, text) => {
    expect(setup(sizes).plan(spec(from), spec(to), [8, 8, 8]).text).toBe(text);
  });

  test.each<[number[], string, string, number]>([
    [[2, 2], 'S0S1', 'S0S0', 1],
    [[2, 2], 'S0S1', 'S1S0', 2],
    [[2, 2], 'S0S0', 'S1S1', 2],
    [[2, 2], 'S0S2', 'S1S0', 2],
    [[2, 2], 'S1S1', 'S1S2', 1],
    [[2, 2, 2], 'S0S0S0', 'S1S1S1', 3],
    [[2, 2, 2], 'S0S1S0', 'S1S0S0', 3],
    [[2, 2, 2], 'S0S1S2', 'S2S1S0', 2],
    [[2, 2, 2], 'S1S0S0', 'RS0S0', 1],
    [[2, 2, 2], 'S1RS0', 'RS0S0', 2],
    [[2, 2, 2], 'S0S0S1', 'S0S1S2', 2],
  ])('collectives on %j: %s -> %s', (sizes, from, to, count) => {
    expect(setup(sizes).plan(spec(from), spec(to), [8, 8, 8]).collectives).toBe(count);
  });

  test.each<[number[], string, string, Record<string, number>]>([
    [[4, 2], 'PP', 'RR', { all_reduce: 1 }],
    [[4, 2], 'PP', 'S0S0', { reduce_scatter: 1 }],
    [[4, 2], 'PP', 'S0S1', { reduce_scatter: 2 }],
    [[4, 2], 'S0S0', 'RR', { all_gather: 1 }],
    [[4, 2], 'S0S1', 'RR', { all_gather: 2 }],
    [[2, 2, 2], 'PPS0', 'S0S0S0', { reduce_scatter: 1, all_reduce: 1, all_gather: 1 }],
    [[2, 2, 2], 'PS0P', 'RRR', { all_reduce: 2, all_gather: 1 }],
    [[2, 2, 2], 'PRP', 'RRR', { all_reduce: 1 }],
  ])("DTensor's own merging on %j: %s -> %s", (sizes, from, to, expected) => {
    const { mesh } = setup(sizes);
    const steps = greedySteps(parseSharding(spec(from), mesh), parseSharding(spec(to), mesh), mesh);
    const counts: Record<string, number> = {};
    for (const { kind } of mergeAsDTensor(steps, mesh, [8, 8, 8]))
      if (kind !== 'slice' && kind !== undefined) counts[kind] = (counts[kind] ?? 0) + 1;
    expect(counts).toEqual(expected);
  });

  test('nothing merges over sub-meshes that were not flattened, nor scatters of uneven dims', () => {
    const { mesh } = setup([4, 2]);
    const steps = greedySteps(
      parseSharding('P(sum)P(sum)', mesh),
      parseSharding('S(0)S(0)', mesh),
      mesh,
    );
    expect(mergeAsDTensor(steps, mesh, [8, 8], () => false)).toHaveLength(2);
    expect(mergeAsDTensor(steps, mesh, [12, 8])).toHaveLength(2);
    expect(mergeAsDTensor(steps, mesh, [16, 8])).toHaveLength(1);
  });

  test('a mesh dim of one device is charged, but does not communicate', () => {
    const { plan } = setup([4, 1]);
    const gathered = plan('RS(0)', 'RR', [8, 8]);
    expect(gathered.collectives).toBe(0);
    expect(micro(gathered.seconds)).toBeCloseTo(6.6, 9);
  });

  test('other orders and kinds are not its business', () => {
    const { planner, space } = setup([2, 2]);
    const type = { shape: [8, 8], itemBytes: 4 };
    for (const text of ['S(0)[1]S(0)[0]', '_S(0, 3)R'])
      expect(() => planner.plan(type, space.parse(text), space.replicated)).toThrow(
        /knows S, R and P in mesh order/,
      );
  });
});

/** Placements of a matrix product that need no communication, on one mesh dim. */
const MM_RULES = [
  ['R', 'R'],
  ['S(0)', 'R'],
  ['R', 'S(1)'],
  ['S(1)', 'S(0)'],
  ['P(sum)', 'R'],
  ['R', 'P(sum)'],
];

/**
 * The cheapest way for DTensor to run a product of matrices: placements it goes to, and
 * microseconds.
 */
function select(
  sizes: readonly number[],
  shapes: readonly (readonly number[])[],
  inputs: readonly string[],
) {
  const { planner, space } = setup(sizes);
  let choices = MM_RULES.map((r) => [...r]);
  for (let m = 1; m < sizes.length; m++)
    choices = choices.flatMap((c) => MM_RULES.map((r) => c.map((text, i) => text + r[i])));
  let best = { micro: Infinity, to: '' };
  for (const choice of choices) {
    // Operands pending on both sides of a mesh dim are fine; pending sums of two kinds do not occur
    // here.
    const micro = choice.reduce(
      (sum, text, i) =>
        sum +
        1e6 *
          planner.seconds(
            { shape: shapes[i], itemBytes: 4 },
            space.parse(spec(inputs[i])),
            space.parse(text),
          ),
      0,
    );
    if (micro < best.micro) best = { micro, to: choice.join(',') };
  }
  return best;
}

describe('selection costs', () => {
  test.each([
    ['S0,S0', 8.4652],
    ['S0,S1', 8.4652],
    ['S0,P', 8.4652],
    ['S1,S1', 8.4652],
    ['S1,P', 8.4652],
    ['P,S0', 8.4652],
    ['P,S1', 8.4652],
    ['P,P', 10.3305],
    ['S0,R', 0],
    ['R,S0', 0],
    ['R,S1', 0],
    ['S1,S0', 0],
    ['S1,R', 0],
    ['R,R', 0],
    ['P,R', 0],
    ['R,P', 0],
  ])('64 x 32 @ 32 x 64 on 4: %s', (inputs, expected) => {
    expect(
      select(
        [4],
        [
          [64, 32],
          [32, 64],
        ],
        inputs.split(','),
      ).micro,
    ).toBeCloseTo(expected, 4);
  });

  test.each<[string, number[], number, string?]>([
    ['S0,S0', [8], 89.7468, 'S(1),S(0)'],
    ['S0,S1', [8], 311.03],
    ['S1,S1', [8], 221.2821],
    ['P,P', [8], 1262.15],
    ['S0R,S0R', [2, 4], 186.36, 'S(1)R,S(0)R'],
    ['S0S0,RS1', [2, 4], 275.65],
  ])('4096 x 4096 @ 4096 x 11008: %s on %j', (inputs, sizes, expected, to) => {
    const found = select(
      sizes,
      [
        [4096, 4096],
        [4096, 11008],
      ],
      inputs.split(','),
    );
    expect(found.micro).toBeCloseTo(expected, 2);
    if (to !== undefined) expect(found.to).toBe(to);
  });
});

type Row = [
  src: string,
  dst: string,
  plan: string,
  issued: string | null,
  at8: number | string,
  at1: number | string,
  graph: string | null,
];
type Oracle = Record<string, { mesh: number[]; shape: number[]; rows: Row[] }>;

const ORACLE = JSON.parse(
  gunzipSync(
    readFileSync(new URL('../../fixtures/oracle/redistribute.json.gz', import.meta.url)),
  ).toString(),
) as Oracle;

const long = (word: string): string =>
  word.startsWith('S') ? `S(${word.slice(1)})` : word.replace('Psum', 'P(sum)');
const short = (text: string): string => text.replaceAll(/[()]/g, '');

describe('against what torch 2.13 did', () => {
  test('the oracle has all 10,520 rows', () => {
    expect(Object.values(ORACLE).reduce((n, { rows }) => n + rows.length, 0)).toBe(10_520);
  });

  test.each(Object.entries(ORACLE))(
    '%s: greedy plans, what they run, and their cost',
    (_, { mesh, shape, rows }) => {
      const eight = setup(mesh, 8);
      const type = { shape, itemBytes: 4 };
      const ids = new Map<string, number>();
      const idOf = (words: string): number => {
        const text = words.split(',').map(long).join('');
        const id = ids.get(words) ?? eight.space.parse(text);
        ids.set(words, id);
        return id;
      };
      const other = new GreedyPlanner(eight.space, dtensorModel(eight.mesh, 1));
      const best = new Redistributor(eight.space, eight.planner.model, { viaReplicate: true });
      const single = new Redistributor(eight.space, eight.planner.model, {
        viaReplicate: true,
        merge: false,
      });
      let refused = 0;
      for (const [src, dst, recorded, issued, at8, at1] of rows) {
        const from = idOf(src);
        const to = idOf(dst);
        const where = `${src} -> ${dst}`;
        const steps = greedySteps(eight.space.get(from), eight.space.get(to), eight.mesh);
        const text = steps
          .map((s) => `${s.meshDim}:${short(s.from.text)}>${short(s.to.text)}`)
          .join(';');
        if (text !== recorded) throw new Error(`${where}: ${text}, recorded ${recorded}`);
        const cost8 = micro(eight.planner.seconds(type, from, to));
        const cost1 = micro(other.seconds(type, from, to));
        if (at8 === 'inf') {
          refused++;
          if (cost8 !== Infinity || cost1 !== Infinity)
            throw new Error(`${where}: ${cost8} is refused by DTensor`);
          continue;
        }
        if (Math.abs(cost8 - Number(at8)) > 1e-4 * Number(at8))
          throw new Error(`${where}: ${cost8}, recorded ${at8}`);
        if (Math.abs(cost1 - Number(at1)) > 1e-4 * Number(at1))
          throw new Error(`${where}: ${cost1}, recorded ${at1}`);
        // Never more expensive than the default planner, merged or not.
        if (micro(single.seconds(type, from, to)) > cost8)
          throw new Error(`${where}: more expensive than greedy`);
        if (micro(best.seconds(type, from, to)) > cost8)
          throw new Error(`${where}: more expensive than greedy`);
        if (issued !== null && !issued.startsWith('!')) {
          const ran = eight.plan(eight.space.text(from), eight.space.text(to), shape);
          expect(runOf(ran, eight, shape), where).toBe(issued);
        }
      }
      expect(refused).toBeLessThan(rows.length);
    },
  );
});

const NAMES: Record<string, string> = {
  all_gather: 'AG',
  all_reduce: 'AR',
  reduce_scatter: 'RS',
  all_to_all: 'A2A',
};

/**
 * `AG@2x12x16;...`: the collectives of a plan with the shape of their local input, as the oracle
 * writes them.
 */
function runOf(
  plan: ReturnType<ReturnType<typeof setup>['plan']>,
  { mesh, space }: ReturnType<typeof setup>,
  shape: readonly number[],
): string {
  let before = space.get(plan.from);
  return plan.steps
    .flatMap((step) => {
      const m = step.meshDims[0];
      const input = localShape(before, mesh, shape);
      const to = space.get(step.to).placements[m];
      const kind = stepKind(before.placements[m], to);
      before = space.get(step.to);
      if (kind === undefined || !(kind in NAMES)) return [];
      // DTensor stacks the pieces of a scatter along dim 0.
      if (kind === 'reduce_scatter' && to.dim !== undefined) {
        input[to.dim] = Math.ceil(input[to.dim] / mesh.sizes[m]);
        input[0] *= mesh.sizes[m];
      }
      return [`${NAMES[kind]}@${input.join('x')}`];
    })
    .join(';');
}
