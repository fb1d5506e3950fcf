import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { describe, expect, test } from 'vitest';

import { inspectGraph } from '../../src/cli/commands/reading/inspect.ts';
import { lintGraph } from '../../src/graph/lint.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import { tensorType } from '../../src/graph/value.ts';
import { importGraph, importModel } from '../../src/import/import.ts';
import { readModel } from '../../src/import/onnx/file/model.ts';
import { programFlops } from '../../src/ops/program-flops.ts';
import {
  bytes,
  field,
  float,
  joined,
  message,
  node,
  onnx,
  tensor,
  text,
  value,
  varint,
} from './protobuf.ts';
import { fixture, infer, refusal, table } from './twins.ts';

interface OnnxKey {
  graph: { nodes: number; by_op: Record<string, number> };
  params: { initializers: number; numel: number };
  matmul: number;
  shapes: Record<string, [string, (number | string)[]]>;
}

const DTYPES: Record<string, string> = {
  float: 'f32',
  int64: 'i64',
  bool: 'b8',
  int32: 'i32',
  double: 'f64',
};

function key(model: string): OnnxKey {
  const packed = readFileSync(
    join(import.meta.dirname, '..', 'fixtures', 'onnx', `${model}.key.json.gz`),
  );
  return JSON.parse(gunzipSync(packed).toString('utf8')) as OnnxKey;
}

// Nodes, initializers and their elements, matmul FLOPs with bodies entered (index and
// specification).
const MODELS: readonly [
  model: string,
  nodes: number,
  initializers: number,
  elements: number,
  flops: number,
][] = [
  ['convnet', 8, 8, 702, 1280 + 1_032_192],
  ['gpt2-tiny', 93, 31, 71_110, 4_657_152],
  ['hop-cond', 3, 4, 529, 2048],
  ['hop-scan', 1, 2, 512, 24_576],
  ['hop-while', 1, 5, 260, 10_240],
  ['llama-tiny', 137, 36, 140_382, 7_077_888],
  ['mlp-dynamic', 3, 4, 2368, 0],
  ['mlp', 3, 4, 2368, 36_864],
];

/** The model with every `value_info` entry of its main graph cut out. */
function withoutValueInfo(model: Uint8Array): Uint8Array {
  const out: Uint8Array[] = [];
  for (const part of fields(model)) {
    if (part.number !== 7) out.push(part.bytes);
    else
      out.push(
        message(
          7,
          ...fields(part.value).flatMap((inner) => (inner.number === 13 ? [] : [inner.bytes])),
        ),
      );
  }
  return joined(...out);
}

function fields(data: Uint8Array): { number: number; bytes: Uint8Array; value: Uint8Array }[] {
  const found: { number: number; bytes: Uint8Array; value: Uint8Array }[] = [];
  for (let pos = 0; pos < data.length;) {
    const start = pos;
    const read = (): number => {
      let n = 0;
      for (let shift = 1; ; shift *= 128) {
        const b = data[pos++];
        n += (b & 127) * shift;
        if (b < 128) return n;
      }
    };
    const head = read();
    let from = pos;
    if (head % 8 === 0) read();
    else if (head % 8 === 2) {
      const length = read();
      from = pos;
      pos += length;
    } else pos += head % 8 === 1 ? 8 : 4;
    found.push({
      number: Math.floor(head / 8),
      bytes: data.subarray(start, pos),
      value: data.subarray(from, pos),
    });
  }
  return found;
}

/** An attribute of one integer (kind 2) or of a list of them (kind 7). */
const numbers = (name: string, kind: 2 | 7, values: readonly number[]): Uint8Array =>
  message(
    5,
    text(1, name),
    ...values.map((value) => field(kind === 2 ? 3 : 8, varint(value))),
    field(20, varint(kind)),
  );

