import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../../src/errors.ts';
import { graphHash } from '../../../src/graph/hash.ts';
import { parseGraph } from '../../../src/graph/text/parse.ts';
import { printGraph } from '../../../src/graph/text/write.ts';
import {
  type Arg,
  DTYPES,
  type Graph,
  type Node,
  type NodeMeta,
  type ValueType,
} from '../../../src/graph/types.ts';
import { setOwn, tensorType } from '../../../src/graph/value.ts';
import { binaryText } from '../../support/binary-text.ts';
import { FULL } from '../../support/full.ts';

/** Canonical text with every construct: it must come back unchanged. */
const CANONICAL = `swgraph 1
dim s0 in [2, 512] multiple 2
dim u0 in [0, inf]
graph @main {
  note "Roles are inferred."
  tie "fc1.weight" "fc2.weight"
  in %w: f32[256, 128] parameter "fc1.weight"
  in %v: f32[256, 128] parameter "fc2.weight" ; inferred
  in %x: f32[s0, 128] input "x" ; placement="S(0)R" source="m.py:1"
  in %g: f32[s0, 256] tangent 0
  in %m: f32[256, 128] state "fc1.weight" "exp_avg"
  in %n: sym(s0) arg 4
  in %k: u32[2] key "rng"
  %t = aten.t.default(%w): f32[128, 256] ; forward path="fc1" stride=[1, 128] source="mlp.ts:14:10"
  %mm = aten.mm.default(%x, %t): f32[s0, 256] ; forward
  %gt = aten.gt.Scalar(%mm, 0): b8[] ; forward savedOnly
  %true_graph = get_attr("true_0"): none ; forward
  %cond = cond(%gt, @true_0, @"<lambda>", [%mm]): (f32[s0, 256], none) ; backward stride=[[1, $(s0)], none]
  %getitem = operator.getitem(%cond, 0): f32[s0, 256] ; backward original="y[0]"
  %op = aten.op.default([1, -9223372036854775808, 1.0, -0.0, 1e+21, 1.5e-7, inf, -inf, nan], "a\\"b\\n", $(2*s0), slice(none, %n, 2), true, false, none, dtype=dtype:bf16, device=device:cuda:0, layout=layout:"my layout"): (sym, f8e4m3fn[]) ; optimizer
  out %getitem output 0
  out none grad "fc1.weight"
  out %w mutation "fc2.weight"
  out %m newstate "fc1.weight" "exp_avg"
  graph @true_0 {
    in %a: f32[s0, 256] arg 0
    out %a output 0
    out %a output 1
  }
  body @"<lambda>"
  graph @other {
    in %a: f32[s0, 256] arg 0
    out none output 0
    out none output 1
  }
}
`;

function failure(text: string): ShardwrightError {
  try {
    parseGraph(text);
  } catch (error) {
    if (error instanceof ShardwrightError) return error;
    throw error;
  }
  throw new Error('the text was not refused');
}

