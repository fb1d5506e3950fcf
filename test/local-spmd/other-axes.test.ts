import { describe, expect, test } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { typedAxes, typeGraph } from '../../src/local-spmd/type-graph.ts';
import { isTuple, type Known } from '../../src/local-spmd/typed.ts';
import { eraseTypes } from '../../src/lower/typed/erase.ts';
import { DeviceMesh } from '../../src/mesh/devices/mesh.ts';
import { afterVerb, touchedBy } from '../../src/mesh/local-types/other-axes.ts';
import { type PrimitiveName, PRIMITIVES } from '../../src/mesh/local-types/primitives.ts';
import { type AxisType, chunksOf, cutOf, cutType } from '../../src/mesh/local-types/types.ts';
import { flat, type NDArray } from '../../src/ndarray/array.ts';
import { concat, rows } from '../../src/ndarray/views.ts';
import { runDevices } from '../../src/simulate/ranks/devices.ts';
import { localMap } from '../../src/trace/spmd/local-map.ts';
import {
  allGather,
  allReduce,
  allToAll,
  convert,
  permute,
  reduceScatter,
  reinterpret,
} from '../../src/trace/spmd/verbs.ts';
import { input, type Tensor, trace } from '../../src/trace/trace.ts';
import { drawn, table } from './support/simulated.ts';

/**
 * A verb over `sp` on values that another axis cuts, run on both axes: each rank of the other axis
 * holds its part of what the verb makes of whole values.
 */
type Verb = PrimitiveName | 'permute';
type Case = readonly [op: Verb, src: AxisType, dst: AxisType, sp: number, other: number];

const CASES: Case[] = [
  ...PRIMITIVES.flatMap(({ op, src, dst }): [Verb, AxisType, AxisType][] => {
    if (op === 'all_to_all')
      return [
        ['all_to_all', 'V', 'V'],
        [op, 'S(0)', 'S(1)'],
        [op, 'S(1)', 'S(0)'],
      ];
    const cuts = (type: AxisType): AxisType[] =>
      type === 'V' && op !== 'reinterpret' ? ['V', 'S(0)', 'S(1)'] : [type];
    return cuts(src).flatMap((from) =>
      cuts(dst).map((to): [Verb, AxisType, AxisType] => [op, from, to]),
    );
  }),
  ['permute' as const, 'V' as const, 'V' as const] as [Verb, AxisType, AxisType],
].flatMap((verb): Case[] => [
  [...verb, 2, 3],
  [...verb, 3, 2],
  [...verb, 2, 2],
]);

/** What one rank has before the verb. */
function shapeBefore(op: Verb, src: AxisType, dst: AxisType, sp: number): number[] {
  return touchedBy(op, src, dst).cut === 'row' ? [sp, 12, 12] : [12, 12];
}

function bodyOf([op, src, dst, sp, other]: Case): Graph {
  const run = (x: Tensor): Tensor => {
    const to = { src, dst, expert: true };
    switch (op) {
      case 'convert':
        return convert(x, 'sp', to);
      case 'reinterpret':
        return reinterpret(x, 'sp', to);
      case 'all_reduce':
        return allReduce(x, 'sp', to);
      case 'all_gather':
        return allGather(x, 'sp', to);
      case 'reduce_scatter':
        return reduceScatter(x, 'sp', to);
      case 'all_to_all':
        return allToAll(x, 'sp', to);
      case 'permute':
        return permute(
          x,
          'sp',
          Array.from({ length: sp }, (_, i) => (i + 1) % sp),
        );
    }
  };
  const outside = (type: AxisType): AxisType =>
    type === 'V' || cutOf(type) !== undefined ? 'S(0)' : type;
  const [rows, ...rest] = shapeBefore(op, src, dst, sp);
  const graph = trace(
    (x) =>
      localMap(run, {
        axes: ['sp'],
        inSpecs: [{ sp: outside(src) }],
        outSpecs: { sp: outside(dst) },
        autoCast: false,
      })(x),
    [input([outside(src) === 'S(0)' ? rows * sp : rows, ...rest], 'f64')],
    { mesh: `sp=${sp},other=${other}` },
  );
  const [body] = Object.values(graph.subgraphs);
  return body;
}

