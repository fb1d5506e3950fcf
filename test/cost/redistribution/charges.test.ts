import { describe, expect, test } from 'vitest';

import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { collectiveModel } from '../../../src/cost/presets/presets.ts';
import { RedistributionCharges } from '../../../src/cost/redistribution/charges.ts';
import { GreedyPlanner } from '../../../src/cost/redistribution/greedy.ts';
import { Redistributor } from '../../../src/cost/redistribution/redistribute.ts';
import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { ShardingSpace } from '../../../src/mesh/sharding/space.ts';

/** What the planning problem charges for a redistribution beside what its steps cost. */
function setup(preset: string, mesh = 'a=8,b=8') {
  const space = new ShardingSpace(parseMesh(mesh));
  const redistributor = new Redistributor(
    space,
    collectiveModel(preset, loadCluster('dgx-h100'), space.mesh),
  );
  const id = (short: string): number =>
    space.parse(
      short.replaceAll(/S(\d)/g, 'S($1)').replaceAll('P', 'P(sum)').replaceAll('A', 'P(avg)'),
    );
  return { space, redistributor, charges: new RedistributionCharges(redistributor), id };
}
/** 32 MiB. */
const CUBE = { meta: { shape: [512, 128, 128], dtype: 'f32' }, contiguous: true } as const;
const close = (value: number): unknown => expect.closeTo(value, 2);

describe('redistributions under the preset autoparallel on H100, mesh (8,8), 32 MiB', () => {
  const { space, redistributor, charges, id } = setup('autoparallel');
  const type = charges.typeOf(CUBE);
  const micros = (from: string, to: string, of = type): number =>
    charges.seconds(of, id(from), id(to)) * 1e6;

  test.each([
    ['S0S0', 'RR', 271.719, 'all_gather(0,1)', 313.82],
    ['PP', 'RR', 2340.007, 'all_reduce(0,1)', 460.621],
    ['S0S0', 'RS0', 156.556, 'all_gather(1) collective_permute(0,1)', 199.802],
    ['S0R', 'S1R', 152.984, 'collective_permute(0,1) all_gather(1)', 110.354],
    ['S0S1', 'S1S0', 137.774, 'collective_permute(0,1)', 69.709],
    ['RS0', 'S0S0', 0, 'collective_permute(0,1)', 69.709],
  ])(
    '%s to %s is charged %f us by the formula and runs %s of %f us',
    (from, to, charged, collectives, run) => {
      const plan = redistributor.plan(type, id(from), id(to))!;
      const steps = plan.steps
        .filter((s) => s.kind !== 'slice')
        .map((s) => `${s.kind}(${s.meshDims.join(',')})`);
      expect([micros(from, to), steps.join(' '), plan.seconds * 1e6]).toEqual([
        close(charged),
        collectives,
        close(run),
      ]);
    },
  );

  test('a tensor that is not contiguous is copied once', () => {
    const strided = charges.typeOf({ ...CUBE, contiguous: false });
    expect(micros('S0S0', 'RR', strided)).toEqual(close(278.719));
    expect(micros('RR', 'S0S0', strided)).toBe(0);
  });

  test('the table of an edge holds the charges', () => {
    const ids = ['RR', 'S0R', 'RS1', 'S0S0', 'PP'].map(id);
    const table = charges.matrix(type, ids, ids);
    ids.forEach((from, i) =>
      ids.forEach((to, j) =>
        expect(table[i * ids.length + j]).toBe(charges.seconds(type, from, to)),
      ),
    );
    expect(table[3 * ids.length]).toBe(charges.seconds(type, id('S0S0'), id('RR')));
  });

  test('nothing becomes pending, and what cannot run is refused', () => {
    expect(redistributor.seconds(type, id('RR'), id('PR'))).toBe(0);
    expect(micros('RR', 'PR')).toBe(Infinity);
    expect(micros('S0R', 'PR')).toBe(Infinity);
    expect(micros('PR', 'AR')).toBe(Infinity);
  });

  test('orders and strides that AutoParallel does not have are charged as they run', () => {
    for (const other of ['S(0)[1]S(0)[0]', '_S(0, 8)S(0)'])
      for (const [from, to] of [
        [other, 'RR'],
        [other, 'S(0)S(0)'],
        ['RR', other],
      ].map((pair) => pair.map((text) => space.parse(text))))
        expect(charges.seconds(type, from, to)).toBe(redistributor.seconds(type, from, to));
  });
});

test.each(['alpha-beta', 'nccl', 'dtensor'])('%s charges what runs', (preset) => {
  const { redistributor, charges, id } = setup(preset, 'a=2,b=4');
  const strided = { ...CUBE, contiguous: false };
  expect(charges.byFormula).toBe(false);
  expect(charges.typeOf(strided)).toEqual({ shape: CUBE.meta.shape, itemBytes: 4 });
  const ids = ['RR', 'S0R', 'S0S0', 'S0S1', 'S1S0', 'PP'].map(id);
  expect(charges.matrix(charges.typeOf(strided), ids, ids)).toEqual(
    redistributor.matrix(charges.typeOf(CUBE), ids, ids),
  );
});

test.each([
  ['a=2,b=2', [8, 8], 'S0S0', 'RR', 14.402, 8.402],
  ['a=2,b=2', [8, 8], 'PP', 'RR', 15.605, 10.204],
  ['a=2,b=2', [8, 8], 'S0S1', 'S1S0', 15.401, 7.201],
  ['a=2,b=2', [8, 8], 'S0P', 'RS0', 15.003, 14.403],
  ['a=4', [8, 8], 'S0', 'S1', 9.401, 8.402],
])(
  'dtensor on %s, %j: %s to %s is charged by our steps, PyTorch charges its greedy plan',
  (mesh, shape, from, to, greedy, ours) => {
    const { redistributor, charges, id } = setup('dtensor', mesh);
    const type = { shape, itemBytes: 4 };
    const theirs = new GreedyPlanner(redistributor.space, redistributor.model).seconds(
      type,
      id(from),
      id(to),
    );
    expect([theirs * 1e6, charges.seconds(type, id(from), id(to)) * 1e6]).toEqual([
      close(greedy),
      close(ours),
    ]);
  },
);
