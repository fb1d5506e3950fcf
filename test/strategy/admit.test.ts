import { describe, expect, test } from 'vitest';

import { alphaBeta } from '../../src/cost/collectives/alpha-beta.ts';
import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { Redistributor } from '../../src/cost/redistribution/redistribute.ts';
import type { Arg, TensorType } from '../../src/graph/types.ts';
import { type DeviceMesh, parseMesh } from '../../src/mesh/devices/mesh.ts';
import { builtinKinds } from '../../src/mesh/placements/builtin-kinds.ts';
import { Ragged } from '../../src/mesh/placements/shards/ragged.ts';
import { StridedShard } from '../../src/mesh/placements/shards/strided.ts';
import { sliceKind } from '../../src/mesh/placements/slice-kind.ts';
import { parseSharding } from '../../src/mesh/sharding/parse.ts';
import { heldRows } from '../../src/mesh/sharding/sharding.ts';
import { ShardingSpace } from '../../src/mesh/sharding/space.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { expandRules } from '../../src/ops/expansion/expand.ts';
import { bindCall, withOutputs } from '../../src/ops/record/context.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import type { TensorMeta } from '../../src/ops/record/record.ts';
import { R, type Rule, rule, S } from '../../src/ops/record/rule.ts';
import { type Admission, admit } from '../../src/strategy/admit.ts';
import { dataflow } from '../../src/strategy/dataflow.ts';
import { nodeStrategies } from '../../src/strategy/nodes.ts';
import { input, parameter, trace } from '../../src/trace/trace.ts';

const TABLE = builtinOperators();

/** Rank r holds rows r, r + n, ...: a kind of the user, from its split and join alone. */
const INTERLEAVED2 = sliceKind({
  kind: 'interleaved2',
  word: 'Interleaved2',
  split: (size, n) =>
    Array.from({ length: n }, (_, r) =>
      Array.from({ length: size }, (__, i) => i).filter((i) => i % n === r),
    ),
  join: (parts, size) =>
    Array.from({ length: size }, (_, i) => parts[i % parts.length][Math.floor(i / parts.length)]),
});
const KINDS = builtinKinds().register(INTERLEAVED2);

interface Bound {
  readonly rules: readonly Rule[];
  readonly inputs: readonly TensorMeta[];
  readonly outputs: readonly TensorMeta[];
}

/** A call of tensors (by shape) and literals, as the operator's own record sees it. */
function call(target: string, ...args: Given[]): Bound {
  return callWith({}, target, ...args);
}

/** The shape of a tensor, or a literal. */
type Given = readonly number[] | { readonly arg: Arg };

function callWith(
  kwargs: Readonly<Record<string, Arg>>,
  target: string,
  ...args: readonly Given[]
): Bound {
  const record = TABLE.get(target);
  if (record === undefined) throw new Error(`no ${target}`);
  const types = new Map<string, TensorType>();
  const plain = args.map((a, i): Arg => {
    if ('arg' in a) return a.arg;
    const dtype = target.includes('embedding') && i === 1 ? 'i64' : 'f32';
    types.set(`x${i}`, { kind: 'tensor', dtype, shape: [...a] });
    return { kind: 'value', name: `x${i}` };
  });
  const typeOf = (name: string): TensorType => types.get(name)!;
  const meta = (type: TensorType): TensorMeta => ({
    dtype: type.dtype,
    shape: type.shape as number[],
  });
  const out = inferCall(TABLE, { target, args: plain, kwargs }, typeOf);
  if (out?.kind !== 'tensor') throw new Error(`${target} has no tensor result`);
  const outputs = [meta(out)];
  const bound = withOutputs(
    bindCall(record, plain, kwargs, (name) => meta(typeOf(name))),
    outputs,
  );
  return { rules: record.shard(bound), inputs: [...types.values()].map(meta), outputs };
}

function ask(mesh: DeviceMesh, bound: Bound, ...given: string[]): Admission {
  const shardings = given.map((text) => parseSharding(text, mesh, { kinds: KINDS }));
  return admit(mesh, bound.rules, bound.inputs, bound.outputs, shardings);
}
/** Texts of what comes out, or the refusal. */
function outcome(mesh: DeviceMesh, bound: Bound, ...given: string[]): string[] | string {
  const answer = ask(mesh, bound, ...given);
  if ('refused' in answer) return answer.refused;
  return answer.accepted.map((a) => a.outputs.map((o) => o?.text ?? '-').join(' '));
}

