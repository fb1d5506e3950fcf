import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../../src/errors.ts';
import { gspmdText } from '../../../src/export/shardy/shardings.ts';
import type { Graph, Node } from '../../../src/graph/types.ts';
import { importGraph } from '../../../src/import/import.ts';
import { axesOf, commonAxes, tilingOf } from '../../../src/import/mlir/sharding/axes.ts';
import { parseGspmd, tileDevices } from '../../../src/import/mlir/sharding/gspmd.ts';
import { DeviceMesh } from '../../../src/mesh/devices/mesh.ts';
import { parseSharding } from '../../../src/mesh/sharding/parse.ts';
import type { Sharding } from '../../../src/mesh/sharding/sharding.ts';
import { infer, jaxText, mlirAnswers } from '../support-jax.ts';

/** A module with one function of two f32[4, 8] arguments; `body` ends before the return of `%r`. */
const module = (
  body: string,
  result = 'tensor<4x8xf32>',
  args = '%a: tensor<4x8xf32>, %b: tensor<4x8xf32>',
  before = '',
): string =>
  `${before}module @m {\n  func.func public @main(${args}) -> ${result} {\n${body}\n    return %r : ${result}\n  }\n}\n`;

const read = (text: string): Graph => importGraph(text, { infer });
const last = (graph: Graph): Node => graph.nodes[graph.nodes.length - 1];

function told(text: string): string {
  try {
    read(text);
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    expect(error.details.hint ?? '').not.toBe('');
    return `${error.code} ${error.details.position?.line}:${error.details.position?.column} ${error.message}`;
  }
  throw new Error('the import was not refused');
}

