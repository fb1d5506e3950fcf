import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../../src/errors.ts';
import type { Arg, DType, Graph, Node, TensorType, ValueType } from '../../../src/graph/types.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { graphFlops } from '../../../src/ops/flops.ts';
import { bind, inferCall } from '../../../src/ops/record/infer.ts';

/**
 * Every different call of the PyTorch graphs of the fixture set, with the type that PyTorch gave
 * it.
 */
type RawArg =
  | number
  | string
  | boolean
  | null
  | { t: string }
  | { f: string }
  | { big: string }
  | { kind: 'dtype'; dtype: DType }
  | { kind: 'device' | 'layout'; word: string }
  | RawArg[];
type RawCall = [
  target: string,
  args: RawArg[],
  kwargs: Record<string, RawArg>,
  result: string | Record<string, string | null>,
];
interface Fixture {
  readonly calls: RawCall[];
  readonly graphs: Record<
    string,
    { calls: [number, number][]; flops: number | null; byOp: Record<string, number> | null }
  >;
}
const fixture = JSON.parse(
  gunzipSync(readFileSync(new URL('../../fixtures/ops/calls.json.gz', import.meta.url))).toString(),
) as Fixture;
const operators = builtinOperators();

function tensor(text: string): TensorType {
  const [dtype, sizes] = text.slice(0, -1).split('[');
  return {
    kind: 'tensor',
    dtype: dtype as DType,
    shape: sizes === '' ? [] : sizes.split(',').map(Number),
  };
}

/**
 * The call as a node that refers to its inputs by their type text: equal types are one placeholder.
 */
function toNode(name: string, [target, args, kwargs]: RawCall): Omit<Node, 'type'> {
  const toArg = (arg: RawArg): Arg => {
    if (Array.isArray(arg)) return arg.map(toArg);
    if (arg === null || typeof arg !== 'object') return arg;
    if ('t' in arg) return { kind: 'value', name: arg.t };
    if ('f' in arg) return { kind: 'float', value: Number(arg.f) };
    return 'big' in arg ? BigInt(arg.big) : arg;
  };
  const keywords = Object.fromEntries(Object.entries(kwargs).map(([k, v]) => [k, toArg(v)]));
  return { name, kind: 'call', target, args: args.map(toArg), kwargs: keywords, meta: {} };
}

const text = (type: ValueType | undefined): string | null =>
  type?.kind === 'tensor' ? `${type.dtype}[${type.shape.map(String).join(',')}]` : null;