const x2 = parseMesh('x=2');
const xy = parseMesh('x=2,y=2');
const MM = (m: number, k: number, n: number): Bound => call('aten.mm.default', [m, k], [k, n]);
const BMM = call('aten.bmm.default', [6, 4, 8], [6, 8, 5]);

describe('a user kind under the rules of a batched product', () => {
  test('on the batch dim it passes and reappears on the output', () => {
    expect(outcome(x2, BMM, 'Interleaved2(0)', 'Interleaved2(0)')).toEqual(['Interleaved2(0)']);
  });

  test('on the contracted dim against Shard it is refused, both named', () => {
    expect(outcome(x2, BMM, 'Interleaved2(2)', 'S(1)')).toBe(
      "mesh dim 'x': input 0 is cut Interleaved2(2) and input 1 S(1), but the two dims are one index: both must be cut the same way",
    );
    expect(outcome(x2, BMM, 'Interleaved2(0)', 'S(0)')).toMatch(
      /Interleaved2\(0\) and input 1 S\(0\)/,
    );
  });

  test('on the contracted dim against itself the result is a pending sum', () => {
    expect(outcome(x2, BMM, 'Interleaved2(2)', 'Interleaved2(1)')).toEqual(['P(sum)']);
  });

  test('what is accepted is true: each rank computes on its rows, and the results join', () => {
    const n = 3;
    const [batch, rows, inner, columns] = [5, 2, 7, 3];
    const a = (b: number, i: number, k: number): number => (b * 31 + i * 7 + k * 3) % 11;
    const w = (b: number, k: number, j: number): number => (b * 13 + k * 5 + j * 2) % 7;
    const product = (bs: readonly number[], ks: readonly number[]): number[][] =>
      bs.map((b) =>
        Array.from({ length: rows * columns }, (_, at) =>
          ks.reduce((sum, k) => sum + a(b, Math.floor(at / columns), k) * w(b, k, at % columns), 0),
        ),
      );
    const all = (size: number): number[] => Array.from({ length: size }, (_, i) => i);
    const whole = product(all(batch), all(inner));
    const p = INTERLEAVED2.of(0);
    expect(
      p.join(
        p.split(batch, n).map((bs) => product(bs, all(inner))),
        batch,
      ),
    ).toEqual(whole);
    const addends = p.split(inner, n).map((ks) => product(all(batch), ks));
    expect(
      whole.map((row, b) => row.map((_, at) => addends.reduce((sum, t) => sum + t[b][at], 0))),
    ).toEqual(whole);
  });

  test('the expansion offers it as any other cut', () => {
    const space = new ShardingSpace(x2);
    const options = { uneven: 'allow', cuts: [INTERLEAVED2.of(0)] } as const;
    const set = expandRules(space, BMM.rules, BMM.inputs, BMM.outputs, options);
    const found = Array.from({ length: set.count }, (_, s) =>
      [0, 1, 2].map((t) => space.text(set.specs[s * 3 + t])).join(' '),
    );
    const special = found.filter((text) => text.includes('Interleaved2'));
    expect(special).toEqual([
      'Interleaved2(0) Interleaved2(0) Interleaved2(0)',
      'Interleaved2(2) Interleaved2(1) P(sum)',
      'Interleaved2(1) R Interleaved2(1)',
      'R Interleaved2(2) Interleaved2(2)',
    ]);
    // Plain strategies are as without it, and come first.
    const plain = expandRules(new ShardingSpace(x2), BMM.rules, BMM.inputs, BMM.outputs, {
      uneven: 'allow',
    });
    expect(found.slice(0, plain.count).some((text) => text.includes('Interleaved2'))).toBe(false);
    expect(set.count).toBe(plain.count + 4);
  });
});