/** The part of a rank: of each chunk of the dim its piece. */
function part(x: NDArray, type: AxisType, ranks: number, rank: number): NDArray | undefined {
  const cut = chunksOf(type);
  if (cut === undefined) return x;
  const size = x.shape[cut.dim] / (cut.chunks * ranks);
  if (!Number.isInteger(size)) return undefined;
  return concat(
    Array.from({ length: cut.chunks }, (_, k) => rows(x, cut.dim, (k * ranks + rank) * size, size)),
    cut.dim,
  );
}

const same = (a: NDArray, b: NDArray | undefined): boolean =>
  b !== undefined &&
  a.shape.join() === b.shape.join() &&
  [...flat(a)].every((v, i) => Math.abs(v - flat(b)[i]) < 1e-12);

/** Local results by rank, of operands by rank. */
function runOn(
  body: Graph,
  mesh: DeviceMesh,
  types: readonly Known[],
  operands: NDArray[],
): NDArray[] {
  const program = eraseTypes({ graph: body, mesh, table, inputs: [types], manual: ['sp'] });
  const [byRank] = runDevices(table, program, [operands]).outputs;
  if (byRank === null) throw new Error('the body returns nothing');
  return [...byRank];
}

/** The whole local values, the results that they have, and those of a cut on the other axis. */
function executed(body: Graph, [op, src, dst, sp, other]: Case, type: AxisType) {
  const shape = shapeBefore(op, src, dst, sp);
  const equal = src === 'R' || src === 'I';
  const wholes = Array.from({ length: sp }, (_, i) => drawn(shape, equal ? 0 : i));
  const own: AxisType = equal || src === 'P' ? src : 'V';
  const one = new DeviceMesh([{ name: 'sp', size: sp }]);
  const results = runOn(body, one, [own], wholes);
  const both = new DeviceMesh([
    { name: 'sp', size: sp },
    { name: 'other', size: other },
  ]);
  const parts = wholes.flatMap((x) =>
    Array.from({ length: other }, (_, j) => part(x, type, other, j) ?? x),
  );
  return { results, both, parts, own };
}

const cutsOf = (rank: number, other: number): AxisType[] =>
  Array.from({ length: rank }, (_, d) => d).flatMap((d) =>
    [1, 2, 3, 4, 6].flatMap((chunks) => (12 % (chunks * other) === 0 ? [cutType(d, chunks)] : [])),
  );

describe.each(CASES)('%s of %s to %s over sp=%i beside other=%i', (...of) => {
  const [op, src, dst, sp, other] = of;
  const body = bodyOf(of);
  const shape = shapeBefore(op, src, dst, sp);
  const touched = touchedBy(op, src, dst);
  const open = cutsOf(shape.length, other).filter((type) => shape[chunksOf(type)!.dim] === 12);

  test('each rank of the other axis has the part that the type says', () => {
    let passed = 0;
    for (const type of open) {
      const after = afterVerb(type, touched, sp);
      if (after === undefined) continue;
      const { results, both, parts, own } = executed(body, of, type);
      const typer = typeGraph(
        table,
        body,
        typedAxes(both, (n) => (n === 'sp' ? 'manual' : 'strict')),
        [[own, type]],
      );
      const typed = typer.types.get(body)?.get(body.outputs[0].value ?? '');
      expect(typed === undefined || isTuple(typed) ? undefined : typed[1]).toBe(after);
      const local = runOn(body, both, [own, type], parts);
      local.forEach((x, r) => {
        const want = part(results[Math.floor(r / other)], after, other, r % other);
        expect(same(x, want), `${type} to ${after} on rank ${r}`).toBe(true);
      });
      passed++;
    }
    expect(passed).toBeGreaterThan(0);
  });
});

test('a verb that cuts a dim in pieces is refused with the redistribution that helps', () => {
  const body = bodyOf(['reduce_scatter', 'P', 'S(0)', 2, 3]);
  const axes = typedAxes(
    new DeviceMesh([
      { name: 'sp', size: 2 },
      { name: 'other', size: 3 },
    ]),
    (n) => (n === 'sp' ? 'manual' : 'strict'),
  );
  const { violations } = typeGraph(table, body, axes, [['P', 'S(0)']]);
  expect(violations.map(({ meshDim, fix }) => [meshDim, fix])).toEqual([
    ['other', 'redistribute(arg0, "other", S(0)→R) before the region'],
  ]);
});