describe('pretty and generic forms give one graph', () => {
  const T = 'tensor<4x8xf32>';
  test.each<[what: string, pretty: string, generic: string, result?: string]>([
    [
      'add',
      `%r = stablehlo.add %a, %b : ${T}`,
      `%r = "stablehlo.add"(%a, %b) : (${T}, ${T}) -> ${T}`,
    ],
    [
      'compare',
      `%c = stablehlo.compare  LT, %a, %b : (${T}, ${T}) -> tensor<4x8xi1>\n%r = stablehlo.select %c, %a, %b : tensor<4x8xi1>, ${T}`,
      `%c = "stablehlo.compare"(%a, %b) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (${T}, ${T}) -> tensor<4x8xi1>\n%r = "stablehlo.select"(%c, %a, %b) : (tensor<4x8xi1>, ${T}, ${T}) -> ${T}`,
    ],
    [
      'clamp',
      `%z = stablehlo.constant dense<0.0> : tensor<f32>\n%r = stablehlo.clamp %z, %a, %z : (tensor<f32>, ${T}, tensor<f32>) -> ${T}`,
      `%z = "stablehlo.constant"() <{value = dense<0.0> : tensor<f32>}> : () -> tensor<f32>\n%r = "stablehlo.clamp"(%z, %a, %z) : (tensor<f32>, ${T}, tensor<f32>) -> ${T}`,
    ],
    [
      'concatenate',
      `%r = stablehlo.concatenate %a, %b, dim = 0 : (${T}, ${T}) -> tensor<8x8xf32>`,
      `%r = "stablehlo.concatenate"(%a, %b) <{dimension = 0 : i64}> : (${T}, ${T}) -> tensor<8x8xf32>`,
      'tensor<8x8xf32>',
    ],
    [
      'slice',
      `%r = stablehlo.slice %a [0:4:2, 1:8] : (${T}) -> tensor<2x7xf32>`,
      `%r = "stablehlo.slice"(%a) <{limit_indices = array<i64: 4, 8>, start_indices = dense<[0, 1]> : tensor<2xi64>, strides = array<i64: 2, 1>}> : (${T}) -> tensor<2x7xf32>`,
      'tensor<2x7xf32>',
    ],
    [
      'pad',
      `%z = stablehlo.constant dense<0.0> : tensor<f32>\n%r = stablehlo.pad %a, %z, low = [0, 1], high = [1, 0], interior = [0, 0] : (${T}, tensor<f32>) -> tensor<5x9xf32>`,
      `%z = stablehlo.constant dense<0.0> : tensor<f32>\n%r = "stablehlo.pad"(%a, %z) {edge_padding_low = array<i64: 0, 1>, edge_padding_high = array<i64: 1, 0>, interior_padding = dense<0> : tensor<2xi64>} : (${T}, tensor<f32>) -> tensor<5x9xf32>`,
      'tensor<5x9xf32>',
    ],
    [
      'reverse',
      `%r = stablehlo.reverse %a, dims = [0] : ${T}`,
      `%r = "stablehlo.reverse"(%a) <{dimensions = array<i64: 0>}> : (${T}) -> ${T}`,
    ],
    [
      'reduce_precision',
      `%r = stablehlo.reduce_precision %a, format = e5m10 : ${T}`,
      `%r = "stablehlo.reduce_precision"(%a) <{exponent_bits = 5 : i32, mantissa_bits = 10 : i32}> : (${T}) -> ${T}`,
    ],
    [
      'dot_general',
      `%r = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [1] x [1], precision = [HIGHEST, DEFAULT] : (${T}, ${T}) -> tensor<4xf32>`,
      `%r = "stablehlo.dot_general"(%a, %b) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision DEFAULT>]}> : (${T}, ${T}) -> tensor<4xf32>`,
      'tensor<4xf32>',
    ],
    [
      'the older dialect',
      `%r = stablehlo.transpose %a, dims = [1, 0] : (${T}) -> tensor<8x4xf32>`,
      `%r = "stablehlo.transpose"(%a) {permutation = dense<[1, 0]> : tensor<2xi64>} : (${T}) -> tensor<8x4xf32>`,
      'tensor<8x4xf32>',
    ],
  ])('%s', (_, pretty, generic, result = T) => {
    const [a, b] = [read(module(pretty, result)), read(module(generic, result))];
    // Strides of 1 and an absent list mean the same; both are written out here.
    const plain = (g: Graph): unknown =>
      g.nodes.map(({ name, target, args, type }) => [name, target, args, type]);
    expect(plain(a)).toEqual(plain(b));
    expect(last(a).kwargs).toEqual(last(b).kwargs);
  });

  test('convolution with its window, and top_k, sort and composite', () => {
    const conv = read(
      module(
        '%r = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[3, 3], [3, 3]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x8x3xf32>, tensor<7x7x3x16xf32>) -> tensor<2x4x4x16xf32>',
        'tensor<2x4x4x16xf32>',
        '%a: tensor<2x8x8x3xf32>, %b: tensor<7x7x3x16xf32>',
      ),
    );
    expect(last(conv).kwargs).toMatchObject({
      input_dimensions: [0, 3, 1, 2],
      kernel_dimensions: [2, 3, 0, 1],
      padding: [3, 3, 3, 3],
    });
    const top = read(
      module(
        '%v, %i = chlo.top_k(%a, k = 3) : tensor<4x8xf32> -> (tensor<4x3xf32>, tensor<4x3xi32>)\n%r = stablehlo.negate %v : tensor<4x3xf32>',
        'tensor<4x3xf32>',
      ),
    );
    expect(top.nodes.find((n) => n.target === 'chlo.top_k')?.type).toMatchObject({
      items: [{ shape: [4, 3] }, { dtype: 'i32' }],
    });
    const sorted = read(
      module(
        '%r = "stablehlo.sort"(%a) <{dimension = 1 : i64, is_stable = true}> ({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n%c = stablehlo.compare LT, %x, %y, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>\nstablehlo.return %c : tensor<i1>\n}) : (tensor<4x8xf32>) -> tensor<4x8xf32>',
      ),
    );
    expect(Object.keys(sorted.subgraphs)).toEqual(['r_comparator']);
    const text = module(
      '%r = stablehlo.composite "my.op" %a, %b {composite_attributes = {k = 1 : i64}, decomposition = @f} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>',
    ).replace(
      /\n}\n$/,
      '\n  func.func private @f(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {\n    %s = stablehlo.add %x, %y : tensor<4x8xf32>\n    return %s : tensor<4x8xf32>\n  }\n}\n',
    );
    expect(read(text).nodes.find((n) => n.target === 'call')?.kwargs).toEqual({
      composite: 'my.op',
    });
  });

  test('tuples are names of their members', () => {
    const body = `%t = stablehlo.tuple %a, %b : tuple<${T}, ${T}>\n%r = stablehlo.get_tuple_element %t[1] : (tuple<${T}, ${T}>) -> ${T}`;
    const graph = read(module(body));
    expect(graph.outputs).toEqual([{ value: 'b', role: 'output', index: 0 }]);
    expect(graph.nodes.length).toBe(2);
  });
});