test('a whole graph: placeholders and calls are offered the cut', () => {
  const graph = trace((t) => t.x.matmul(t.w).relu(), { x: input([8, 6]), w: parameter([6, 4]) });
  const space = new ShardingSpace(x2);
  const options = { uneven: 'allow', unknown: 'refuse', cuts: [INTERLEAVED2.of(0)] } as const;
  const table = nodeStrategies(graph, dataflow(graph, TABLE, true), TABLE, space, options);
  const offered = table.nodes.map((entry) => {
    const { set } = entry!;
    const width = set.inputCount + set.outputCount;
    const lines = Array.from({ length: set.count }, (_, s) =>
      Array.from({ length: width }, (__, t) => space.text(set.specs[s * width + t])).join(' '),
    );
    return lines.filter((line) => line.includes('Interleaved2'));
  });
  expect(offered).toEqual([
    ['Interleaved2(0)'],
    ['Interleaved2(0)'],
    [
      'Interleaved2(1) Interleaved2(0) P(sum)',
      'Interleaved2(0) R Interleaved2(0)',
      'R Interleaved2(1) Interleaved2(1)',
    ],
    ['Interleaved2(0) Interleaved2(0)', 'Interleaved2(1) Interleaved2(1)'],
  ]);
});

describe('grouped attention', () => {
  const Q = [2, 8, 4, 4];
  const K = [2, 2, 4, 4];
  const target = 'aten.scaled_dot_product_attention.default';
  const grouped = callWith({ enable_gqa: true }, target, Q, K, K);

  test.each([
    ['S(1)S(1)', 'S(1)R', ['S(1)S(1)']],
    ['S(1)S(1)', 'RR', ['S(1)S(1)']],
    // A device would read key heads of another: its query heads are those of an earlier cut.
    ['S(1)S(1)', 'RS(1)', []],
    ['S(1)[1]S(1)[0]', 'S(1)R', []],
    ['S(1)[1]S(1)[0]', 'RS(1)', ['S(1)[1]S(1)[0]']],
    ['RS(1)', 'S(1)R', []],
  ])('of queries %s and keys %s leaves %j', (q, k, results) => {
    const found = outcome(xy, grouped, q, k, k);
    expect(typeof found === 'string' ? [] : found).toEqual(results);
  });
});