describe('graph text', () => {
  test('print(parse(s)) = s for canonical text', () => {
    expect(printGraph(parseGraph(CANONICAL))).toBe(CANONICAL);
  });

  test('a size has its example from the dim line, and says so itself where it has another', () => {
    const at = (line: string, size: string): string =>
      `swgraph 1\n${line}\ngraph @main {\n  in %x: f32[${size}] input "x"\n  out %x output 0\n}\n`;
    const read = (line: string, size: string): unknown => {
      const text = at(line, size);
      const graph = parseGraph(text);
      expect(printGraph(graph)).toBe(text);
      return graph.nodes[0].type.kind === 'tensor' ? graph.nodes[0].type.shape : undefined;
    };
    const s0 = (example: number) => ({ sym: 's0', example });
    // The usual example is the least admissible size of at least 8, else the largest below.
    expect(read('dim s0 in [2, 512]', 's0, 128')).toEqual([s0(8), 128]);
    expect(read('dim s0 in [2, 512] multiple 3', 's0')).toEqual([s0(9)]);
    expect(read('dim s0 in [2, 4]', 's0')).toEqual([s0(2)]);
    expect(read('dim s0 in [2, 512] example 20', 's0, 2*s0 + 1')).toEqual([
      s0(20),
      { sym: '2*s0 + 1', example: 41 },
    ]);
    expect(read('dim s0 in [2, 512] multiple 4 example none', 's0')).toEqual([{ sym: 's0' }]);
    // Two uses that disagree, an expression that does not follow, a name without a dim line.
    expect(read('dim s0 in [2, 512] example none', 's0=8, s0=9')).toEqual([s0(8), s0(9)]);
    expect(read('dim s0 in [2, 512]', 's0, 2*s0=5, s0//2=none')).toEqual([
      s0(8),
      { sym: '2*s0', example: 5 },
      { sym: 's0//2' },
    ]);
    expect(read('dim s0 in [2, 512]', 'u0=5, u1')).toEqual([
      { sym: 'u0', example: 5 },
      { sym: 'u1' },
    ]);
    expect(failure(at('dim s0 in [2, 512] example x', 's0')).details.position).toEqual({
      line: 2,
      column: 28,
    });
  });

  test('comments, blank lines and free indentation mean nothing', () => {
    const loose = CANONICAL.replaceAll('\n', '  # comment "x"\r\n\n').replaceAll(/^ +/gm, '\t');
    expect(parseGraph(loose)).toEqual(parseGraph(CANONICAL));
  });

  test('the record behind the text', () => {
    const graph = parseGraph(CANONICAL);
    expect(graph.dims).toEqual({
      s0: { min: 2, max: 512, multiple: 2 },
      u0: { min: 0, max: Infinity },
    });
    expect(graph.ties).toEqual([['fc1.weight', 'fc2.weight']]);
    const node = graph.nodes.find((n) => n.name === 'op')!;
    expect(node.args[0]).toEqual([
      1,
      -9223372036854775808n,
      ...[1, -0, 1e21, 1.5e-7, Infinity, -Infinity, NaN].map((value) => ({ kind: 'float', value })),
    ]);
    expect(node.args[2]).toEqual({ kind: 'size', size: { sym: '2*s0', example: 16 } });
    expect(graph.nodes.find((n) => n.name === 't')?.type).toEqual(
      tensorType('f32', [128, 256], [1, 128]),
    );
    expect(graph.subgraphs['<lambda>'].name).toBe('other');
  });

  test.each<[edit: [string, string], message: string]>([
    [['swgraph 1', 'swgraph 2'], '1:1 graph text version 2, this program reads version 1'],
    [['graph @main {', 'graph main {'], `4:7 expected '@', found 'main'`],
    [
      ['f32[256, 128] parameter', 'f32[256, 128 parameter'],
      `7:33 '"' cannot stand in a size expression`,
    ],
    [['f32[256, 128] parameter', 'g32[256, 128] parameter'], `7:10 'g32' is not a dtype`],
    [
      ['parameter "fc1', 'paramter "fc1'],
      '7:24 expected a role (parameter, buffer, constant, input, tangent, state, key, arg), found',
    ],
    [
      ['aten.mm.default(%x, %t)', 'aten.mm.default(%x %t)'],
      `15:28 expected ',' or ')', found '%t'`,
    ],
    [[': b8[] ; forward savedOnly', ' ; forward'], `16:32 expected ':', found ';'`],
    [['; forward savedOnly', '; forward saveOnly'], `16:48 'saveOnly' is not a tag`],
    [['stride=[1, 128]', 'stride=[1]'], '14:63 a stride of 1 numbers for a tensor of 2 dims'],
    [
      ['out none grad "fc1.weight"', 'out none grad'],
      '22:16 expected the role name of a placeholder, found the end of the line',
    ],
    [['"a\\"b\\n"', '"a'], `20:201 expected ',' or ')', found 'my'`],
    [['dtype=dtype:bf16', 'dtype=dtype:bfloat16'], `'bfloat16' is not a dtype`],
    [['1.5e-7', '1.5e'], '20:69 a number with an empty exponent'],
    [['1.5e-7', '1.5x'], `20:72 a number ends in a letter`],
    [['graph @other {', 'graph @other {\n  graph @other {'], 'expected'],
  ])('E_GRAPH_PARSE %j', ([from, to], message) => {
    const broken = CANONICAL.replace(from, to);
    expect(broken).not.toBe(CANONICAL);
    const error = failure(broken);
    expect(error.code).toBe('E_GRAPH_PARSE');
    expect(
      `${error.details.position?.line}:${error.details.position?.column} ${error.message}`,
    ).toContain(message.trim());
  });

  test('a graph that breaks a rule is refused after reading', () => {
    expect(
      failure(CANONICAL.replace('%mm = aten.mm.default(%x', '%mm = aten.mm.default(%y')).code,
    ).toBe('E_GRAPH_LINT');
  });

  test('every prefix of a text is refused with line and column, or by a rule', () => {
    const whole = CANONICAL.trimEnd().length;
    // Every third prefix, every one with SHARDWRIGHT_FULL.
    for (let end = 0; end < whole; end += FULL ? 1 : 3) {
      const error = failure(CANONICAL.slice(0, end));
      expect(error.code, `prefix of ${end}`).toBe('E_GRAPH_PARSE');
      expect(error.details.position?.column, `prefix of ${end}`).toBeGreaterThan(0);
    }
  });

  test('random damage gives a graph or a coded error', () => {
    const damage = fc.tuple(fc.nat(CANONICAL.length - 1), fc.nat(3), binaryText({ maxLength: 3 }));
    fc.assert(
      fc.property(fc.array(damage, { minLength: 1, maxLength: 3 }), (steps) => {
        let broken = CANONICAL;
        for (const [at, drop, put] of steps)
          broken = broken.slice(0, at) + put + broken.slice(at + drop);
        try {
          parseGraph(broken);
        } catch (error) {
          expect(error).toBeInstanceOf(ShardwrightError);
          expect((error as ShardwrightError).code).toMatch(/^E_GRAPH_(PARSE|LINT)$/);
        }
      }),
      { numRuns: FULL ? 3000 : 750, seed: 6 },
    );
  });

  test('20,000 graphs inside each other are a coded error', () => {
    expect(() => parseGraph(`swgraph 1\n${'graph @g {\n'.repeat(20_000)}`)).toThrow(
      'graphs nest deeper than 256',
    );
  });

  test('10,000 nested lists and tuples are a coded error', () => {
    const nest = (open: string): string =>
      `swgraph 1\ngraph @g {\n  %a = op(${open === '[' ? '['.repeat(10_000) : '1): '.concat('('.repeat(10_000))}`;
    for (const open of ['[', '('])
      expect(failure(nest(open)).message).toContain('nest deeper than 256');
  });
});

