import { describe, expect, it } from 'vitest';

import { graphHash } from '../../src/graph/hash.ts';
import { lintGraph } from '../../src/graph/lint.ts';
import { parametersOf } from '../../src/graph/parameters.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import type { Graph } from '../../src/graph/types.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { graphFlops } from '../../src/ops/flops.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import { OperatorTable } from '../../src/ops/record/table.ts';
import { MLP } from '../../src/trace/nn/feed-forward.ts';
import { dim, randomKey, spec } from '../../src/trace/record/spec.ts';
import { type Size, sizes } from '../../src/trace/sizes/sizes.ts';
import {
  dropout,
  matmul,
  rand,
  randn,
  splitKey,
  zeros,
} from '../../src/trace/tensor/functional.ts';
import { buffer, guardOn, param, scope, withSharding } from '../../src/trace/tensor/state.ts';
import { apply } from '../../src/trace/tensor/tensor.ts';
import { capture, input, parameter, type Tensor, trace } from '../../src/trace/trace.ts';
import { errorOf } from './support.ts';

const table = builtinOperators();
const mlp = new MLP('', [128, 256, 64]);
const model = ({ x }: { x: Tensor }): Tensor => mlp.forward(x);

const calls = (graph: Graph): string[] =>
  graph.nodes.filter((n) => n.kind === 'call').map((n) => n.name);
const text = (graph: Graph): string => printGraph(graph, { source: false });
const line = (n: number): number =>
  Number(/trace\.test\.ts:(\d+)/.exec(new Error().stack?.split('\n')[2] ?? '')?.[1]) + n;

describe('a traced MLP', () => {
  const graph = trace(model, { x: spec([8, 128]) });

  it('5 placeholders, 3 calls, 1 output; FLOPs and parameters', () => {
    expect(graph.nodes.filter((n) => n.kind === 'placeholder')).toHaveLength(5);
    expect(calls(graph)).toEqual(['linear', 'relu', 'linear_1']);
    expect(graph.outputs).toHaveLength(1);
    expect(graphFlops(graph, table).total).toBe(786_432);
    expect(parametersOf(graph).reduce((n, p) => n + p.elements, 0)).toBe(49_472);
  });

  it('the text: names, module paths, state before inputs', () => {
    expect(text(graph)).toMatchInlineSnapshot(`
      "swgraph 1
      graph @model {
        in %fc1.weight: f32[256, 128] parameter "fc1.weight"
        in %fc1.bias: f32[256] parameter "fc1.bias"
        in %fc2.weight: f32[64, 256] parameter "fc2.weight"
        in %fc2.bias: f32[64] parameter "fc2.bias"
        in %x: f32[8, 128] input "x"
        %linear = aten.linear.default(%x, %fc1.weight, %fc1.bias): f32[8, 256] ; forward path="fc1"
        %relu = aten.relu.default(%linear): f32[8, 256] ; forward
        %linear_1 = aten.linear.default(%relu, %fc2.weight, %fc2.bias): f32[8, 64] ; forward path="fc2"
        out %linear_1 output 0
      }
      "
    `);
  });

  it('print, parse, print; the hash does not see positions', () => {
    const printed = printGraph(graph);
    expect(printed).toContain('source="test/trace/trace.test.ts:');
    expect(printGraph(parseGraph(printed))).toBe(printed);
    expect(graphHash(parseGraph(text(graph)))).toBe(graphHash(graph));
    lintGraph(graph, (node, typeOf) => inferCall(table, node, typeOf));
  });
});