describe('the models of the index', () => {
  test.each(MODELS)(
    '%s: %i nodes, %i initializers, %i elements, %i FLOPs',
    (name, nodes, initializers, elements, flops) => {
      const wanted = key(name);
      const file = fixture(`onnx/${name}.onnx.gz`);
      const { graph, format, counts } = importModel(file, { infer });
      if (name !== 'mlp-dynamic') lintGraph(graph, infer); // rules compute with numbers
      const found = inspectGraph(graph, table, format, counts);
      expect([found.nodes, found.parameterCount, found.parameters]).toEqual([
        nodes,
        initializers,
        elements,
      ]);
      expect([found.nodes, found.ops]).toEqual([wanted.graph.nodes, wanted.graph.by_op]);
      expect([initializers, elements]).toEqual([wanted.params.initializers, wanted.params.numel]);
      expect(found.flops.total).toBe(flops);
      expect(found.unknownOps).toEqual([]);
      // The index counts products of the main graph only, nothing of convolutions or bodies.
      if (!/hop|conv/.test(name)) expect(flops).toBe(wanted.matmul);
    },
  );

  test.each(MODELS.map(([name]) => name))(
    '%s: types equal the answer key, also without value_info',
    (name) => {
      const { shapes } = key(name);
      const file = fixture(`onnx/${name}.onnx.gz`);
      const bare = withoutValueInfo(file);
      expect(readModel(bare).graph.values).toEqual([]);
      for (const model of [file, bare]) {
        const graph = importGraph(model, { infer });
        let compared = 0;
        for (const { name: own, kind, type, meta } of graph.nodes) {
          const wanted = shapes[kind === 'placeholder' ? (meta.roleName ?? own) : own];
          if (wanted === undefined || type.kind !== 'tensor') continue;
          const shape = type.shape.map((dim) => (typeof dim === 'number' ? dim : dim.sym));
          expect([type.dtype, shape], own).toEqual([DTYPES[wanted[0]], wanted[1]]);
          compared++;
        }
        expect(compared).toBeGreaterThanOrEqual(3);
      }
    },
  );

  test('roles, originals, paths and sources', () => {
    const graph = importGraph(fixture('onnx/mlp.onnx.gz'));
    expect(
      graph.nodes.map((n) => [n.name, n.target, n.meta.original, n.meta.roleName, n.meta.path]),
    ).toEqual([
      ['x', 'x', undefined, 'x', undefined],
      ['fc1_weight', 'fc1_weight', undefined, 'fc1.weight', undefined],
      ['fc1_bias', 'fc1_bias', undefined, 'fc1.bias', undefined],
      ['fc2_weight', 'fc2_weight', undefined, 'fc2.weight', undefined],
      ['fc2_bias', 'fc2_bias', undefined, 'fc2.bias', undefined],
      ['linear', 'aten.linear.default', 'onnx.Gemm', undefined, 'fc1'],
      ['relu', 'aten.relu.default', 'onnx.Relu', undefined, undefined],
      ['linear_1', 'aten.linear.default', 'onnx.Gemm', undefined, 'fc2'],
    ]);
    expect(graph.nodes.at(-1)?.meta.source).toMatch(/^torch\/nn\/modules\/linear\.py:\d+$/);
  });

  test('bodies: a branch reads outer values, a loop has its trips, a scan its length', () => {
    const cond = importGraph(fixture('onnx/hop-cond.onnx.gz'), { infer });
    expect(Object.keys(cond.subgraphs)).toEqual(['true_graph_0', 'false_graph_0']);
    const call = cond.nodes.find((n) => n.target === 'cond');
    expect(call?.args[3]).toEqual(
      ['x', 'a_weight', 'a_bias', 'b_weight'].map((name) => ({ kind: 'value', name })),
    );
    const loop = importGraph(fixture('onnx/hop-while.onnx.gz'), { infer }).nodes.find(
      (n) => n.target === 'while_loop',
    );
    expect(loop?.kwargs).toEqual({ trips: 5 });
    const scan = importGraph(fixture('onnx/hop-scan.onnx.gz'), { infer });
    expect(scan.outputs.map((o) => scan.nodes.find((n) => n.name === o.value)?.type)).toEqual([
      tensorType('f32', [4, 16]),
      tensorType('f32', [6, 4, 16]),
    ]);
  });

  test('a symbolic batch stays a name through the layers', () => {
    const graph = importGraph(fixture('onnx/mlp-dynamic.onnx.gz'), { infer });
    expect(graph.nodes.at(-1)?.type).toEqual(tensorType('f32', [{ sym: 'batch' }, 16]));
    expect(programFlops(graph, table).unsizedCalls).toBe(3);
  });
});

