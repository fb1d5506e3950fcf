import { describe, expect, test } from 'vitest';

import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { collectiveModel } from '../../src/cost/presets/presets.ts';
import { Redistributor } from '../../src/cost/redistribution/redistribute.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import type { Graph, ValueType } from '../../src/graph/types.ts';
import { contiguousStride, isRef } from '../../src/graph/value.ts';
import { lower, type LowerablePlan } from '../../src/lower/lower.ts';
import { collectiveKind } from '../../src/lower/program/collectives.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { ShardingSpace } from '../../src/mesh/sharding/space.ts';
import { stridesAt, withStrides } from '../../src/ops/strides.ts';
import { product } from '../../src/product.ts';
import { request, TABLE } from '../plan/support.ts';

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
 * PyTorch gives each value; the program of one device of even pieces has plain sizes.
 */
function copiedBytes(program: Graph, first: ValueType): number {
  const types = new Map<string, ValueType>();
  const typeOf = (name: string): ValueType => types.get(name) ?? { kind: 'none' };
  const isRun = (name: string): boolean => {
    const type = typeOf(name);
    if (type.kind !== 'tensor') throw new Error(`${name} is no tensor`);
    const rows = contiguousStride(type.shape) ?? [];
    return (type.stride ?? rows).every((s, d) => type.shape[d] === 1 || s === rows[d]);
  };
  let bytes = 0;
  for (const node of program.nodes) {
    const type = node.kind === 'placeholder' ? first : withStrides(node, node.type, typeOf);
    types.set(node.name, type);
    const [input] = node.args;
    if (node.kind !== 'call' || input === undefined || !isRef(input)) continue;
    if (type.kind !== 'tensor') throw new Error(`${node.name} is no tensor`);
    const twice = 2 * 4 * product(type.shape.map(Number));
    if (node.target === 'aten.clone.default') bytes += twice;
    else if (node.target === 'aten.contiguous.default') bytes += isRun(input.name) ? 0 : twice;
    // A collective lays what it takes row by row; a view of what has no such strides is an error.
    else if (collectiveKind(node.target) !== undefined)
      expect(isRun(input.name), `${node.name} takes a run of memory`).toBe(true);
  }
  return bytes;
}

describe('redistributions copy what is priced, whatever the memory order of the tensor', () => {
  test.each([
    ['a=2,b=2', [8, 16], [0, 1]],
    ['a=2,b=2', [8, 16], [1, 0]],
    ['a=2,b=2', [16, 8, 8], [0, 1, 2]],
    ['a=2,b=2', [16, 8, 8], [1, 0, 2]],
    ['a=2,b=2', [16, 8, 8], [2, 0, 1]],
    ['d=4', [1, 8, 4], [0, 1, 2]],
    ['d=4', [4, 1, 8], [2, 1, 0]],
    ['d=4', [2, 4, 8, 8], [0, 2, 1, 3]],
  ])('mesh (%s), shape %j, dims in memory %j', (mesh, shape, order) => {
    const space = new ShardingSpace(parseMesh(mesh));
    const model = collectiveModel('alpha-beta', loadCluster('dgx-h100'), space.mesh);
    const redistributor = new Redistributor(space, model);
    const graph = moving(shape, order);
    const [{ type }] = graph.nodes;
    if (type.kind !== 'tensor') throw new Error('no tensor');
    const fits = (id: number): boolean =>
      [...space.get(id).orders.keys()].every((d) => shape[d] % space.pieces(id, d) === 0);
    const specs = space.enumerate(shape.length, { orders: true }).filter(fits);
    let copying = 0;
    for (const from of specs)
      for (const to of specs) {
        const plan = redistributor.plan({ shape, itemBytes: 4, order }, from, to);
        if (plan === undefined || from === to) continue;
        const [a, b] = [space.text(from), space.text(to)];
        const local = space.localShape(from, shape);
        const stride = stridesAt(type, local) ?? contiguousStride(local) ?? [];
        const { graph: program } = lower(graph, planOf(mesh, a, b), { table: TABLE });
        const copied = copiedBytes(program, { ...type, shape: local, stride });
        const priced = plan.steps.map(({ kind, bytes, seconds, meshDims }) =>
          kind === 'slice' || kind === 'to_partial' || kind === 'relabel'
            ? seconds
            : seconds - model.seconds(kind, bytes, meshDims),
        );
        const sum = priced.reduce((x, y) => x + y, 0);
        expect(Math.round(Math.abs(sum) / model.copySeconds(1)), `${a} -> ${b}`).toBe(copied);
        if (copied > 0) copying++;
      }
    expect(copying).toBeGreaterThan(3);
  });
});
