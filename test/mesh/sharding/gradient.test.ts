import { describe, expect, test } from 'vitest';

import { alphaBeta } from '../../../src/cost/collectives/alpha-beta.ts';
import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { Redistributor } from '../../../src/cost/redistribution/redistribute.ts';
import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { gradientChange, type GradientOptions } from '../../../src/mesh/sharding/gradient.ts';
import { ShardingSpace } from '../../../src/mesh/sharding/space.ts';

const cluster = loadCluster('dgx-h100');
const TYPE = { shape: [8, 8], itemBytes: 4 };

function setup(text: string) {
  const mesh = parseMesh(text);
  const space = new ShardingSpace(mesh);
  const forward = new Redistributor(space, alphaBeta(cluster, mesh));
  const backward = new Redistributor(space, alphaBeta(cluster, mesh), { viaReplicate: true });
  const kinds = (planner: Redistributor, from: number, to: number): string[] => {
    const plan = planner.plan(TYPE, from, to);
    if (plan === undefined) throw new Error(planner.refusal(from, to));
    return plan.steps
      .map((s) => s.kind)
      .filter((k) => !['slice', 'to_partial', 'relabel'].includes(k));
  };
  return (from: string, to: string, options?: GradientOptions) => {
    const [a, b] = [space.parse(from), space.parse(to)];
    const change = gradientChange(mesh, space.get(a), space.get(b), options);
    return {
      forward: kinds(forward, a, b),
      backward: kinds(backward, space.intern(change.from), space.intern(change.to)),
      text: `${change.from.text} -> ${change.to.text}`,
      divisor: change.divisor,
    };
  };
}

describe('the gradient of a redistribution is the transposed one', () => {
  const on4 = setup('x=4');

  test.each<[string, string, GradientOptions, string[], string[]]>([
    ['S(0)', 'R', {}, ['all_gather'], []],
    ['S(0)', 'R', { reducedTarget: [0] }, ['all_gather'], ['reduce_scatter']],
    ['R', 'S(0)', {}, [], ['all_gather']],
    ['R', 'S(0)', { reducedSource: [0] }, [], ['all_gather']],
    ['P(sum)', 'R', {}, ['all_reduce'], []],
    ['P(sum)', 'R', { reducedTarget: [0] }, ['all_reduce'], ['all_reduce']],
    ['P(sum)', 'S(0)', {}, ['reduce_scatter'], ['all_gather']],
    ['S(0)', 'S(1)', {}, ['all_to_all'], ['all_to_all']],
    // Reading a value whose gradient is pending: one all_reduce.
    ['R', 'R', { reducedTarget: [0] }, [], ['all_reduce']],
    ['R', 'R', {}, [], []],
  ])('%s -> %s %j', (from, to, options, forward, backward) => {
    const found = on4(from, to, options);
    expect(found.forward).toEqual(forward);
    expect(found.backward).toEqual(backward);
  });

  test('every mesh dim by itself; orders stay', () => {
    const on22 = setup('dp=2,tp=2');
    expect(on22('S(0)[1]S(0)[0]', 'RR').text).toBe('RR -> S(0)[1]S(0)[0]');
    expect(on22('RP(sum)', 'RS(1)', { reducedSource: [0], reducedTarget: [0] })).toMatchObject({
      forward: ['reduce_scatter'],
      backward: ['all_gather'],
      text: 'P(sum)S(1) -> P(sum)R',
    });
    // The weight of fully sharded data parallelism: gathered to be used, its gradient reduced and
    // scattered.
    expect(on22('S(0)S(1)', 'RS(1)', { reducedTarget: [0] })).toMatchObject({
      forward: ['all_gather'],
      backward: ['reduce_scatter'],
    });
  });

  test('averages divide, other reductions have no gradient without the values', () => {
    expect(on4('P(avg)', 'R').divisor).toBe(4);
    expect(on4('P(avg)', 'P(avg)').divisor).toBe(1);
    expect(() => on4('P(max)', 'R')).toThrow(/gradient of P\(max\).*not linear/);
  });
});