// Arbitrary graphs: hostile names, every literal, every type, every tag.
const name = fc.oneof(
  fc.constantFrom('__proto__', 'constructor', 'a', 'b_1', 'x.y', '<lambda>', '0x', 'é', 'a "b"'),
  fc.string({ minLength: 1, maxLength: 6 }),
);
const size = fc.oneof(
  fc.nat(9),
  fc.record({ sym: fc.constantFrom('s0', '2*((s77//2))', 'Max(1, u0)') }),
  fc.record({ sym: fc.constant('s1'), example: fc.nat(99) }),
);
const tensor = fc
  .tuple(
    fc.constantFrom(...DTYPES),
    fc.array(fc.tuple(size, fc.nat(20)), { maxLength: 3 }),
    fc.boolean(),
    fc.option(fc.constantFrom('S(0)R', 'P(sum)'), { nil: undefined }),
  )
  .map(([dtype, dims, strided, given]) =>
    tensorType(
      dtype,
      dims.map((d) => d[0]),
      strided ? dims.map((d) => d[1]) : undefined,
      given,
    ),
  );
const { type } = fc.letrec<{ type: ValueType }>((tie) => ({
  type: fc.oneof(
    { maxDepth: 2 },
    tensor,
    fc.constant<ValueType>({ kind: 'none' }),
    fc.constant<ValueType>({ kind: 'sym' }),
    fc.constant<ValueType>({ kind: 'sym', expr: 's0 + 1' }),
    fc.array(tie('type'), { maxLength: 3 }).map((items): ValueType => ({ kind: 'tuple', items })),
  ),
}));
const { arg } = fc.letrec<{ arg: Arg }>((tie) => ({
  arg: fc.oneof(
    { maxDepth: 2 },
    fc.maxSafeInteger().map((n) => (n === 0 ? 0 : n)),
    fc.bigInt({ min: 2n ** 53n, max: 2n ** 80n }),
    fc.double().map((value): Arg => ({ kind: 'float', value })),
    binaryText(),
    fc.boolean(),
    fc.constant(null),
    fc.constantFrom(...DTYPES).map((dtype): Arg => ({ kind: 'dtype', dtype })),
    fc
      .tuple(fc.constantFrom('device', 'layout'), fc.string({ minLength: 1 }))
      .map(([kind, word]) => ({ kind, word })),
    fc.constant<Arg>({ kind: 'size', size: { sym: 's0*4', example: 32 } }),
    fc
      .tuple(tie('arg'), tie('arg'))
      .map(([start, stop]): Arg => ({ kind: 'slice', start, stop, step: null })),
    fc.array(tie('arg'), { maxLength: 3 }),
  ),
}));
const meta = fc.record<Partial<NodeMeta>>(
  {
    phase: fc.constantFrom('backward', 'optimizer'),
    savedOnly: fc.constant(true),
    path: fc.string(),
    source: fc.string(),
    original: fc.string(),
  },
  { requiredKeys: [] },
) as fc.Arbitrary<NodeMeta>;
const graph = fc
  .tuple(
    fc.uniqueArray(name, { minLength: 2, maxLength: 6 }),
    fc.array(
      fc.tuple(
        fc.array(arg, { maxLength: 3 }),
        fc.array(fc.tuple(name, arg), { maxLength: 2 }),
        type,
        meta,
      ),
      { minLength: 5, maxLength: 5 },
    ),
    name,
    fc.array(fc.string(), { maxLength: 2 }),
  )
  .map(([names, bodies, graphName, notes]): Graph => {
    const nodes = names.map((own, i): Node => {
      const [args, pairs, valueType, nodeMeta] = bodies[i % bodies.length];
      if (i === 0)
        return {
          name: own,
          kind: 'placeholder',
          target: own,
          args: [],
          kwargs: {},
          type: valueType,
          meta: { role: 'input', roleName: own, inferred: true },
        };
      const kwargs: Record<string, Arg> = {};
      for (const [key, value] of pairs) setOwn(kwargs, key, value);
      return {
        name: own,
        kind: 'call',
        target: `aten.${i}op`,
        args: [{ kind: 'value', name: names[i - 1] }, ...args],
        kwargs,
        type: valueType,
        meta: nodeMeta,
      };
    });
    const outputs: Graph['outputs'] = [
      { value: names[0], role: 'output', index: 0 },
      { value: null, role: 'grad', of: names[0] },
    ];
    const inner: Graph = { name: 'inner', nodes: [], outputs: [], subgraphs: {} };
    const subgraphs: Record<string, Graph> = {};
    setOwn(subgraphs, graphName, inner);
    return { name: graphName, nodes, outputs, subgraphs, ...(notes.length > 0 ? { notes } : {}) };
  });