describe('constants', () => {
  const value = (payload: string, type: string): unknown =>
    last(read(module(`%r = stablehlo.constant dense<${payload}> : ${type}`, type))).args[0];
  test.each<[string, string, unknown]>([
    ['1.000000e+00', 'tensor<4xf32>', { kind: 'float', value: 1 }],
    ['9.99999974E-6', 'tensor<f32>', { kind: 'float', value: 9.99999974e-6 }],
    ['0xFF800000', 'tensor<f32>', { kind: 'float', value: -Infinity }],
    ['0x7FC0', 'tensor<bf16>', { kind: 'float', value: NaN }],
    ['0x3C00', 'tensor<f16>', { kind: 'float', value: 1 }],
    ['0x7E', 'tensor<f8E4M3FN>', '0x7E'],
    ['true', 'tensor<2xi1>', true],
    ['-9223372036854775808', 'tensor<i64>', -9223372036854775808n],
    ['[[1, 2], [3, 4]]', 'tensor<2x2xi32>', [1, 2, 3, 4]],
    ['[]', 'tensor<0xi32>', []],
    ['', 'tensor<0x3xi32>', []],
    ['(1.0, 2.0)', 'tensor<complex<f32>>', '(1.0, 2.0)'],
    [
      `[${Array.from({ length: 20 }, (_, i) => i).join(', ')}]`,
      'tensor<20xi32>',
      `[${Array.from({ length: 20 }, (_, i) => i).join(', ')}]`,
    ],
    ['"0x0000803F00000040"', 'tensor<2xf32>', '"0x0000803F00000040"'],
  ])('%s of %s', (payload, type, expected) => {
    expect(value(payload, type)).toEqual(expected);
  });
  test('elements that the text leaves out', () => {
    const graph = read(
      module(
        '%r = stablehlo.constant dense_resource<__elided__> : tensor<512x512xf32>',
        'tensor<512x512xf32>',
      ),
    );
    expect(last(graph).args).toEqual(['dense_resource<__elided__>']);
  });
});

describe('names, locations, roles', () => {
  test('argument names come from locations, and parameters from names', () => {
    const text = module(
      '%r = stablehlo.add %a, %b : tensor<4x8xf32> loc(#loc3)',
      'tensor<4x8xf32>',
      `%a: tensor<4x8xf32> loc("params['w']"), %b: tensor<4x8xf32> loc(#loc1)`,
    ).concat(
      '#loc1 = loc("x")\n#loc2 = loc("model.py":12:3)\n#loc3 = loc("jit(step)/layers_0/add"(#loc2))\n',
    );
    const [a, b, add] = read(text).nodes;
    expect([a.meta.role, a.meta.roleName, b.meta.role, b.meta.roleName]).toEqual([
      'parameter',
      "params['w']",
      'input',
      'x',
    ]);
    expect([add.meta.path, add.meta.source]).toEqual(['jit(step)/layers_0', 'model.py:12:3']);
  });
  test('a location may be a range of one line or of several', () => {
    const text = module(
      '%r = stablehlo.add %a, %b : tensor<4x8xf32> loc("sum"(#loc1))',
      'tensor<4x8xf32>',
      '%a: tensor<4x8xf32> loc("a"("model.py":3:4 to :9)), %b: tensor<4x8xf32> loc("b")',
    ).concat('#loc1 = loc("optax/tree_math.py":396:9 to 403:3)\n');
    const [a, , add] = read(text).nodes;
    expect([a.meta.roleName, add.meta.source]).toEqual(['a', 'optax/tree_math.py:396:9']);
  });
  test('a marked argument is a parameter; a name like a prototype key is a name', () => {
    const graph = read(
      module(
        '%r = stablehlo.add %__proto__, %b : tensor<4x8xf32>',
        'tensor<4x8xf32>',
        '%__proto__: tensor<4x8xf32> {shardwright.role = "parameter"}, %b: tensor<4x8xf32> loc("constructor")',
      ),
    );
    expect(graph.nodes.map((n) => [n.name, n.meta.role])).toEqual([
      ['__proto__', 'parameter'],
      ['b', 'input'],
      ['r', undefined],
    ]);
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  });
});