/** A model of one graph: x f32[2, 3] -> y. */
function small(nodes: Uint8Array[], more: Uint8Array[] = [], outputs = ['y']): Uint8Array {
  return onnx(20, [
    ...nodes,
    value(11, 'x', 1, [2, 3]),
    ...outputs.map((name) => value(12, name)),
    ...more,
  ]);
}

describe('opset differences and shape arithmetic', () => {
  const typeOf = (model: Uint8Array): unknown => {
    const graph = importGraph(model, { infer });
    const y = graph.nodes.find((n) => n.name === graph.outputs[0].value)?.type;
    return y?.kind === 'tensor' ? [y.dtype, ...y.shape] : y?.kind;
  };
  const i64 = (name: string, ...items: number[]): Uint8Array =>
    tensor(5, name, 7, [items.length], items);

  test('dims before the axis of Flatten become one where one size of them is a name', () => {
    const flattened = (
      axis: number,
      shape: readonly (number | string)[] = ['batch', 3, 4],
    ): unknown => {
      const at = message(5, text(1, 'axis'), field(3, varint(axis)), field(20, varint(2)));
      return typeOf(
        onnx(20, [node('Flatten', ['x'], ['y'], at), value(11, 'x', 1, shape), value(12, 'y')]),
      );
    };
    expect(flattened(1)).toEqual(['f32', { sym: 'batch' }, 12]);
    expect(flattened(-2)).toEqual(flattened(1));
    expect(flattened(1, ['batch'])).toEqual(['f32', { sym: 'batch' }, 1]);
    expect(flattened(0)).toEqual(['f32', 1, { sym: '12*batch' }]);
    expect(() => flattened(2)).toThrow('several symbolic sizes are flattened into one');
  });

  test('Reshape keeps a first size that is a name, and shapes what is behind it', () => {
    const reshaped = (...sizes: number[]): unknown =>
      typeOf(
        onnx(20, [
          node('Reshape', ['x', 's'], ['y']),
          i64('s', ...sizes),
          value(11, 'x', 1, ['batch', 3, 4]),
          value(12, 'y'),
        ]),
      );
    expect(reshaped(0, -1)).toEqual(['f32', { sym: 'batch' }, 12]);
    expect(reshaped(0, 2, -1)).toEqual(['f32', { sym: 'batch' }, 2, 6]);
    expect(reshaped(0, 4, 3)).toEqual(['f32', { sym: 'batch' }, 4, 3]);
    expect(() => reshaped(0, 5, -1)).toThrow('12 elements are not a multiple of 5');
  });

  test('axes as an attribute (old opsets) or as an input', () => {
    const attribute = message(5, text(1, 'axes'), field(8, varint(1)), field(20, varint(7)));
    expect(typeOf(small([node('ReduceMean', ['x'], ['y'], attribute)]))).toEqual(['f32', 2, 1]);
    expect(typeOf(small([node('ReduceMean', ['x', 'a'], ['y'])], [i64('a', 0)]))).toEqual([
      'f32',
      1,
      3,
    ]);
    expect(typeOf(small([node('Unsqueeze', ['x', 'a'], ['y'])], [i64('a', 0, -1)]))).toEqual([
      'f32',
      1,
      2,
      3,
      1,
    ]);
  });

  test('Shape, Gather, Concat and Reshape fold; 0 and -1 of Reshape', () => {
    const nodes = [
      node('Shape', ['x'], ['s']),
      node('Gather', ['s', 'zero'], ['n']),
      node('Unsqueeze', ['n', 'axis'], ['n1']),
      node(
        'Concat',
        ['n1', 'minus'],
        ['to'],
        message(5, text(1, 'axis'), field(3, varint(0)), field(20, varint(2))),
      ),
      node('Reshape', ['x', 'to'], ['y']),
    ];
    const constants = [tensor(5, 'zero', 7, [], [0]), i64('axis', 0), i64('minus', -1)];
    const graph = importGraph(small(nodes, constants), { infer });
    expect(graph.nodes.map((n) => n.target)).toEqual(['x', 'aten.reshape.default']);
    expect(graph.nodes[1].args[1]).toEqual([2, -1]);
    expect(typeOf(small([node('Reshape', ['x', 'to'], ['y'])], [i64('to', 0, -1, 1)]))).toEqual([
      'f32',
      2,
      3,
      1,
    ]);
  });

  test('pads that PyTorch exports turn around fold: Cast, ConstantOfShape, Reshape, Slice back, Transpose', () => {
    const to = message(5, text(1, 'to'), field(3, varint(7)), field(20, varint(2)));
    const zeros = message(5, text(1, 'value'), tensor(5, 'v', 7, [1], [0]), field(20, varint(4)));
    const nodes = [
      node('ConstantOfShape', ['two'], ['none'], zeros),
      node('Cast', ['own'], ['whole'], to),
      node(
        'Concat',
        ['whole', 'none'],
        ['all'],
        message(5, text(1, 'axis'), field(3, varint(0)), field(20, varint(2))),
      ),
      node('Reshape', ['all', 'pairs'], ['rows']),
      node('Slice', ['rows', 'last', 'before', 'axis', 'last'], ['back']),
      node('Transpose', ['back'], ['ends']),
      node('Reshape', ['ends', 'flat'], ['pads']),
      node('Pad', ['x', 'pads'], ['y']),
    ];
    const constants = [
      i64('two', 2),
      i64('pairs', -1, 2),
      i64('last', -1),
      i64('before', -9_007_199_254_740_991),
      i64('axis', 0),
      i64('flat', -1),
      i64('own', 1, 2),
    ];
    const graph = importGraph(small(nodes, constants), { infer });
    expect(graph.nodes.map((n) => n.target)).toEqual(['x', 'aten.constant_pad_nd.default']);
    expect(graph.nodes[1].args[1]).toEqual([1, 2, 0, 0]);
    expect(graph.nodes[1].type).toEqual(tensorType('f32', [2, 6]));
  });

  test('a slice of an old opset ends beyond 2^53, and sizes that are cast to fractions stay fractions', () => {
    const ints = (name: string, value: bigint): Uint8Array =>
      message(5, text(1, name), field(8, varint(value)), field(20, varint(7)));
    const old = node('Slice', ['x'], ['y'], ints('starts', 1n), ints('ends', 2n ** 63n - 1n));
    expect(importGraph(small([old]), { infer }).nodes[1].type).toEqual(tensorType('f32', [1, 3]));
    const to = (dtype: number): Uint8Array =>
      message(5, text(1, 'to'), field(3, varint(dtype)), field(20, varint(2)));
    const halved = [
      node('Cast', ['three'], ['f'], to(1)),
      node('Div', ['f', 'two'], ['h']),
      node('Mul', ['h', 'two'], ['b']),
      node('Cast', ['b'], ['n'], to(7)),
      node('Expand', ['x', 'n'], ['y']),
    ];
    const two = tensor(5, 'two', 1, [], [2]);
    // 5 / 2 * 2 is 4 only of whole numbers.
    expect(typeOf(small(halved, [i64('three', 5, 2, 3), two]))).toEqual(['f32', 5, 2, 3]);
  });

  test('Slice to the end, Split into parts, Expand both ways, Gather by axis, Clip, Pad', () => {
    const ends = [i64('b', 1), i64('e', 9_007_199_254_740_991), i64('a', 1)];
    expect(typeOf(small([node('Slice', ['x', 'b', 'e', 'a'], ['y'])], ends))).toEqual([
      'f32',
      2,
      2,
    ]);
    const axis = message(5, text(1, 'axis'), field(3, varint(1)), field(20, varint(2)));
    const split = small([node('Split', ['x'], ['y', 'z'], axis)], [], ['y', 'z']);
    expect(importGraph(split, { infer }).nodes.at(-1)?.type).toEqual(tensorType('f32', [2, 1]));
    expect(typeOf(small([node('Expand', ['x', 's'], ['y'])], [i64('s', 4, 1, 3)]))).toEqual([
      'f32',
      4,
      2,
      3,
    ]);
    expect(
      typeOf(
        small([node('Gather', ['x', 'i'], ['y'], axis)], [tensor(5, 'i', 7, [2, 2], [0, 1, 2, 0])]),
      ),
    ).toEqual(['f32', 2, 2, 2]);
    expect(
      typeOf(small([node('Clip', ['x', '', 'hi'], ['y'])], [tensor(5, 'hi', 1, [], [6])])),
    ).toEqual(['f32', 2, 3]);
    expect(typeOf(small([node('Pad', ['x', 'p'], ['y'])], [i64('p', 1, 0, 0, 2)]))).toEqual([
      'f32',
      3,
      5,
    ]);
  });

  test('Gemm with transposed operands and factors; a counted Loop is a scan of its count', () => {
    const attribute = (name: string, of: Uint8Array, type: number): Uint8Array =>
      message(5, text(1, name), of, field(20, varint(type)));
    const gemm = node(
      'Gemm',
      ['x', 'x'],
      ['y'],
      joined(attribute('transA', field(3, varint(1)), 2), attribute('alpha', float(2, 0.5), 1)),
    );
    expect(typeOf(small([gemm]))).toEqual(['f32', 3, 3]);
    const body = joined(
      node('Relu', ['v'], ['w']),
      text(2, 'body'),
      value(11, 'i', 7, []),
      value(11, 'c', 9, []),
      value(11, 'v', 1, [2, 3]),
      value(12, 'c'),
      value(12, 'w'),
      value(12, 'w2'),
      node('Tanh', ['w'], ['w2']),
    );
    const loop = node(
      'Loop',
      ['m', '', 'x'],
      ['last', 'y'],
      attribute('body', message(6, body), 5),
    );
    const graph = importGraph(small([loop], [tensor(5, 'm', 7, [], [7])]), { infer });
    expect(graph.nodes.find((n) => n.target === 'scan')?.kwargs).toEqual({ length: 7 });
    expect(graph.nodes.find((n) => n.name === graph.outputs[0].value)?.type).toEqual(
      tensorType('f32', [7, 2, 3]),
    );
  });
});