describe('types of calls', () => {
  test('every call of the fixture graphs gets the type that PyTorch gave it', () => {
    const wrong: string[] = [];
    for (const call of fixture.calls) {
      const type = inferCall(operators, toNode('x', call), tensor);
      const want = call[3];
      if (typeof want === 'string') {
        if (text(type) !== want) wrong.push(`${call[0]}: ${text(type)} for ${want}`);
        continue;
      }
      for (const [index, item] of Object.entries(want)) {
        const got = type?.kind === 'tuple' ? text(type.items[Number(index)]) : 'no tuple';
        if (got !== item) wrong.push(`${call[0]} result ${index}: ${got} for ${item}`);
      }
    }
    expect(wrong).toEqual([]);
    expect(fixture.calls.length).toBeGreaterThan(1400);
  });

  test('matrix FLOPs equal the index of the fixtures, in total and by operator', () => {
    const wrong: string[] = [];
    let judged = 0;
    for (const [name, { calls, flops, byOp }] of Object.entries(fixture.graphs)) {
      if (flops === null) continue;
      judged++;
      const result = graphFlops(graphOf(name, calls), operators);
      if (result.total !== flops) wrong.push(`${name}: ${result.total} for ${flops}`);
      if (byOp === null) continue;
      const got = Object.entries(result.byTarget).map(([k, v]) => [k.replace('.default', ''), v]);
      if (JSON.stringify(got) !== JSON.stringify(Object.entries(byOp).sort()))
        wrong.push(`${name} by operator`);
    }
    expect(wrong).toEqual([]);
    expect(judged).toBeGreaterThan(50);
  });

  test('FLOPs by operator are those of the fixtures', () => {
    const of = (name: string) => graphFlops(graphOf(name, fixture.graphs[name].calls), operators);
    const llama = of('llama3-8b-2l/joint').byTarget;
    expect(llama['aten.mm.default']).toBe(94523640250368);
    expect(llama['aten._scaled_dot_product_flash_attention_for_cpu.default']).toBe(2199023255552);
    expect(llama['aten._scaled_dot_product_flash_attention_for_cpu_backward.default']).toBe(
      5497558138880,
    );
    expect(llama['aten.bmm.default']).toBe(524288);
    expect(of('mlp/joint').total).toBe(1835008);
    expect(of('convnet/joint').total).toBe(2658048);
  });

  test('FLOPs are split by the phase of the nodes', () => {
    const mm = (name: string, phase: 'forward' | 'backward' | 'optimizer'): Node => ({
      ...toNode(name, ['aten.mm.default', [{ t: 'a' }, { t: 'b' }], {}, '']),
      type: tensor('f32[2,4]'),
      meta: { phase },
    });
    const input = (name: string, shape: string): Node => ({
      ...toNode(name, [name, [], {}, '']),
      kind: 'placeholder',
      type: tensor(shape),
    });
    const nodes = [
      input('a', 'f32[2,3]'),
      input('b', 'f32[3,4]'),
      mm('x', 'forward'),
      mm('y', 'backward'),
      mm('z', 'backward'),
    ];
    const graph: Graph = { name: 'g', nodes, outputs: [], subgraphs: {} };
    expect(graphFlops(graph, operators)).toEqual({
      forward: 48,
      backward: 96,
      total: 144,
      byTarget: { 'aten.mm.default': 144 },
    });
  });

  test('equal calls share one result, equal types one object', () => {
    const node = toNode('x', ['aten.mm.default', [{ t: 'f32[2,3]' }, { t: 'f32[3,4]' }], {}, '']);
    const first = inferCall(operators, node, tensor);
    expect(inferCall(operators, { ...node, name: 'y' }, tensor)).toBe(first);
    const relu = toNode('r', ['aten.relu.default', [{ t: 'f32[2,4]' }], {}, '']);
    expect(inferCall(operators, relu, tensor)).toBe(first);
    expect(bind(operators, node, tensor)).toBe(bind(operators, node, tensor));
  });

  test('1 and 1.0 are different arguments', () => {
    const add = (other: RawArg): string | null =>
      text(
        inferCall(
          operators,
          toNode('x', ['aten.add.Tensor', [{ t: 'i64[4]' }, other], {}, '']),
          tensor,
        ),
      );
    expect(add(1)).toBe('i64[4]');
    expect(add({ f: '1' })).toBe('f32[4]');
    expect(add(1)).toBe('i64[4]');
  });

  test('getitem picks a result; a masked-off one is none', () => {
    const call = toNode('ln', [
      'aten.native_layer_norm_backward.default',
      [
        { t: 'f32[4,8]' },
        { t: 'f32[4,8]' },
        [8],
        { t: 'f32[4,1]' },
        { t: 'f32[4,1]' },
        { t: 'f32[8]' },
        { t: 'f32[8]' },
        [true, false, true],
      ],
      {},
      {},
    ]);
    const tuple = inferCall(operators, call, tensor);
    const item = (i: number): ValueType | undefined =>
      inferCall(
        operators,
        { target: 'operator.getitem', args: [{ kind: 'value', name: 'ln' }, i], kwargs: {} },
        () => tuple ?? { kind: 'none' },
      );
    expect(text(item(0))).toBe('f32[4,8]');
    expect(item(1)).toEqual({ kind: 'none' });
    expect(text(item(-1))).toBe('f32[8]');
    expect(() => item(3)).toThrow(/'ln' has 3 results, not one with number 3/);
  });

  test('symbolic sizes count at their example; without one the size is named', () => {
    const type = (example?: number): TensorType => ({
      kind: 'tensor',
      dtype: 'f32',
      shape: [{ sym: 's77', ...(example === undefined ? {} : { example }) }, 4],
    });
    const relu = {
      target: 'aten.relu.default',
      args: [{ kind: 'value', name: 'x' }],
      kwargs: {},
    } as const;
    expect(text(inferCall(operators, relu, () => type(6)))).toBe('f32[6,4]');
    expect(() => inferCall(operators, relu, () => type())).toThrow(/the size of s77 is not known/);
  });

  test('an operator without a record is undefined; a call that does not fit names node and shapes', () => {
    expect(
      inferCall(operators, { target: 'my.op.default', args: [], kwargs: {} }, tensor),
    ).toBeUndefined();
    const bad = toNode('mm_3', ['aten.mm.default', [{ t: 'f32[2,3]' }, { t: 'f32[4,4]' }], {}, '']);
    let thrown: unknown;
    try {
      inferCall(operators, bad, tensor);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(ShardwrightError);
    const { code, headline } = thrown as ShardwrightError;
    expect(code).toBe('E_TYPE');
    expect(headline).toMatchInlineSnapshot(
      `"E_TYPE aten.mm.default: shapes [2, 3] and [4, 4] do not match: 3 against 4 (mk,kn->mn) (node mm_3)"`,
    );
  });
});

describe('type promotion', () => {
  test.each([
    ['aten.add.Tensor', 'bf16[4]', 'f32[]', 'bf16[4]'],
    ['aten.add.Tensor', 'bf16[4]', 'f32[4]', 'f32[4]'],
    ['aten.add.Tensor', 'bf16[4]', 'f16[4]', 'f32[4]'],
    ['aten.add.Tensor', 'i64[4]', 'f16[]', 'f16[4]'],
    ['aten.add.Tensor', 'i32[4]', 'i64[]', 'i32[4]'],
    ['aten.add.Tensor', 'u8[4]', 'i8[4]', 'i16[4]'],
    ['aten.div.Tensor', 'i64[4]', 'i64[4]', 'f32[4]'],
    ['aten.floor_divide.default', 'i64[4]', 'i64[4]', 'i64[4]'],
    ['aten.lt.Tensor', 'i64[4,1]', 'i64[3]', 'b8[4,3]'],
    ['aten.mul.Tensor', 'b8[4]', 'i64[4]', 'i64[4]'],
    ['aten.add_.Tensor', 'bf16[4]', 'f32[4]', 'bf16[4]'],
  ])('%s of %s and %s is %s', (target, a, b, want) => {
    expect(
      text(inferCall(operators, toNode('x', [target, [{ t: a }, { t: b }], {}, '']), tensor)),
    ).toBe(want);
  });
  test.each([
    ['aten.exp.default', 'i64[4]', 'f32[4]'],
    ['aten.relu.default', 'i64[4]', 'i64[4]'],
    ['aten.sum.default', 'b8[4]', 'i64[]'],
    ['aten.logical_not.default', 'f32[4]', 'b8[4]'],
    ['aten.amax.default', 'bf16[4]', 'bf16[]'],
  ])('%s of %s is %s', (target, a, want) => {
    expect(text(inferCall(operators, toNode('x', [target, [{ t: a }], {}, '']), tensor))).toBe(
      want,
    );
  });
});

/** A graph with every call as often as it occurs. */
function graphOf(name: string, calls: readonly [number, number][]): Graph {
  const nodes: Node[] = [];
  const inputs = new Map<string, Node>();
  for (const [index, count] of calls) {
    const call = toNode(`c${index}`, fixture.calls[index]);
    const names: string[] = [];
    JSON.stringify([call.args, call.kwargs], (_, v: unknown) => {
      if (typeof v === 'object' && v !== null && 'kind' in v && v.kind === 'value' && 'name' in v)
        names.push(String(v.name));
      return typeof v === 'bigint' ? String(v) : v;
    });
    for (const n of names)
      inputs.set(n, {
        name: n,
        kind: 'placeholder',
        target: n,
        args: [],
        kwargs: {},
        type: tensor(n),
        meta: {},
      });
    for (let i = 0; i < count; i++)
      nodes.push({ ...call, name: `c${index}_${i}`, type: { kind: 'none' } });
  }
  return { name, nodes: [...inputs.values(), ...nodes], outputs: [], subgraphs: {} };
}