describe('dtypes', () => {
  it('a product of two dtypes, a mean of integers, a name that is not a dtype', () => {
    const refused = (fn: (x: Tensor, y: Tensor) => Tensor, dtype: 'bf16' | 'i64'): string => {
      const error = errorOf(() =>
        trace(({ x, y }) => fn(x, y), { x: spec([2, 2]), y: spec([2, 2], dtype) }),
      );
      return `${error.code} ${error.message.replace(/ at .*/, '')}`;
    };
    expect(refused((x, y) => x.matmul(y), 'bf16')).toBe(
      'E_DTYPE mm: dtypes differ, f32[2, 2] x bf16[2, 2]',
    );
    expect(refused((x, y) => y.linear(x), 'bf16')).toBe(
      'E_DTYPE linear: dtypes differ, bf16[2, 2] x f32[2, 2]',
    );
    expect(refused((_, y) => y.mean(), 'i64')).toBe('E_DTYPE mean: i64[2, 2] is not floating');
    expect(errorOf(() => spec([2], 'float32' as 'f32')).code).toBe('E_TRACE_INPUT');
    const named = (dtype: string) =>
      trace(() => param('w', { shape: [2], dtype: dtype as 'f32' }).sin(), {});
    expect(errorOf(() => named('bfloat16')).message).toContain("'bfloat16' is not a dtype");
    // A description of a tensor describes a parameter too.
    const { nodes } = trace(({ x }) => x.matmul(param('w', spec([2, 3], 'bf16'))), {
      x: spec([4, 2], 'bf16'),
    });
    expect(nodes[0]).toMatchObject({
      meta: { role: 'parameter' },
      type: { dtype: 'bf16', shape: [2, 3] },
    });
    expect(errorOf(() => trace(() => param('w', spec([dim('n')])).sin(), {})).code).toBe(
      'E_TRACE_INPUT',
    );
  });

  it('any random operator without a key, also by its name', () => {
    const draw = (kwargs: Record<string, Tensor>) =>
      apply('aten.bernoulli.p', [zeros([2]), 0.5], kwargs);
    expect(errorOf(() => trace(() => draw({}), {})).code).toBe('E_TRACE_IMPURE');
    expect(
      trace(({ key }) => draw({ generator: key }), { key: randomKey() }).nodes.at(-1)?.target,
    ).toBe('aten.bernoulli.p');
  });
});

describe('names of policies', () => {
  it('a policy with a call of its own names it; controlFlow is auto', () => {
    const at = (policy: string) =>
      errorOf(() => trace(({ x }) => x, { x: spec([2]) }, { policy: policy as 'auto' }));
    expect([at('regions').code, at('regions').details.hint]).toEqual([
      'E_USAGE',
      expect.stringContaining('captureRegions'),
    ]);
    expect(at('cfg').details.hint).toContain('structure');
    expect(at('opaque').details.hint).toContain('customOp');
    expect(at('banana').message).toBe("there is no policy 'banana'");
  });
});