describe('bad text is refused with place and remedy', () => {
  const T = 'tensor<4x8xf32>';
  test.each<[what: string, text: string, message: string]>([
    [
      'an undefined value',
      module(`%r = stablehlo.add %a, %q : ${T}`),
      `E_REF 3:24 '%q' is not defined`,
    ],
    [
      'a value defined twice',
      module(`%a = stablehlo.negate %b : ${T}`),
      `E_DUP 3:1 '%a' is defined twice`,
    ],
    [
      'an operand of another type',
      module(`%r = stablehlo.negate %a : tensor<4x9xf32>`),
      `E_TYPE 3:23 '%a' is ${T}, stablehlo.negate says tensor<4x9xf32>`,
    ],
    [
      'a result of another type',
      module(`%r = stablehlo.transpose %a, dims = [1, 0] : (${T}) -> ${T}`),
      'E_TYPE 3:6 the text says (f32[4, 8]), but stablehlo.transpose gives (f32[8, 4])',
    ],
    [
      'a size that is not known',
      module('%r = stablehlo.negate %a : tensor<?x8xf32>'),
      'E_UNSUPPORTED 3:35 the tensor has a size that is only known at run time',
    ],
    [
      'an unknown element type',
      module('%r = stablehlo.negate %a : tensor<4x8xfoo>'),
      `E_TYPE 3:39 'foo' is not an element type`,
    ],
    [
      'a quantised type',
      module('%r = stablehlo.negate %a : tensor<4x8x!quant.uniform<i8:f32, 1.0>>'),
      'E_UNSUPPORTED 3:39 a tensor of quantised or opaque elements',
    ],
    [
      'a token',
      module('%r = stablehlo.after_all %a : (tensor<4x8xf32>) -> !stablehlo.token'),
      'E_UNSUPPORTED 3:6 a value of type !stablehlo.token',
    ],
    [
      'too few elements',
      module('%r = stablehlo.constant dense<[1, 2]> : tensor<3xi32>', 'tensor<3xi32>'),
      'E_TYPE 3:36 2 members along dim 0 of tensor<3xi32>',
    ],
    [
      'an undefined function',
      module(`%r = call @f(%a) : (${T}) -> ${T}`),
      `E_REF 3:6 function '@f' is not defined`,
    ],
    [
      'a function that calls itself',
      module(`%r = call @main(%a, %b) : (${T}, ${T}) -> ${T}`),
      `E_UNSUPPORTED 3:6 function '@main' calls itself`,
    ],
    [
      'no closing brace',
      module(`%r = stablehlo.negate %a : ${T}`).slice(0, -3),
      `E_SYNTAX 5:4 expected '}' at the end of the module, found the end of the text`,
    ],
    [
      'an undefined alias',
      module(`%r = "stablehlo.reverse"(%a) <{dimensions = #dims}> : (${T}) -> ${T}`),
      `E_REF 3:45 '#dims' is not defined`,
    ],
    [
      'several blocks',
      module('%q = stablehlo.negate %a : tensor<4x8xf32>\n^bb1:'),
      'E_UNSUPPORTED 4:1 the region has several blocks',
    ],
    [
      'an attribute twice',
      module(
        `%r = "stablehlo.reverse"(%a) <{dimensions = [0], dimensions = [1]}> : (${T}) -> ${T}`,
      ),
      `E_DUP 3:50 attribute 'dimensions' is given twice`,
    ],
    [
      'a wrong count of results',
      module(`%r:2 = stablehlo.negate %a : ${T}`),
      'E_TYPE 3:1 2 results are named, stablehlo.negate has 1',
    ],
    [
      'a result that is not there',
      module(`%r = stablehlo.negate %a#1 : ${T}`),
      `E_REF 3:23 '%a' has 1 results, not one with number 1`,
    ],
    [
      'an unknown mesh',
      module(
        `%r = stablehlo.negate %a : ${T}`,
        T,
        `%a: ${T} {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %b: ${T}`,
      ),
      `E_REF 2:76 mesh '@mesh' is not defined`,
    ],
    [
      'an unknown form',
      module('%r = foo.bar [1] %a : i32'),
      'E_UNSUPPORTED 3:6 the form of foo.bar is not known',
    ],
  ])('%s', (_, text, message) => {
    expect(told(text)).toBe(message);
  });

  test('a sharding of too many dims, an axis used twice, an unknown axis', () => {
    const sharded = (dims: string): string =>
      module(
        `%r = stablehlo.negate %a : ${T}`,
        T,
        `%a: ${T} {sdy.sharding = #sdy.sharding<@mesh, ${dims}>}, %b: ${T}`,
      ).replace('{\n', '{\nsdy.mesh @mesh = <["p"=2, "q"=4]>\n');
    expect(told(sharded('[{}]'))).toMatch(/^E_TYPE 3:\d+ a sharding of 1 dims for a tensor of 2$/);
    expect(told(sharded('[{"p"}, {"p"}]'))).toMatch(
      /^E_TYPE 3:\d+ mesh axis 'p' is used twice in one sharding$/,
    );
    expect(told(sharded('[{"z"}, {}]'))).toMatch(/^E_REF 3:\d+ the mesh has no axis 'z'$/);
    const parts = read(sharded('[{"q":(1)2}, {"q":(2)2, ?}p1]'));
    expect([parts.mesh, parts.given]).toEqual([
      'p=2,q.0=2,q.1=2',
      [{ value: 'a', sharding: 'RS(0)S(1)', strength: 'hint', priority: 1 }],
    ]);
  });

  test('limits hold before memory is taken', () => {
    expect(told(module(`%r = stablehlo.negate %a {x = ${'['.repeat(100_000)}} : ${T}`))).toMatch(
      /^E_LIMIT/,
    );
    expect(told(module(`%r = stablehlo.negate %${'x'.repeat(1 << 20)} : ${T}`))).toMatch(
      /^E_LIMIT/,
    );
    expect(told(module(`%r = stablehlo.negate %a : tensor<${'1x'.repeat(1000)}f32>`))).toMatch(
      /^E_LIMIT/,
    );
    expect(told(module(`%r = stablehlo.negate %a : tensor<99999999999999999999xf32>`))).toMatch(
      /^E_LIMIT/,
    );
    // Every function calls the next two: 2^40 nodes when written out.
    const chain = Array.from({ length: 40 }, (_, i) => {
      const call = (k: number): string =>
        `    %${k} = call @f${i + k}(%x) : (tensor<2xf32>) -> tensor<2xf32>\n`;
      const body = i < 38 ? call(1) + call(2) : '    %1 = stablehlo.negate %x : tensor<2xf32>\n';
      return `  func.func ${i === 0 ? 'public' : 'private'} @f${i}(%x: tensor<2xf32>) -> tensor<2xf32> {\n${body}    return %1 : tensor<2xf32>\n  }\n`;
    });
    expect(told(`module {\n${chain.join('')}}\n`)).toMatch(/^E_LIMIT/);
  });
});