describe('bodies and their constants', () => {
  test('sibling branches use one name for two tensors; a value of the main graph that both read is passed once', () => {
    const branch = (attribute: string, dims: number[]): Uint8Array => {
      const constant = node(
        'Constant',
        [],
        ['c'],
        message(
          5,
          text(1, 'value'),
          tensor(
            5,
            '',
            1,
            dims,
            [1, 2, 3, 4, 5, 6].slice(
              0,
              dims.reduce((a, b) => a * b),
            ),
          ),
          field(20, varint(4)),
        ),
      );
      const graph = joined(
        constant,
        node('Add', ['x', 'c'], [`${attribute}_r`]),
        text(2, attribute),
        value(12, `${attribute}_r`),
      );
      return message(5, text(1, attribute), message(6, graph), field(20, varint(5)));
    };
    const test = [
      node('ReduceSum', ['x'], ['s'], message(5, text(1, 'keepdims'), field(3, varint(0)))),
      node('Greater', ['s', 'zero'], ['p']),
    ];
    const choice = node(
      'If',
      ['p'],
      ['y'],
      joined(branch('then_branch', [2, 3]), branch('else_branch', [1, 3])),
    );
    const graph = importGraph(small([...test, choice], [tensor(5, 'zero', 1, [], [0])]), { infer });
    const constants = graph.nodes.filter((n) => n.meta.role === 'parameter');
    expect(constants.map((n) => [n.meta.roleName, n.type])).toEqual([
      ['c', tensorType('f32', [2, 3])],
      ['c_1', tensorType('f32', [1, 3])],
    ]);
    expect(graph.nodes.find((n) => n.target === 'cond')?.args[3]).toEqual(
      ['x', 'c', 'c_1'].map((name) => ({ kind: 'value', name })),
    );
    lintGraph(graph, infer);
  });

  test('graph text of imported models reads back to the same graph', () => {
    for (const name of ['hop-cond', 'hop-while', 'hop-scan', 'gpt2-tiny', 'mlp-dynamic']) {
      const graph = importGraph(fixture(`onnx/${name}.onnx.gz`), { infer });
      const printed = printGraph(graph);
      expect(printGraph(parseGraph(printed)), name).toBe(printed);
    }
  });
});