describe('dims', () => {
  it('a dynamic batch keeps its name in shapes and guards', () => {
    const { graph, guards } = capture(model, { x: spec([dim('s0', { min: 2, max: 512 }), 128]) });
    expect(printGraph(graph)).toContain('dim s0 in [2, 512]\n');
    expect(printGraph(graph)).toMatch(/%linear_1 = aten\.linear\.default\(.*\): f32\[s0, 64\] ;/);
    const last = graph.nodes.at(-1);
    expect(last?.type).toMatchObject({ dtype: 'f32', shape: [{ sym: 's0' }, 64] });
    expect(guards.map((g) => g.text).slice(0, 3)).toEqual([
      'inputs {"x": *}',
      'x: f32[s0, 128]',
      '2 <= s0 <= 512',
    ]);
    expect(printGraph(parseGraph(printGraph(graph)))).toBe(printGraph(graph));
  });

  const branching =
    (bigger: (size: Size) => boolean) =>
    ({ x }: { x: Tensor }): Tensor =>
      bigger(x.size(0)) ? x.sin() : x.cos();

  it('a comparison by method leaves its predicate, in the sense in which it held', () => {
    const above = branching((size) => typeof size === 'number' || size.gt(4));
    const at = (example: number): string[] => [
      ...capture(above, { x: spec([dim('s0', { example })]) }).report.guards.filter((g) =>
        g.includes(' at '),
      ),
    ];
    expect(at(8)).toEqual([
      expect.stringMatching(/^s0 > 4 at test\/trace\/trace\.test\.ts:\d+:\d+$/),
    ]);
    expect(at(3)).toEqual([expect.stringMatching(/^s0 <= 4 at /)]);
    expect(calls(capture(above, { x: spec([dim('s0', { example: 3 })]) }).graph)).toEqual(['cos']);
  });

  it('a comparison by coercion fixes the size and says so', () => {
    const { report } = capture(
      branching((size) => (size as number) > 4),
      { x: spec([dim('s0')]) },
    );
    expect(report.guards.at(-2)).toMatch(/^s0 == 8 at test\/trace\/trace\.test\.ts:\d+:\d+$/);
    expect(report.specialised).toEqual([
      expect.stringMatching(/^specialised s0 = 8 at test\/trace\/trace\.test\.ts/),
    ]);
  });

  it('an unbacked dim decides nothing', () => {
    for (const ask of [
      (s: Size) => (s as number) > 4,
      (s: Size) => typeof s !== 'number' && s.gt(4),
    ]) {
      const error = errorOf(() =>
        trace(branching(ask), { x: spec([dim('u0', { unbacked: true })]) }),
      );
      expect(error.code).toBe('E_DATA_DEPENDENT');
      expect(error.message).toContain('u0');
    }
  });

  const SHAPES: readonly (readonly [name: string, build: (x: Tensor) => Tensor, shape: string])[] =
    [
      ['cat adds', (x) => x.add(0).repeat(3, 1), '[3*b, s]'],
      ['flatten multiplies', (x) => x.flatten(), '[b*s]'],
      ['view with -1', (x) => x.view(-1, x.size(1)), '[b, s]'],
      ['slice subtracts', (x) => x.slice(0, 1), '[b - 1, s]'],
      ['pad adds', (x) => x.pad([1, 2]), '[b, s + 3]'],
      ['outer product', (x) => x.t().matmul(x), '[s, s]'],
      [
        'sizes in arguments',
        (x) => x.unsqueeze(2).expand(x.size(0), x.size(1), sizes.mul(x.size(0), 2)),
        '[b, s, 2*b]',
      ],
      ['windows divide', (x) => x.unsqueeze(0).unsqueeze(0).maxPool2d(2), '[1, 1, b//2, s//2]'],
      [
        'windows with stride',
        (x) => x.unsqueeze(0).unsqueeze(0).maxPool2d(3, 2),
        '[1, 1, (b - 1)//2, (s - 1)//2]',
      ],
      [
        'kept through a quotient',
        (x) => x.unsqueeze(0).unsqueeze(0).maxPool2d(2).relu().flatten(2),
        '[1, 1, (b//2)*(s//2)]',
      ],
      ['a fixed size', (x) => x.sum([0], true), '[1, s]'],
    ];
  for (const [name, build, shape] of SHAPES)
    it(`result sizes: ${name}`, () => {
      const graph = trace(({ x }) => build(x), {
        x: spec([dim('b', { example: 20 }), dim('s', { example: 30 })]),
      });
      const type = graph.nodes.at(-1)?.type;
      const printed =
        type?.kind === 'tensor' ? type.shape.map((d) => (typeof d === 'number' ? d : d.sym)) : [];
      expect(`[${printed.join(', ')}]`).toBe(shape);
    });

  it('sizes that must agree are refused, with the sizes at which the call fails', () => {
    const inputs = { x: spec([dim('a', { example: 8 })]), y: spec([dim('b', { example: 8 })]) };
    const error = errorOf(() => trace(({ x, y }) => x.add(y), inputs));
    expect(error.code).toBe('E_SHAPE');
    expect(error.message).toMatch(
      /add: fits for a = 8, b = 8, but not for a = \d+, b = 8: .*got f32\[a\] and f32\[b\] at/,
    );
    expect(
      errorOf(() => trace(({ x }) => x.view(-1, 4), { x: spec([dim('n')]) })).details.hint,
    ).toContain('multiple');
    expect(
      trace(({ x }) => x.view(-1, 4), { x: spec([dim('n', { multiple: 4 })]) }).nodes.at(-1)?.type,
    ).toMatchObject({
      shape: [{ sym: 'n//4' }, 4],
    });
  });
});

