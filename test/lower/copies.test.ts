import { describe, expect, test } from 'vitest';

import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { collectiveModel } from '../../src/cost/presets/presets.ts';
import { isFree } from '../../src/cost/redistribution/plan.ts';
import { Redistributor } from '../../src/cost/redistribution/redistribute.ts';
import { sizeAt } from '../../src/export/torch/program/sizes.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import type { Graph, TensorType, ValueType } from '../../src/graph/types.ts';
import { contiguousStride, isRef } from '../../src/graph/value.ts';
import { lower, type LowerablePlan } from '../../src/lower/lower.ts';
import { collectiveKind } from '../../src/lower/program/collectives.ts';
import type { DeviceProgram } from '../../src/lower/program/program.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { ShardingSpace } from '../../src/mesh/sharding/space.ts';
import { stridesAt, withStrides } from '../../src/ops/strides.ts';
import { product } from '../../src/product.ts';
import { request, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';

/** A program that returns its input elsewhere, whose dims lie in this order in memory. */
function moving(shape: readonly number[], order: readonly number[]): Graph {
  const stride = new Array<number>(shape.length);
  let step = 1;
  for (const dim of [...order].reverse()) {
    stride[dim] = step;
    step *= shape[dim];
  }
  const graph = parseGraph(
    `swgraph 1\ngraph @g {\n  in %x: f32[${shape.join(', ')}] input "x"\n  out %x output 0\n}\n`,
  );
  const [x] = graph.nodes;
  return { ...graph, nodes: [{ ...x, type: { kind: 'tensor', dtype: 'f32', shape, stride } }] };
}

function planOf(mesh: string, from: string, to: string): LowerablePlan {
  const move = { input: 0, from, to, collectives: [], seconds: 0 };
  return {
    request: { ...request(mesh), cost: 'alpha-beta' },
    nodes: [
      {
        name: 'x',
        target: 'placeholder',
        inputs: [],
        outputs: [from],
        seconds: 0,
        redistributions: [],
      },
    ],
    outputs: [{ value: 'x', role: 'output', placement: to, redistributions: [move] }],
  };
}

/**
 * Bytes that kernels read and write in a program beside its collectives, by the strides that
 * PyTorch gives each value: each copy on the device that it takes longest on, for which the others
 * wait at the collective.
 */
function copiedBytes(program: DeviceProgram, first: TensorType): number {
  const most = new Map<string, number>();
  for (const rank of program.mesh.devices.keys())
    for (const [name, bytes] of copiesOf(program, first, rank))
      most.set(name, Math.max(bytes, most.get(name) ?? 0));
  return [...most.values()].reduce((sum, bytes) => sum + bytes, 0);
}

/** By node that copies: the bytes that one device reads and writes. */
function copiesOf(
  program: DeviceProgram,
  first: TensorType,
  rank: number,
): ReadonlyMap<string, number> {
  const types = new Map<string, ValueType>();
  const typeOf = (name: string): ValueType => types.get(name) ?? { kind: 'none' };
  const isRun = (name: string): boolean => {
    const type = typeOf(name);
    if (type.kind !== 'tensor') throw new Error(`${name} is no tensor`);
    const rows = contiguousStride(type.shape) ?? [];
    if (type.shape.some((size) => size === 0)) return true;
    return (type.stride ?? rows).every((s, d) => type.shape[d] === 1 || s === rows[d]);
  };
  const here = (type: TensorType): TensorType => ({
    ...type,
    shape: type.shape.map((dim) => sizeAt(program, dim, rank)),
  });
  const found = new Map<string, number>();
  for (const node of program.graph.nodes) {
    if (node.type.kind !== 'tensor') continue;
    const own = here(node.type);
    const stride =
      node.kind === 'placeholder' ? stridesAt(first, own.shape.map(Number)) : undefined;
    const type =
      node.kind === 'placeholder'
        ? { ...own, ...(stride === undefined ? {} : { stride }) }
        : withStrides(node, own, typeOf);
    types.set(node.name, type);
    const [input] = node.args;
    if (node.kind !== 'call' || input === undefined || !isRef(input)) continue;
    const bytes = 2 * 4 * product(own.shape.map(Number));
    if (node.target === 'aten.clone.default' || node.target === 'aten.constant_pad_nd.default')
      found.set(node.name, bytes);
    else if (node.target === 'aten.contiguous.default') {
      if (!isRun(input.name)) found.set(node.name, bytes);
    }
    // A collective lays what it takes row by row; a view of what has no such strides is an error.
    else if (collectiveKind(node.target) !== undefined)
      expect(isRun(input.name), `${node.name} takes a run of memory`).toBe(true);
  }
  return found;
}

describe('redistributions copy what is priced, whatever the memory order of the tensor', () => {
  const each = [
    ['d=4', [10, 8], [0, 1]],
    ['d=4', [8, 10], [0, 1]],
    ['d=4', [8, 10], [1, 0]],
    ['d=4', [9, 7, 8], [0, 1, 2]],
    ['d=4', [9, 7, 8], [2, 0, 1]],
    ['d=4', [1, 6, 5], [0, 1, 2]],
    ['a=2,b=2', [9, 6], [0, 1]],
    ['a=2,b=2', [10, 7], [1, 0]],
    ['a=2,b=3', [7, 10, 4], [1, 0, 2]],
    ['a=2,b=2', [8, 16], [0, 1]],
    ['a=2,b=2', [8, 16], [1, 0]],
    ['d=4', [1, 8, 4], [0, 1, 2]],
    ['d=4', [4, 1, 8], [2, 1, 0]],
    ['d=4', [2, 4, 8, 8], [0, 2, 1, 3]],
    ['a=2,b=2', [16, 8, 8], [2, 0, 1]],
    ['a=2,b=2', [16, 8, 8], [0, 1, 2]],
    ['a=2,b=2', [16, 8, 8], [1, 0, 2]],
  ] as const;
  test.each(FULL ? each : each.slice(0, -2))(
    'mesh (%s), shape %j, dims in memory %j',
    (mesh, shape, order) => {
      const space = new ShardingSpace(parseMesh(mesh));
      const model = collectiveModel('alpha-beta', loadCluster('dgx-h100'), space.mesh);
      const redistributor = new Redistributor(space, model);
      const graph = moving(shape, order);
      const [{ type }] = graph.nodes;
      if (type.kind !== 'tensor') throw new Error('no tensor');
      // More pieces than rows leave one row on a device, behind which other dims are contiguous.
      const fits = (id: number): boolean =>
        [...space.get(id).orders.keys()].every((d) => shape[d] >= space.pieces(id, d));
      const specs = space.enumerate(shape.length, { orders: true }).filter(fits);
      let copying = 0;
      for (const [i, from] of specs.entries())
        for (const [j, to] of specs.entries()) {
          // Daily every third target of many, other ones of the next source.
          if (!FULL && specs.length > 12 && (i + j) % 3 !== 1) continue;
          const plan = redistributor.plan({ shape, itemBytes: 4, order }, from, to);
          if (plan === undefined || from === to) continue;
          const [a, b] = [space.text(from), space.text(to)];
          const program = lower(graph, planOf(mesh, a, b), { table: TABLE });
          const copied = copiedBytes(program, type);
          const priced = plan.steps.map(({ kind, bytes, seconds, meshDims }) =>
            kind === 'slice' || kind === 'to_partial' || kind === 'relabel'
              ? seconds
              : seconds - model.seconds(kind, bytes, meshDims),
          );
          // What a collective copies is held beside its operand and its result.
          plan.steps.forEach(({ kind, pieceBytes }, i) => {
            if (isFree(plan.steps[i]) || kind === 'slice') return;
            expect(pieceBytes !== undefined, `${a} -> ${b}`).toBe(priced[i] > 1e-15);
          });
          const sum = priced.reduce((x, y) => x + y, 0);
          expect(Math.round(Math.abs(sum) / model.copySeconds(1)), `${a} -> ${b}`).toBe(copied);
          if (copied > 0) copying++;
        }
      expect(copying).toBeGreaterThan(3);
    },
  );
});