describe('strided cuts under the rules of a product', () => {
  test.each([
    [x2, MM(8, 3, 5), '_S(0, 2)', 'R', '_S(0, 2)'],
    [xy, MM(96, 8, 4), '_S(0, 4)_S(0, 8)', 'RR', '_S(0, 4)_S(0, 8)'],
    [xy, MM(8, 8, 8), 'RS(0)', 'S(1)R', 'S(1)S(0)'],
    [xy, MM(8, 8, 8), 'S(0)[1]S(0)[0]', 'RR', 'S(0)[1]S(0)[0]'],
    [xy, MM(8, 8, 8), 'S(1)[1]S(1)[0]', 'S(0)[1]S(0)[0]', 'P(sum)P(sum)'],
    [
      xy,
      MM(12, 8, 8),
      'Ragged(0, [1, 3], 3)R',
      'RInterleaved(1, [4, 2, 2])',
      'Ragged(0, [1, 3], 3)Interleaved(1, [4, 2, 2])',
    ],
  ])('case %# keeps its cuts without communication', (mesh, bound, a, b, out) => {
    expect(outcome(mesh, bound, a, b)).toEqual([out]);
  });

  test('the expansion keeps them too', () => {
    const bound = MM(96, 8, 4);
    const space = new ShardingSpace(xy);
    const cuts = [new StridedShard(0, 4), new StridedShard(0, 8)];
    const set = expandRules(space, bound.rules, bound.inputs, bound.outputs, {
      uneven: 'forbid',
      cuts,
    });
    const found = Array.from({ length: set.count }, (_, s) =>
      [0, 1, 2].map((t) => space.text(set.specs[s * 3 + t])).join(' '),
    );
    expect(found).toContain('_S(0, 4)_S(0, 8) RR _S(0, 4)_S(0, 8)');
    // Every strategy moves nothing: the rows of the result are the rows of the first operand, on
    // every rank.
    for (let s = 0; s < set.count; s++) {
      const [a, b, out] = [0, 1, 2].map((t) => space.get(set.specs[s * 3 + t]));
      expect(heldRows(out, xy, 0, 96)).toEqual(heldRows(a, xy, 0, 96));
      expect(heldRows(out, xy, 1, 4)).toEqual(heldRows(b, xy, 1, 4));
      expect(heldRows(a, xy, 1, 8)).toEqual(heldRows(b, xy, 0, 8));
    }
  });

  test('cut in different orders: never free', () => {
    const bound = MM(8, 8, 8);
    const text = outcome(xy, bound, 'S(1)S(1)', '_S(0, 2)S(0)');
    expect(text).toMatch(
      /^input 0 is S\(1\)\[0\]S\(1\)\[1\] and input 1 S\(0\)\[1\]S\(0\)\[0\], but dim 1 of the one is dim 0/,
    );
    expect(text).toMatch(/x S\(0\), y S\(0\) against y S\(0\), x S\(0\)/);
    const space = new ShardingSpace(xy);
    const set = expandRules(space, bound.rules, bound.inputs, bound.outputs, {
      uneven: 'forbid',
      cuts: [new StridedShard(0, 2)],
    });
    const [left, right] = [space.parse('S(1)S(1)'), space.parse('_S(0, 2)S(0)')];
    for (let s = 0; s < set.count; s++)
      expect(set.specs[s * 3] === left && set.specs[s * 3 + 1] === right).toBe(false);
    // To bring the operand into the order of the other costs communication.
    const planner = new Redistributor(space, alphaBeta(loadCluster('dgx-h100'), xy));
    const plan = planner.plan({ shape: [8, 8], itemBytes: 4 }, right, space.parse('S(0)S(0)'));
    expect(plan?.collectives).toBeGreaterThan(0);
    expect(plan?.seconds).toBeGreaterThan(0);
  });

  test('a stride against a plain shard (PyTorch issue 166598), and against another stride', () => {
    const bound = MM(8, 16, 8);
    expect(outcome(x2, bound, '_S(1, 2)', 'S(0)')).toMatch(/_S\(1, 2\) and input 1 S\(0\)/);
    expect(outcome(x2, bound, '_S(1, 2)', '_S(0, 4)')).toMatch(/_S\(1, 2\) and input 1 _S\(0, 4\)/);
    expect(outcome(x2, bound, '_S(1, 2)', '_S(0, 2)')).toEqual(['P(sum)']);
  });
});