describe('broken and unknown', () => {
  const told = (model: Uint8Array, format?: 'onnx'): string => {
    const {
      code,
      message: said,
      details,
    } = refusal(() => importGraph(model, { infer, ...(format === undefined ? {} : { format }) }));
    expect(details.hint ?? '').not.toBe('');
    return `${code} ${said}`;
  };
  const relu = node('Relu', ['x'], ['y']);

  test('the wire: numbers and lengths past the end, groups, field 0', () => {
    expect(told(bytes(8, 10, 58, 255), 'onnx')).toBe(
      'E_SYNTAX a number runs past the end, at byte 3',
    );
    expect(told(bytes(8, 10, 58, 20, 1), 'onnx')).toBe(
      'E_SYNTAX field 7 ends at byte 24, behind its message (byte 5), at byte 2',
    );
    expect(told(bytes(8, 10, 59), 'onnx')).toBe(
      'E_SYNTAX wire type 3 is not used by ONNX, at byte 2',
    );
    expect(told(bytes(0, 10), 'onnx')).toBe('E_SYNTAX field number 0 does not exist, at byte 0');
    expect(told(bytes(8, 10), 'onnx')).toBe('E_SYNTAX the model has no graph, at byte 0');
    expect(
      told(
        joined(
          field(1, varint(10)),
          message(7, message(1, text(4, 'Relu'), bytes(10, 2, 0xff, 0xfe))),
        ),
        'onnx',
      ),
    ).toMatch(/^E_ENCODING the text at byte \d+ is not UTF-8/);
  });

  test('opset and IR versions out of range are refused with the known range', () => {
    expect(told(onnx(6, [relu]))).toBe(
      'E_VERSION the model has opset 6, this reader knows 7 to 28',
    );
    expect(told(onnx(20, [relu], 2))).toBe(
      'E_VERSION the model has IR version 2, this reader knows 3 to 14',
    );
  });

  test('an unknown operator: refused without a type, kept as it is with one', () => {
    const custom = node('Bar', ['x'], ['h'], text(7, 'foo'));
    const after = node('Relu', ['h'], ['y']);
    const model = small([relu, custom, custom, after].slice(1));
    expect(told(small([custom, after]))).toBe(
      'E_UNKNOWN_OP 1 unknown operator without a type for the results: foo.Bar (1 node, first node 0)',
    );
    expect(model.length).toBeGreaterThan(0);
    const typed = importModel(small([custom, after], [value(13, 'h', 1, [5, 3])]), { infer });
    expect(inspectGraph(typed.graph, table, 'onnx', typed.counts).unknownOps).toEqual([
      'onnx.foo.Bar',
    ]);
    expect(typed.graph.nodes.at(-1)?.type).toEqual(tensorType('f32', [5, 3]));
  });

  test('the slope of LeakyRelu is .01 where the node has none, as the ONNX specification says', () => {
    const graph = importGraph(small([node('LeakyRelu', ['x'], ['y'])]), { infer });
    const { target, args } = graph.nodes[1];
    expect([target, args[1]]).toMatchObject(['aten.leaky_relu.default', { value: 0.01 }]);
  });

  test('external data need not be there', () => {
    const external = message(
      5,
      field(1, varint(3)),
      field(1, varint(4)),
      field(2, varint(1)),
      text(8, 'w'),
      field(14, varint(1)),
    );
    const graph = importGraph(small([node('MatMul', ['x', 'w'], ['y'])], [external]), { infer });
    expect(graph.nodes.map((n) => [n.name, n.meta.role])).toEqual([
      ['x', 'input'],
      ['w', 'parameter'],
      ['y', undefined],
    ]);
  });

  test.each<[string, Uint8Array, string]>([
    [
      'an initializer unlike its use',
      small(
        [node('MatMul', ['x', 'w'], ['y'])],
        [tensor(5, 'w', 1, [4, 4], new Array<number>(16).fill(0))],
      ),
      `E_TYPE node 0 (MatMul 'y'): aten.mm.default: `,
    ],
    [
      'a stated type that is wrong',
      small([relu], [value(13, 'y', 1, [2, 4])]),
      `E_TYPE node 0 (Relu 'y'): the file says that 'y' is f32[2, 4], but it is f32[2, 3]`,
    ],
    [
      'an undefined value',
      small([node('Relu', ['q'], ['y'])]),
      `E_REF node 0 (Relu 'y'): 'q' is not defined`,
    ],
    ['a value twice', small([relu, relu]), `E_DUP node 1 (Relu 'y'): 'y' is defined twice`],
    [
      'a missing input',
      small([node('MatMul', ['x'], ['y'])]),
      `E_TYPE node 0 (MatMul 'y'): input 1 is missing`,
    ],
    ['an undefined result', small([relu], [], ['z']), `E_REF graph '': 'z' is not defined`],
    [
      'a shape computed at run time',
      small([node('Reshape', ['x', 'x'], ['y'])]),
      `E_UNSUPPORTED node 0 (Reshape 'y'): input 1 ('x') is computed at run time, but decides the shape`,
    ],
    [
      'an input without a type',
      onnx(20, [relu, value(11, 'x'), value(12, 'y')]),
      `E_TYPE graph '': input 'x' has no type`,
    ],
    [
      'strings',
      onnx(20, [relu, value(11, 'x', 8, [2]), value(12, 'y')]),
      'E_UNSUPPORTED a value has the ONNX type number 8 (string)',
    ],
    ['a sparse initializer', onnx(20, [relu, message(15)]), 'E_UNSUPPORTED a sparse initializer'],
    [
      'an axis that does not exist',
      small([
        node(
          'Softmax',
          ['x'],
          ['y'],
          message(5, text(1, 'axis'), field(3, varint(7)), field(20, varint(2))),
        ),
      ]),
      `E_TYPE node 0 (Softmax 'y'): `,
    ],
    [
      'a tensor of too few dims',
      small([node('DepthToSpace', ['x'], ['y'], numbers('blocksize', 2, [1]))]),
      `E_TYPE node 0 (DepthToSpace 'y'): a tensor of 2 dims where 4 are read`,
    ],
    [
      'a window with a stride for one of two dims',
      small([
        node(
          'MaxPool',
          ['x'],
          ['y'],
          numbers('kernel_shape', 7, [1, 1]),
          numbers('strides', 7, [1]),
        ),
      ]),
      `E_TYPE node 0 (MaxPool 'y'): attribute 'strides' has 1 numbers where 2 fit`,
    ],
    [
      'a cast of nothing',
      small([node('Cast', [], ['y'], numbers('to', 2, [7]))]),
      `E_TYPE node 0 (Cast 'y'): input 0 is missing`,
    ],
    [
      'a rank of 65',
      onnx(20, [relu, value(11, 'x', 1, new Array<number>(65).fill(1)), value(12, 'y')]),
      'E_SYNTAX more than 64 dims',
    ],
    [
      'a name of 5,000 characters',
      small([node('Relu', ['x'], ['y'.repeat(5000)])]),
      'E_LIMIT a text of 5000 bytes',
    ],
  ])('%s', (_what, model, wanted) => {
    expect(told(model)).toContain(wanted);
  });

  const intAttribute = (name: string, value: number): Uint8Array =>
    message(5, text(1, name), field(3, varint(value)), field(20, varint(2)));
  const textAttribute = (name: string, value: string): Uint8Array =>
    message(5, text(1, name), text(4, value), field(20, varint(3)));
  const intsAttribute = (name: string, values: readonly number[]): Uint8Array =>
    message(5, text(1, name), ...values.map((n) => field(8, varint(n))), field(20, varint(7)));

  test.each<[string, string, Uint8Array, string]>([
    ['a flag', 'CumSum', intAttribute('reverse', 2), `attribute 'reverse' is 2, neither 0 nor 1`],
    ['a flag', 'ArgMax', intAttribute('keepdims', 3), `attribute 'keepdims' is 3, neither 0 nor 1`],
    [
      'a word',
      'DepthToSpace',
      joined(intAttribute('blocksize', 1), textAttribute('mode', 'crd')),
      `attribute 'mode' is 'crd', none of DCR, CRD`,
    ],
    [
      'a window',
      'MaxPool',
      joined(intsAttribute('kernel_shape', [2, 2]), intsAttribute('strides', [1, 0])),
      `attribute 'strides' is [1, 0]: it counts from 1`,
    ],
    [
      'a window',
      'MaxPool',
      joined(intsAttribute('kernel_shape', [2, 2]), intsAttribute('pads', [1, 1])),
      `attribute 'pads' has 2 numbers where 4 fit`,
    ],
    ['a norm', 'LpNormalization', intAttribute('p', 3), `attribute 'p' is 3, neither 1 nor 2`],
  ])('%s of %s that ONNX has not', (_what, op, attributes, wanted) => {
    const graph = onnx(20, [
      node(op, op === 'CumSum' ? ['x', 'axis'] : ['x'], ['y'], attributes),
      ...(op === 'CumSum' ? [tensor(5, 'axis', 7, [1], [0])] : []),
      value(11, 'x', 1, [1, 4, 4, 4]),
      value(12, 'y'),
    ]);
    expect(told(graph)).toContain(`E_TYPE node 0 (${op} 'y'): ${wanted}`);
  });

  test('graphs in graphs, 300 deep; hostile names', () => {
    let body = joined(text(2, 'g'));
    for (let i = 0; i < 300; i++)
      body = joined(
        text(2, 'g'),
        node('If', [], ['y'], message(5, text(1, 'then_branch'), message(6, body))),
      );
    expect(
      told(
        joined(field(1, varint(10)), field(8, bytes(0)).subarray(0, 0), message(7, body)),
        'onnx',
      ),
    ).toMatch(/^E_LIMIT messages nest deeper than 256/);
    for (const name of ['__proto__', 'constructor', 'a.b/c:d'])
      expect(
        importGraph(small([node('Relu', ['x'], [name]), node('Tanh', [name], ['y'])]), { infer })
          .nodes,
      ).toHaveLength(3);
    expect(Object.prototype).not.toHaveProperty('kind');
  });
});