describe('what is refused', () => {
  it('random numbers of the host', () => {
    const error = errorOf(() => trace(({ x }) => x.add(1).mul(Math.random()), { x: spec([2]) }));
    expect(error.code).toBe('E_TRACE_UNSTABLE');
    expect(error.message).toMatch(
      /first %mul = aten\.mul\.Tensor\(%add, 0\.\d+.*then %mul = .* at test\/trace\/trace\.test\.ts/,
    );
    let counter = 0;
    expect(
      errorOf(() => trace(({ x }) => (counter++ > 0 ? x.sin() : x.cos()), { x: spec([2]) })).code,
    ).toBe('E_TRACE_UNSTABLE');
  });

  it('a tensor kept from another trace: both lines', () => {
    let kept: Tensor | undefined;
    trace(({ x }) => (kept = x.sin()), { x: spec([2]) }, { checkTwice: false });
    const made = line(-1);
    const used = line(1);
    const error = errorOf(() => trace(({ x }) => x.add(kept as Tensor), { x: spec([2]) }));
    expect(error.code).toBe('E_TRACE_LEAK');
    expect(error.message).toContain(`made at test/trace/trace.test.ts:${made}:`);
    expect(error.message).toMatch(
      new RegExp(`it was used at test/trace/trace\\.test\\.ts:${used}:`),
    );
    expect(errorOf(() => kept?.add(1)).code).toBe('E_TRACE_LEAK');
    expect(errorOf(() => param('w', [2])).code).toBe('E_TRACE_LEAK');
  });

  it('reading values, async functions, random operators without a key, other leaves', async () => {
    const code = (fn: (x: Tensor) => unknown): string =>
      errorOf(() => trace(fn as (x: Tensor) => Tensor, [spec([2])])).code;
    expect(code((x) => x.sum().item())).toBe('E_TRACE_HOST_READ');
    expect(code((x) => x.toArray())).toBe('E_TRACE_HOST_READ');
    expect(code((x) => Promise.resolve(x.sin()))).toBe('E_TRACE_ASYNC');
    expect(
      code(async (x) => {
        await Promise.resolve();
        throw new Error(String(x));
      }),
    ).toBe('E_TRACE_ASYNC');
    expect(code((x) => dropout(x, 0.5))).toBe('E_TRACE_IMPURE');
    expect(code(() => rand([2]))).toBe('E_TRACE_IMPURE');
    const error = errorOf(() =>
      trace(({ a }: never) => a, { a: { b: [spec([2]), new Map()] } } as never),
    );
    expect([error.code, error.details.path]).toEqual(['E_TRACE_INPUT', 'a.b.1']);
    expect(error.message).toContain("input 'a.b.1' of the traced function is a Map");
    await Promise.resolve();
  });

  it('outputs are tensors, sizes and host constants', () => {
    const code = (result: unknown): string =>
      errorOf(() => trace((() => result) as () => Tensor, [spec([2])])).code;
    expect(code(undefined)).toBe('E_TRACE_INPUT');
    expect(code([])).toBe('E_TRACE_INPUT');
    expect(code(3)).toBe('E_TRACE_INPUT');
    expect(code({ a: new Set() })).toBe('E_TRACE_INPUT');
    const cyclic: unknown[] = [];
    cyclic.push(cyclic);
    expect(code(cyclic)).toBe('E_TRACE_INPUT');
  });

  it("a product that does not fit, at the caller's line", () => {
    const inputs = { a: spec([4, 512]), b: spec([480, 16]) };
    const here = line(1);
    const error = errorOf(() => trace(({ a, b }) => scope('mlp', () => matmul(a, b)), inputs));
    expect(error.code).toBe('E_SHAPE');
    expect(error.message).toContain('matmul: inner sizes differ, [4, 512] x [480, 16]');
    expect(error.message).toMatch(
      new RegExp(`at test/trace/trace\\.test\\.ts:${here}:\\d+ \\(mlp\\)$`),
    );
    expect(error.details).toMatchObject({ path: 'mlp', position: { line: here } });
  });

  const MISFITS: readonly (readonly [
    name: string,
    build: (x: Tensor, i: Tensor) => Tensor,
    code: string,
    words: string,
  ])[] = [
    ['broadcast', (x) => x.add(x.t()), 'E_SHAPE', 'got f32[4, 8] and f32[8, 4]'],
    ['view', (x) => x.view(5, 5), 'E_SHAPE', 'f32[4, 8]'],
    ['cat', (x) => x.index(null).gather(0, x), 'E_DTYPE', 'f32[4, 8]'],
    ['dim', (x) => x.sum([3]), 'E_SHAPE', 'dim 3 does not exist'],
    ['bmm', (x) => x.bmm(x), 'E_SHAPE', 'f32[4, 8]'],
    ['linear', (x) => x.linear(x.t()), 'E_SHAPE', 'f32[4, 8] and f32[8, 4]'],
  ];
  for (const [name, build, code, words] of MISFITS)
    it(`a call that does not fit: ${name}`, () => {
      const error = errorOf(() =>
        trace(({ x, i }) => build(x, i), { x: spec([4, 8]), i: spec([4], 'i64') }),
      );
      expect([error.code, error.message]).toEqual([code, expect.stringContaining(words)]);
      expect(error.message).toMatch(/ at test\/trace\/trace\.test\.ts:\d+:\d+$/);
    });

  it('an operator without a record', () => {
    expect(
      errorOf(() => trace(({ x }) => x.relu(), { x: spec([2]) }, { table: new OperatorTable([]) }))
        .code,
    ).toBe('E_UNKNOWN_OP');
  });
});

describe('inputs, outputs and state', () => {
  it('nested trees keep their form; keys are visited in sorted order', () => {
    const { graph, inputTree, outputTree } = capture(
      ({ b, a, n }) => ({ z: [b[0].add(a), n], y: b[1].mul(n) }),
      {
        b: [spec([2]), spec([2])],
        n: 3,
        a: spec([2]),
      },
    );
    expect(graph.nodes.filter((v) => v.kind === 'placeholder').map((v) => v.meta.roleName)).toEqual(
      ['a', 'b.0', 'b.1'],
    );
    expect(inputTree.kind).toBe('record');
    expect(outputTree).toMatchObject({
      kind: 'record',
      entries: [
        ['y', { kind: 'leaf', leaf: { output: 0 } }],
        ['z', { kind: 'list', items: [{ leaf: { output: 1 } }, { kind: 'host', value: 3 }] }],
      ],
    });
    expect(graph.outputs.map((o) => o.value)).toEqual(['mul', 'add']);
  });

  it('state is declared once, by name below the scopes', () => {
    const twice = ({ x }: { x: Tensor }): Tensor =>
      scope('a', () =>
        scope('b', () =>
          x
            .mul(param('w', [2]))
            .add(param('w', [2]))
            .add(buffer('m', { shape: [2] })),
        ),
      );
    const graph = trace(twice, { x: spec([2]) });
    expect(graph.nodes.slice(0, 3).map((n) => [n.meta.role, n.meta.roleName])).toEqual([
      ['parameter', 'a.b.w'],
      ['buffer', 'a.b.m'],
      ['input', 'x'],
    ]);
    expect(graph.nodes.at(-1)?.meta.path).toBe('a.b');
    const error = errorOf(() =>
      trace(({ x }) => x.mul(param('w', [2])).add(param('w', [3])), { x: spec([2]) }),
    );
    expect(error.message).toContain(
      "'w' is declared as parameter f32[3], but was declared as parameter f32[2]",
    );
  });

  it('a list of inputs is spread over the arguments', () => {
    const graph = trace((x, n, w) => x.mul(n).matmul(w), [input([2, 3]), 2, parameter([3, 4])]);
    expect(text(graph)).toContain(
      'in %arg2: f32[3, 4] parameter "arg2"\n  in %arg0: f32[2, 3] input "arg0"',
    );
  });

  it('keys make random operators reproducible', () => {
    const graph = trace(
      ({ x, key }) => {
        const [a, b] = splitKey(key, 2);
        return dropout(x, 0.25, a).add(randn([2], b));
      },
      { x: spec([2]), key: randomKey() },
    );
    expect(graph.nodes.find((n) => n.name === 'key')?.meta.role).toBe('key');
    const draw = graph.nodes.find((n) => n.target === 'aten.bernoulli.p');
    expect(draw?.kwargs).toEqual({ generator: { kind: 'value', name: 'remainder' } });
  });

  it('host state read through guardOn is a guard', () => {
    let mode = 'train';
    const fn = ({ x }: { x: Tensor }): Tensor =>
      guardOn('mode', () => mode) === 'train' ? x.sin() : x.cos();
    expect(capture(fn, { x: spec([2]) }).report.guards).toContain('mode == "train"');
    mode = 'eval';
    expect(calls(trace(fn, { x: spec([2]) }))).toEqual(['cos']);
  });

  it('stated shardings stand in the graph', () => {
    const graph = trace(
      ({ x }) => withSharding(x.sin(), 'S(0)R'),
      { x: spec([4, 4]) },
      { mesh: 'dp=2,tp=2' },
    );
    expect(graph.given).toEqual([{ value: 'sin', sharding: 'S(0)R', strength: 'pin' }]);
    expect(errorOf(() => trace(({ x }) => withSharding(x, 'R'), { x: spec([4]) })).code).toBe(
      'E_TRACE_INPUT',
    );
    const pinned = (placements: string | string[]) =>
      trace(
        ({ x }) => withSharding(x.sin(), placements),
        { x: spec([4, 4]) },
        { mesh: 'dp=2,tp=2' },
      );
    expect(pinned(['S(0)', 'R']).given).toEqual(graph.given);
    for (const wrong of ['S(0)', 'S(2)R', 'T(0)R', 'S(0)RR'])
      expect(errorOf(() => pinned(wrong)).code, wrong).toBe('E_TRACE_INPUT');
  });

  it('gradients are wanted of what asks for them and what follows from it', () => {
    const seen: boolean[] = [];
    trace(
      ({ x, y, p, q }) => {
        const [z, c] = [x.mul(y), y.gt(x)];
        seen.push(
          x.requiresGrad,
          y.requiresGrad,
          z.requiresGrad,
          c.requiresGrad,
          z.detach().requiresGrad,
          param('w', [2]).requiresGrad,
          p.requiresGrad,
          q.requiresGrad,
        );
        return z;
      },
      { x: spec([2], 'f32', { grad: true }), y: spec([2]), p: parameter([2]), q: input([2]) },
      { checkTwice: false },
    );
    expect(seen).toEqual([true, false, true, false, false, true, true, false]);
  });
});

describe('size and determinism', () => {
  it('a chain of 10,000 nodes and 2,000 nested scopes', () => {
    const deep = (x: Tensor, n: number): Tensor =>
      n === 0 ? x.sin() : scope('s', () => deep(x, n - 1));
    const graph = trace(
      ({ x }) => {
        let y = x;
        for (let i = 0; i < 10_000; i++) y = y.add(i);
        return deep(y, 2_000);
      },
      { x: spec([4]) },
      { checkTwice: false },
    );
    expect(graph.nodes).toHaveLength(10_002);
    expect(graph.nodes.at(-1)?.name).toBe('sin');
    expect(graph.nodes.at(-1)?.meta.path?.split('.')).toHaveLength(2_000);
    expect(printGraph(parseGraph(printGraph(graph)))).toBe(printGraph(graph));
  });

  it('the same model gives the same text', () => {
    const other = new MLP('', [128, 256, 64]);
    expect(text(trace(({ x }) => other.forward(x), { x: spec([8, 128]) }, { name: 'model' }))).toBe(
      text(trace(model, { x: spec([8, 128]) })),
    );
  });
});