describe('what rules demand of a cut', () => {
  test('a lookup in a table cut by rows is a masked pending sum', () => {
    const bound = call('aten.embedding.default', [16, 8], [3]);
    const x4 = parseMesh('x=4');
    expect(outcome(x4, bound, 'S(0)', 'R')).toEqual(['MaskP(sum, [16, 8], 0)']);
    // Offsets are computed from the rank, so no other cut of the rows will do.
    expect(outcome(x4, bound, '_S(0, 2)', 'R')).toMatch(
      /input 0 is cut _S\(0, 2\), but this operator wants contiguous chunks .*computes offsets/,
    );
    // Columns only pass through: any cut.
    expect(outcome(x2, bound, 'Ragged(1, [1, 3], 2)', 'R')).toEqual(['Ragged(1, [1, 3], 2)']);
  });

  test('any: transposes and pointwise functions carry every kind on', () => {
    expect(outcome(x2, call('aten.t.default', [8, 6]), 'Ragged(0, [1, 3], 2)')).toEqual([
      'Ragged(1, [1, 3], 2)',
    ]);
    expect(outcome(x2, call('aten.relu.default', [8, 6]), 'Interleaved2(1)')).toEqual([
      'Interleaved2(1)',
    ]);
  });

  test('same: a sum of tensors wants equal cuts', () => {
    const bound = call('aten.add.Tensor', [8, 6], [8, 6]);
    expect(outcome(x2, bound, 'Ragged(0, [1, 3], 2)', 'Ragged(0, [1, 3], 2)')).toEqual([
      'Ragged(0, [1, 3], 2)',
    ]);
    expect(outcome(x2, bound, 'Ragged(0, [1, 3], 2)', 'Ragged(0, [3, 1], 2)')).toMatch(
      /Ragged\(0, \[1, 3\], 2\) and input 1 Ragged\(0, \[3, 1\], 2\)/,
    );
  });

  test('even: an average refuses ranks that hold unequally many rows', () => {
    const bound: Bound = {
      rules: [rule([S(0, { even: true })], [S(0)])],
      inputs: [{ dtype: 'f32', shape: [8] }],
      outputs: [{ dtype: 'f32', shape: [8] }],
    };
    expect(outcome(x2, bound, 'Ragged(0, [2, 2], 2)')).toEqual(['Ragged(0, [2, 2], 2)']);
    expect(outcome(x2, bound, 'Ragged(0, [1, 3], 2)')).toMatch(
      /needs equally many rows of dim 0 \(8\)/,
    );
    const space = new ShardingSpace(x2);
    const cuts = [new Ragged(0, [2, 2], 2), new Ragged(0, [1, 3], 2)];
    const set = expandRules(space, bound.rules, bound.inputs, bound.outputs, {
      uneven: 'allow',
      cuts,
    });
    expect(Array.from(set.specs, (id) => space.text(id))).toEqual([
      ...['R', 'R', 'S(0)', 'S(0)'],
      ...['Ragged(0, [2, 2], 2)', 'Ragged(0, [2, 2], 2)'],
    ]);
  });

  test('reshapes that split or merge a dim take plain shards only', () => {
    const bound = call('aten.view.default', [8, 6], { arg: [48] });
    expect(outcome(x2, bound, 'S(0)')).toEqual(['S(0)']);
    expect(outcome(x2, bound, 'Interleaved2(0)')).toMatch(/wants contiguous chunks/);
  });

  test('cuts that do not fit the tensor are refused first', () => {
    const bound = call('aten.relu.default', [9]);
    expect(outcome(x2, bound, 'Ragged(0, [1, 3], 2)')).toBe(
      "input 0, mesh dim 'x': Ragged(0, [1, 3], 2) has 8 rows in all, the dim has 9",
    );
    expect(outcome(x2, bound, 'S(1)')).toBe('input 0 is S(1), but has 1 dims');
  });

  test('placements that no rule takes are listed; one device takes anything', () => {
    const bound = MM(8, 8, 8);
    expect(outcome(x2, bound, 'P(max)', 'R')).toBe("mesh dim 'x': no rule takes P(max), R");
    expect(outcome(x2, bound, 'S(0)', 'S(1)')).toBe("mesh dim 'x': no rule takes S(0), S(1)");
    expect(outcome(parseMesh('x=1'), bound, 'S(0)', 'S(1)')).toEqual(['R']);
    expect(outcome(xy, call('aten.mul.Tensor', [8], [8]), 'P(sum)P(avg)', 'RR')).toEqual([
      'P(sum)P(avg)',
    ]);
  });
});

describe('a later dim that a view merges', () => {
  const table = builtinOperators();
  const view: Bound = (() => {
    const record = table.get('aten.view.default')!;
    const meta: TensorMeta = { dtype: 'f32', shape: [4, 8] };
    const outputs: TensorMeta[] = [{ dtype: 'f32', shape: [32] }];
    const bound = withOutputs(
      bindCall(record, [{ kind: 'value', name: 'x' }, [32]], {}, () => meta),
      outputs,
    );
    return { rules: record.shard(bound), inputs: [meta], outputs };
  })();

  test('is refused by the strict reading, which makes no strides; the first dim stands', () => {
    expect(outcome(x2, view, 'S(0)')).toEqual(['S(0)']);
    expect(outcome(x2, view, 'S(1)')).toMatch(/no rule takes S\(1\)/);
  });
});

test('a call whose rules take its inputs in too many ways is refused', () => {
  const bound = call('aten.relu.default', [8, 8]);
  const mesh = parseMesh('a=2,b=2,c=2,d=2');
  const replicate = { inputs: [R], outputs: [R], origin: 'base' } as const;
  const rules = (count: number): Bound => ({
    ...bound,
    rules: Array.from({ length: count }, () => replicate),
  });
  // The all-replicate rule of every call comes to them.
  expect(outcome(mesh, rules(2), 'RRRR')).toHaveLength(3 ** 4);
  expect(() => ask(mesh, rules(32), 'RRRR')).toThrow('in 1185921 ways, more than 1048576');
});