describe('GSPMD strings', () => {
  const axes = [
    { size: 2, stride: 4 },
    { size: 4, stride: 1 },
  ];
  test.each<[spec: string, text: string, dims: number[][]]>([
    ["P('a','b')", '{devices=[2,4]<=[8]}', [[0], [1]]],
    ["P('b','a')", '{devices=[4,2]<=[2,4]T(1,0)}', [[1], [0]]],
    ["P(('a','b'),None)", '{devices=[8,1]<=[8]}', [[0, 1], []]],
    ["P(('b','a'))", '{devices=[8]<=[2,4]T(1,0)}', [[1, 0]]],
    ["P(None,'b')", '{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}', [[], [1]]],
    ["P('a',None)", '{devices=[2,1,4]<=[8] last_tile_dim_replicate}', [[0], []]],
  ])('%s is %s', (_, text, dims) => {
    const sharding = parseGspmd(text);
    if (sharding.kind !== 'tiled') throw new Error('not tiled');
    const tiling = tilingOf(sharding)!;
    expect(tiling.dims.slice(0, tiling.rank).map((factors) => axesOf(factors, axes))).toEqual(dims);
    // The list of devices written out means the same.
    const listed = parseGspmd(
      `{devices=[${sharding.tiles.join(',')}]${[...tileDevices(sharding.devices)].join(',')}${text.includes('last') ? ' last_tile_dim_replicate' : ''}}`,
    );
    if (listed.kind !== 'tiled') throw new Error('not tiled');
    expect(tilingOf(listed)!.dims.map((f) => axesOf(f, axes))).toEqual(
      tiling.dims.map((f) => axesOf(f, axes)),
    );
  });

  const mesh = (sizes: readonly number[]): DeviceMesh =>
    new DeviceMesh(sizes.map((size, i) => ({ name: `m${i}`, size })));
  /**
   * The string that the exporter writes for a tensor of that rank, with dims that any axes up to 4
   * cut evenly.
   */
  const gspmdOf = (sharding: Sharding, on: DeviceMesh, rank: number): string => {
    const written = gspmdText(sharding, on, new Array<number>(rank).fill(1728));
    if ('refused' in written) throw new Error(written.refused);
    return written.text;
  };

  test.each([
    ['S(0)S(1)', '{devices=[2,4]<=[8]}'],
    ['S(1)S(0)', '{devices=[4,2]<=[2,4]T(1,0)}'],
    ['S(0)S(0)', '{devices=[8,1]<=[8]}'],
    ['S(0)[1]S(0)[0]', '{devices=[8,1]<=[2,4]T(1,0)}'],
    ['RS(1)', '{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}'],
    ['S(0)R', '{devices=[2,1,4]<=[8] last_tile_dim_replicate}'],
    ['RR', '{replicated}'],
  ])('%s is written as %s', (placements, text) => {
    const on = mesh([2, 4]);
    expect(gspmdOf(parseSharding(placements, on), on, 2)).toBe(text);
    expect(() => gspmdOf(parseSharding('P(sum)R', on), on, 2)).toThrow('pending');
  });

  test('the strings that JAX wrote are written again, letter for letter', () => {
    let compared = 0;
    for (const { file } of mlirAnswers.filter((a) => a.file.includes('gspmd'))) {
      const text = jaxText(file);
      const graph = importGraph(text, { infer });
      const on = mesh((graph.mesh ?? '').split(',').map((dim) => Number(dim.split('=')[1])));
      const ranks = new Map(
        graph.nodes.map((n) => [n.name, n.type.kind === 'tensor' ? n.type.shape.length : 0]),
      );
      // Arguments stand in the text in the order of the inputs.
      const head = /@main\((.*)/.exec(text)?.[1].split(') -> ')[0] ?? '';
      const stated = [
        ...head.matchAll(/%(\w+): tensor<[^>]*>(?: \{mhlo\.sharding = "([^"]*)"\})?/g),
      ];
      for (const { value, sharding } of graph.given ?? []) {
        const original = stated.find(([, name]) => name === value)?.[2];
        if (original === undefined || value === undefined) continue;
        expect([
          file,
          value,
          gspmdOf(parseSharding(sharding, on), on, ranks.get(value) ?? 0),
        ]).toEqual([file, value, original]);
        compared++;
      }
    }
    expect(compared).toBeGreaterThan(60);
  });

  test('random meshes of up to 3 axes: what is written reads back', () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom(1, 2, 3, 4), { minLength: 1, maxLength: 3 }),
        fc.array(fc.constantFrom('R', 'S(0)', 'S(1)', 'S(2)'), { minLength: 3, maxLength: 3 }),
        (sizes, kinds) => {
          const on = mesh(sizes);
          const sharding = parseSharding(kinds.slice(0, sizes.length).join(''), on);
          const parsed = parseGspmd(gspmdOf(sharding, on, 3));
          const wanted = [0, 1, 2].map((d) =>
            sharding.orderOf(d).filter((axis) => sizes[axis] > 1),
          );
          if (parsed.kind !== 'tiled') {
            expect([parsed.kind, wanted.flat()]).toEqual(['replicated', []]);
            return;
          }
          const own = sizes.map((size, k) => ({ size, stride: on.strides[k] }));
          // An axis of one device cuts nothing; `axesOf` may name it anywhere.
          expect(
            tilingOf(parsed)!
              .dims.slice(0, 3)
              .map((f) => axesOf(f, own).filter((axis) => sizes[axis] > 1)),
          ).toEqual(wanted);
        },
      ),
      { seed: 34, numRuns: 300 },
    );
  });

  test('random meshes of up to 3 axes: the string of any placement reads back', () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom(2, 3, 4), { minLength: 1, maxLength: 3 }),
        fc.array(fc.nat(3), { minLength: 3, maxLength: 3 }),
        fc.shuffledSubarray([0, 1, 2], { minLength: 3, maxLength: 3 }),
        (sizes, dimOf, order) => {
          // Axis k cuts dim dimOf[k] (3 = none); axes of one dim stand in the shuffled order, the
          // unused ones in mesh order.
          const used = order.filter((k) => k < sizes.length);
          const cut = [0, 1, 2].map((d) => used.filter((k) => dimOf[k] === d));
          const rest = sizes.map((_, k) => k).filter((k) => dimOf[k] === 3);
          const permutation = [...cut.flat(), ...rest];
          const tiles = [
            ...cut.map((list) => list.reduce((n, k) => n * sizes[k], 1)),
            rest.reduce((n, k) => n * sizes[k], 1),
          ];
          const text = `{devices=[${tiles.join(',')}]<=[${sizes.join(',')}]T(${permutation.join(',')}) last_tile_dim_replicate}`;
          const sharding = parseGspmd(text);
          if (sharding.kind !== 'tiled') throw new Error('not tiled');
          const tiling = tilingOf(sharding)!;
          const own = sizes.map((size, k) => ({
            size,
            stride: sizes.slice(k + 1).reduce((a, b) => a * b, 1),
          }));
          expect(tiling.dims.slice(0, 3).map((f) => axesOf(f, own))).toEqual(cut);
          const common = commonAxes(tiling.dims.flat(), tiling.devices)!;
          expect(common.reduce((n, a) => n * a.size, 1)).toBe(tiling.devices);
        },
      ),
      { seed: 7, numRuns: 300 },
    );
  });

  test('GSPMD strings that fit no mesh are refused', () => {
    for (const text of [
      '',
      '{',
      '{devices=[2,4]<=[7]}',
      '{devices=[2]0,0}',
      '{devices=[2,2]<=[4]T(0,2)}',
      '{replicated',
      '{maximal device=}',
    ])
      expect(() => parseGspmd(text)).toThrow(ShardwrightError);
  });
});