describe('round trip', () => {
  test('parse(print(g)) equals g for arbitrary graphs', () => {
    fc.assert(
      fc.property(graph, (g) => {
        const printed = printGraph(g);
        const again = parseGraph(printed);
        expect(again).toEqual(g);
        expect(printGraph(again)).toBe(printed);
      }),
      { numRuns: FULL ? 500 : 170, seed: 7 },
    );
  });

  test('graphHash ignores sources, notes and lines, and nothing else', () => {
    const g = parseGraph(CANONICAL);
    const hash = graphHash(g);
    expect(hash).toMatch(/^[0-9a-f]{16}$/);
    expect(
      graphHash(parseGraph(CANONICAL.replace('source="mlp.ts:14:10"', 'source="other.ts:1"'))),
    ).toBe(hash);
    expect(graphHash(parseGraph(CANONICAL.replace('  note "Roles are inferred."\n', '')))).toBe(
      hash,
    );
    expect(
      graphHash({ ...g, nodes: g.nodes.map((n) => ({ ...n, meta: { ...n.meta, line: 3 } })) }),
    ).toBe(hash);
    for (const [from, to] of [
      ['path="fc1"', 'path="fc2"'],
      ['%mm, 0', '%mm, 0.0'],
      ['[1, 128]', '[2, 128]'],
      ['dim u0 in [0', 'dim u0 in [1'],
    ])
      expect(graphHash(parseGraph(CANONICAL.replace(from, to)))).not.toBe(hash);
  });
});