describe('manual regions of GSPMD', () => {
  const full = (
    result: string,
    operand: string,
    sharding: string,
    from: string,
    to: string,
  ): string =>
    `    ${result}s = stablehlo.custom_call @Sharding(${operand}) {mhlo.sharding = "${sharding}"} : (tensor<${from}xf32>) -> tensor<${from}xf32>\n` +
    `    ${result} = stablehlo.custom_call @SPMDFullToShardShape(${result}s) {mhlo.sharding = "{manual}"} : (tensor<${from}xf32>) -> tensor<${to}xf32>\n`;
  const shard = (
    result: string,
    operand: string,
    sharding: string,
    from: string,
    to: string,
  ): string =>
    `    ${result} = stablehlo.custom_call @SPMDShardToFullShape(${operand}) {mhlo.sharding = "${sharding}"} : (tensor<${from}xf32>) -> tensor<${to}xf32>\n`;
  const rows = '{devices=[2,1]<=[2]}';
  const regions = (graph: Graph): Node[] =>
    graph.nodes.filter((n) => n.target === 'sdy.manual_computation');

  test('two regions behind each other; a constant from outside is repeated inside', () => {
    const text = module(
      '    %c = stablehlo.constant dense<2.0> : tensor<2x8xf32>\n' +
        full('%x', '%a', rows, '4x8', '2x8') +
        '    %y = stablehlo.multiply %x, %c : tensor<2x8xf32>\n' +
        shard('%z', '%y', rows, '2x8', '4x8') +
        '    %w = stablehlo.add %z, %b : tensor<4x8xf32>\n' +
        full('%u', '%w', rows, '4x8', '2x8') +
        '    %v = stablehlo.negate %u : tensor<2x8xf32>\n' +
        shard('%r', '%v', rows, '2x8', '4x8'),
    );
    const graph = read(text);
    expect(regions(graph).map((n) => [n.name, n.args[1], n.kwargs])).toEqual([
      [
        'z',
        [{ kind: 'value', name: 'a' }],
        { in_shardings: ['S(0)'], out_shardings: ['S(0)'], manual_axes: ['axis_0'] },
      ],
      [
        'r',
        [{ kind: 'value', name: 'w' }],
        { in_shardings: ['S(0)'], out_shardings: ['S(0)'], manual_axes: ['axis_0'] },
      ],
    ]);
    expect(Object.values(graph.subgraphs).map((body) => body.nodes.map((n) => n.target))).toEqual([
      ['x', 'stablehlo.constant', 'stablehlo.multiply'],
      ['u', 'stablehlo.negate'],
    ]);
    expect(
      read(text.replaceAll('{manual}', '{devices=[1,1,2]<=[2] last_tile_dims={manual}}')).nodes,
    ).toEqual(graph.nodes);
  });

  test('axes that stay automatic are not divided at the boundary', () => {
    // Mesh (2, 4): the second axis cuts the columns and is left to the compiler.
    const both = '{devices=[2,4]<=[8]}';
    const text = module(
      full('%x', '%a', both, '4x8', '2x8') +
        '    %y = stablehlo.negate %x : tensor<2x8xf32>\n' +
        shard('%r', '%y', both, '2x8', '4x8'),
    ).replaceAll('{manual}', '{devices=[1,1,2,4]<=[8] last_tile_dims={manual, replicated}}');
    expect(regions(read(text))[0].kwargs).toEqual({
      in_shardings: ['S(0)S(1)'],
      out_shardings: ['S(0)S(1)'],
      manual_axes: ['axis_0'],
    });
  });

  test.each<[what: string, text: string, message: string]>([
    [
      'a region without end',
      module(
        full('%x', '%a', rows, '4x8', '2x8') + '    %r = stablehlo.negate %a : tensor<4x8xf32>',
      ),
      'E_UNSUPPORTED 4:10 a manual region without end: no @SPMDShardToFullShape',
    ],
    [
      'a local value returned',
      module(
        full('%x', '%a', rows, '4x8', '2x8') + '    %r = stablehlo.negate %x : tensor<2x8xf32>',
        'tensor<2x8xf32>',
      ),
      'E_UNSUPPORTED 6:5 a value of a manual region is returned without @SPMDShardToFullShape',
    ],
    [
      'an end without a region',
      module(shard('%r', '%a', rows, '4x8', '4x8')),
      'E_UNSUPPORTED 3:10 @SPMDShardToFullShape of a value that is in no manual region',
    ],
    [
      'an outer value inside',
      module(
        full('%x', '%a', rows, '4x8', '2x8') +
          '    %y = stablehlo.dot_general %x, %b, contracting_dims = [1] x [1] : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<2x4xf32>\n' +
          shard('%r', '%y', rows, '2x4', '4x4'),
        'tensor<4x4xf32>',
      ),
      `E_UNSUPPORTED 5:36 a manual region reads '%b', which is not local to a device`,
    ],
    [
      'a local type that is not a half',
      module(full('%x', '%a', rows, '4x8', '1x8') + shard('%r', '%x', rows, '1x8', '4x8')),
      'E_TYPE 4:10 in_shardings 0: S(0) of tensor<4x8xf32> leaves [2, 8] to a device, the region has tensor<1x8xf32>',
    ],
  ])('%s', (_, text, message) => {
    expect(told(text)).toBe(message);
  });
});
