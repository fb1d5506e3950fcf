import { strFromU8, strToU8, unzipSync, type Zippable, zipSync } from 'fflate';
import { describe, expect, test } from 'vitest';

import { lintGraph } from '../../src/graph/lint.ts';
import { parametersOf } from '../../src/graph/parameters.ts';
import type { Graph } from '../../src/graph/types.ts';
import { importGraph, importModel } from '../../src/import/import.ts';
import { FULL } from '../support/full.ts';
import { answerKey, counts, KEY_DTYPES, type KeyType, packed } from './fixtures.ts';
import { content, fixture, infer, refusal } from './twins.ts';

// Figures of the index: nodes, parameters, elements.
const PROGRAMS: readonly (readonly [
  id: string,
  file: 'pt2' | 'model.json',
  nodes: number,
  parameters: number,
  elements: number,
])[] = [
  ['mlp/export', 'pt2', 9, 4, 49_472],
  ['mlp/export_core', 'pt2', 11, 4, 49_472],
  ['mlp-dynamic/export', 'pt2', 9, 4, 49_472],
  ['convnet/export', 'pt2', 23, 8, 714],
  ['convnet/export_core', 'pt2', 28, 8, 714],
  ['llama-tiny/export', 'pt2', 213, 21, 139_584],
  ['hop-cond/export', 'pt2', 11, 3, 528],
  ['hop-map/export', 'pt2', 8, 2, 272],
  ['hop-scan/export', 'pt2', 9, 2, 512],
  ['hop-while/export', 'pt2', 9, 1, 256],
  ['mlp-loss/export', 'model.json', 14, 4, 8_393_728],
  ['resnet18/export', 'model.json', 215, 62, 11_689_512],
  ['vit-tiny/export', 'model.json', 419, 152, 5_717_416],
  ['bert-base/export', 'model.json', 513, 202, 109_514_298],
  ['gpt2-2l/export', 'model.json', 167, 28, 53_561_088],
  ['mixtral-tiny/export', 'model.json', 271, 21, 238_400],
  ['mixtral-tiny-grouped/export', 'model.json', 297, 21, 238_400],
  ['llama3-8b-2l/export', 'model.json', 213, 21, 1_486_901_248],
  ['llama3-8b-2l/export_core', 'model.json', 372, 21, 1_486_901_248],
  // Those of 2 layers for longer.
  ...(FULL
    ? ([
        ['gpt2-12l/export', 'model.json', 677, 148, 124_439_808],
        ['llama3-8b-32l/export', 'model.json', 2343, 291, 8_030_261_248],
      ] as const)
    : []),
];

describe('exported programs against the index and their readable twins', () => {
  test.each(PROGRAMS)(
    '%s.%s: %i nodes, %i parameters, %i elements',
    (id, file, nodes, parameters, elements) => {
      const key = answerKey(id);
      const { graph, format } = importModel(packed(`${id}.${file}.gz`), { infer });
      expect(format).toBe(file === 'pt2' ? 'pt2' : 'pt2-json');
      const { nodes: counted, by_kind, by_op } = counts(graph);
      expect([counted, by_kind, by_op]).toEqual([nodes, key.graph.by_kind, key.graph.by_op]);
      for (const [name, body] of Object.entries(key.graph.subgraphs ?? {})) {
        const ours = counts(graph.subgraphs[name]);
        expect([ours.nodes, ours.by_op], name).toEqual([body.nodes, body.by_op]);
      }
      const found = parametersOf(graph);
      expect([found.length, found.reduce((n, p) => n + p.elements, 0)]).toEqual([
        parameters,
        elements,
      ]);
      expect(content(graph)).toEqual(
        content(importGraph(packed(`${id}.readable.txt.gz`), { infer })),
      );
    },
  );

  test.each(PROGRAMS.map(([id, file]) => [id, file]))(
    '%s.%s: dtype, shape and stride of the answer key',
    (id, file) => {
      const { shapes } = answerKey(id);
      let compared = 0;
      for (const { name, type } of importGraph(packed(`${id}.${file}.gz`)).nodes) {
        const wanted = shapes[name] as KeyType | undefined;
        if (wanted === undefined || type.kind !== 'tensor') continue;
        const shape = type.shape.map((d) => (typeof d === 'number' ? d : d.sym));
        expect([type.dtype, shape], name).toEqual([KEY_DTYPES[wanted[0]], wanted[1]]);
        if (type.stride !== undefined) expect(type.stride, name).toEqual(wanted[2]);
        compared++;
      }
      expect(compared).toBeGreaterThan(3);
    },
  );

  test('a dynamic batch: named s77, 2 to 512, hint 8', () => {
    const graph = importGraph(packed('mlp-dynamic/export.pt2.gz'), { infer });
    expect(graph.dims).toEqual({ s77: { min: 2, max: 512 } });
    expect(graph.nodes.find((n) => n.name === 'x')?.type).toMatchObject({
      shape: [{ sym: 's77', example: 8 }, 128],
    });
  });

  test('roles have full names; updated buffers are returned as mutations', () => {
    const core = importGraph(packed('convnet/export_core.pt2.gz'));
    expect(core.nodes.filter((n) => n.meta.role === 'buffer').map((n) => n.meta.roleName)).toEqual([
      'b1.running_mean',
      'b1.running_var',
      'b1.num_batches_tracked',
    ]);
    expect(core.outputs).toEqual([
      { value: 'getitem_3', role: 'mutation', of: 'b1.running_mean' },
      { value: 'getitem_4', role: 'mutation', of: 'b1.running_var' },
      { value: 'add', role: 'mutation', of: 'b1.num_batches_tracked' },
      { value: '_log_softmax', role: 'output', index: 0 },
    ]);
    // Training IR counts batches in place; that is a mutation too.
    expect(importGraph(packed('convnet/export.pt2.gz')).outputs[0]).toEqual({
      value: 'add_',
      role: 'mutation',
      of: 'b1.num_batches_tracked',
    });
  });
});

describe('paths and sources', () => {
  const graph = importGraph(packed('llama3-8b-32l/export.model.json.gz'));

  test('32 blocks of equal operator sequences', () => {
    const blocks = new Map<string, string[]>();
    for (const node of graph.nodes) {
      const block = /^model\.model\.layers\.(\d+)(\.|$)/.exec(node.meta.path ?? '')?.[1];
      if (block === undefined || node.kind !== 'call') continue;
      const list = blocks.get(block);
      if (list === undefined) blocks.set(block, [node.target]);
      else list.push(node.target);
    }
    expect([...blocks.keys()]).toEqual(Array.from({ length: 32 }, (_, i) => String(i)));
    const sequences = new Set([...blocks.values()].map((targets) => targets.join(' ')));
    expect(sequences.size).toBe(1);
    expect(blocks.get('0')).toHaveLength(62);
  });

  test.each(PROGRAMS.map(([id, file]) => [id, file]))(
    '%s.%s: nearly every call has a source',
    (id, file) => {
      // Nodes of the file; getitems are made at import and have the place of their producer.
      const { nodes } = importGraph(packed(`${id}.${file}.gz`));
      const calls = nodes.filter((n) => n.kind === 'call' && n.target !== 'operator.getitem');
      const placed = calls.filter((n) => /^\S.*:\d+$/.test(n.meta.source ?? ''));
      expect(placed.length).toBeGreaterThanOrEqual(0.99 * calls.length);
    },
  );
});

const ROOT = 'archive/';
const whole = (): Record<string, Uint8Array> => unzipSync(fixture('torch/mlp/export.pt2.gz'));
const MODEL = `${ROOT}models/model.json`;

/** The archive with members changed, added, or (null) left out. */
function repacked(
  changes: Record<string, Uint8Array | string | null>,
  level: 0 | 6 = 0,
): Uint8Array {
  const members: Zippable = {};
  for (const [name, bytes] of Object.entries(whole()))
    if (changes[name] !== null) members[name] = [bytes, { level }];
  for (const [name, value] of Object.entries(changes))
    if (value !== null)
      members[name] = [typeof value === 'string' ? strToU8(value) : value, { level }];
  return zipSync(members);
}

function model(): string {
  return strFromU8(whole()[MODEL]);
}

describe('weights are a table of names', () => {
  const names = (graph: Graph): unknown =>
    parametersOf(graph).map((p) => p.placeholders.map((n) => n.meta.roleName));

  test('two names of one weight file are one parameter', () => {
    // fc1.bias and a second one of its size, to have equal types.
    const config = `${ROOT}data/weights/model_weights_config.json`;
    const json = model().replaceAll('p_fc2_weight', 'p_twin').replaceAll('fc2.weight', 'twin');
    const tied = JSON.parse(strFromU8(whole()[config]).replaceAll('fc2.weight', 'twin')) as {
      config: Record<string, { path_name: string }>;
    };
    tied.config.twin.path_name = tied.config['fc1.weight'].path_name;
    const graph = importGraph(repacked({ [MODEL]: json, [config]: JSON.stringify(tied) }));
    expect(graph.ties).toEqual([['fc1.weight', 'twin']]);
    expect(names(graph)).toEqual([['fc1.weight', 'twin'], ['fc1.bias'], ['fc2.bias']]);
  });

  test('weights of no bytes, deflated members: the same graph', () => {
    const plain = importGraph(fixture('torch/mlp/export.pt2.gz'));
    const empty = Object.fromEntries(
      Object.keys(whole())
        .filter((name) => /data\/weights\/weight_/.test(name))
        .map((name) => [name, new Uint8Array()]),
    );
    expect(importGraph(repacked(empty))).toEqual(plain);
    expect(importGraph(repacked({}, 6))).toEqual(plain);
  });

  test('without the table an unused parameter is tied to the only other of its type, and a note says so', () => {
    const graph = importGraph(packed('gpt2-2l/export.model.json.gz'));
    expect(graph.ties).toEqual([['model.transformer.wte.weight', 'model.lm_head.weight']]);
    expect(graph.notes?.join(' ')).toContain(
      'model.transformer.wte.weight is never used, and model.lm_head.weight alone',
    );
  });
});

test('what a file with open sizes contradicts itself in is refused with the node and a remedy where it is checked', () => {
  const json = strFromU8(unzipSync(fixture('torch/mlp-dynamic/export.pt2.gz'))[MODEL]);
  const changed = json.replace(
    '"p_fc2_weight": {"dtype": 7, "sizes": [{"as_int": 64}',
    '"p_fc2_weight": {"dtype": 7, "sizes": [{"as_int": 0}',
  );
  expect(changed).not.toBe(json);
  // Stated types in symbols stand until their sizes are known.
  const { code, message, details } = refusal(() => lintGraph(importGraph(changed), infer));
  expect([code, details.node, details.hint]).toEqual([
    'E_TYPE',
    'linear_1',
    'correct the arguments of the call',
  ]);
  expect(message).toBe('aten.linear.default: bias of shape [64] does not broadcast to [8, 0]');
});

describe('broken archives', () => {
  const told = (bytes: Uint8Array): string => {
    const { code, message, details } = refusal(() => importGraph(bytes));
    expect(details.hint ?? '').not.toBe('');
    return `${code} ${message}`;
  };

  test('cut, wrong checksum, wrong sizes', () => {
    const good = fixture('torch/mlp/export.pt2.gz');
    expect(told(good.subarray(0, good.length - 30))).toMatch(/^E_ARCHIVE .*no end record/);
    const json = whole()[MODEL];
    const at = Buffer.from(good).indexOf(Buffer.from(json.subarray(0, 64)));
    const damaged = Uint8Array.from(good);
    damaged[at + 20] ^= 1;
    expect(told(damaged)).toMatch(/^E_ARCHIVE .*models\/model\.json.* fails its checksum/);
    const packedModel = repacked({}, 6);
    const cut = Uint8Array.from(packedModel);
    // Flip bits inside the deflated model.
    const local = Buffer.from(cut).indexOf(MODEL);
    for (let i = 0; i < 40; i++) cut[local + MODEL.length + 60 + i] ^= 0x55;
    expect(told(cut)).toMatch(/^E_ARCHIVE /);
  });

  test.each([
    ['../evil.json', 'not a name inside an archive'],
    ['/etc/passwd', 'not a name inside an archive'],
    ['C:\\x', 'not a name inside an archive'],
    ['a/../../b', 'not a name inside an archive'],
  ])('a member called %s', (name, message) => {
    expect(told(repacked({ [name]: 'x' }))).toMatch(new RegExp(`^E_ARCHIVE .*${message}`));
  });

  test('no model, two models, a member that unpacks 1,000 times', () => {
    const none = zipSync({ 'archive/serialized_exported_program.json.txt': strToU8('{}') });
    expect(refusal(() => importGraph(none, { format: 'pt2' })).message).toContain(
      'holds no models/NAME.json',
    );
    expect(told(repacked({ [`${ROOT}models/other.json`]: '{}' }))).toContain('holds 2 models');
    const bomb = zipSync({ [MODEL]: [new Uint8Array(2 ** 24), { level: 9 }] });
    expect(told(bomb)).toMatch(/^E_LIMIT .*more than 200 times/);
    const claims = Uint8Array.from(zipSync({ [MODEL]: [strToU8('{}'), { level: 0 }] }));
    const view = new DataView(claims.buffer);
    const directory = Buffer.from(claims).lastIndexOf('PK\u0001\u0002');
    view.setUint32(directory + 24, 0x7fffffff, true);
    expect(told(claims)).toMatch(/^E_LIMIT .*2147483647 bytes/);
    const many = Uint8Array.from(zipSync({ [MODEL]: strToU8('{}') }));
    new DataView(many.buffer).setUint16(
      Buffer.from(many).lastIndexOf('PK\u0005\u0006') + 10,
      9,
      true,
    );
    expect(told(many)).toMatch(/^E_ARCHIVE .*entry 1 of its directory/);
  });

  const broken: readonly [what: string, edit: (json: string) => string, message: string][] = [
    [
      'a schema of another version',
      (j) => j.replace('"major": 8', '"major": 9'),
      'E_VERSION archive/models/model.json: the schema has version 9.20, this reader knows 8.x, at $.schema_version',
    ],
    [
      'an argument with two keys',
      (j) =>
        j.replace(
          '{"as_tensor": {"name": "relu"}}',
          '{"as_tensor": {"name": "relu"}, "as_int": 1}',
        ),
      'expected exactly one key, found as_tensor, as_int, at $.graph_module.graph.nodes[1].outputs[0]',
    ],
    [
      'an argument of unknown kind',
      (j) => j.replace('"arg": {"as_tensor"', '"arg": {"as_tensro"'),
      `'as_tensro' is not known here, at $.graph_module.graph.nodes[0].inputs[0].arg`,
    ],
    [
      'an unknown tensor',
      (j) =>
        j.replace('"arg": {"as_tensor": {"name": "x"}}', '"arg": {"as_tensor": {"name": "y"}}'),
      `E_REF archive/models/model.json: 'y' is not defined, at $.graph_module.graph.nodes[0].inputs[0].arg.as_tensor`,
    ],
    [
      'a number in place of a name',
      (j) => j.replace('"arg": {"as_tensor": {"name": "x"}}', '"arg": {"as_tensor": {"name": 7}}'),
      'expected a string, found 7, at $.graph_module.graph.nodes[0].inputs[0].arg.as_tensor.name',
    ],
    [
      'an unknown dtype',
      (j) => j.replace('"dtype": 7', '"dtype": 77'),
      'E_UNSUPPORTED archive/models/model.json: dtype number 77 of the export schema is none we know',
    ],
    [
      'a negative size',
      (j) => j.replace('{"as_int": 256}', '{"as_int": -256}'),
      'E_TYPE archive/models/model.json: -256 is not a size, at $.graph_module.graph.tensor_values.p_fc1_weight.sizes[0].as_int',
    ],
    [
      'a key twice',
      (j) => j.replace('"graph_module":', '"graph_module": 1, "graph_module":'),
      'E_DUP archive/models/model.json: the key "graph_module" occurs twice in one object',
    ],
    [
      'an unfinished text',
      (j) => j.slice(0, -5),
      `E_SYNTAX archive/models/model.json: expected ':', found the end of the text`,
    ],
  ];
  test.each(broken)('%s', (_what, edit, message) => {
    const json = model();
    const edited = edit(json);
    expect(edited).not.toBe(json);
    expect(told(repacked({ [MODEL]: edited }))).toContain(message);
  });

  test('the int64 maximum is exact: one digit more is seen', () => {
    const json = strFromU8(unzipSync(fixture('torch/llama-tiny/export.pt2.gz'))[MODEL]);
    const arg = (graph: Graph): unknown =>
      graph.nodes.flatMap((n) => n.args).find((value) => typeof value === 'bigint');
    expect(arg(importGraph(json))).toBe(9223372036854775807n);
    expect(arg(importGraph(json.replace('9223372036854775807', '9223372036854775806')))).toBe(
      9223372036854775806n,
    );
  });

  test('graphs in graphs, 300 deep', () => {
    let graph: unknown = { inputs: [], outputs: [], nodes: [], tensor_values: {} };
    for (let i = 0; i < 300; i++) {
      const body = { arg: { as_graph: { name: 'g', graph } }, name: '', kind: 1 };
      graph = {
        inputs: [],
        outputs: [],
        tensor_values: {},
        nodes: [
          { target: 'torch.ops.higher_order.cond', inputs: [body], outputs: [], metadata: {} },
        ],
      };
    }
    const text = JSON.stringify({
      graph_module: { graph, signature: {} },
      schema_version: { major: 8, minor: 20 },
    });
    expect(refusal(() => importGraph(text)).headline).toMatch(
      /^1:\d+: E_LIMIT lists and objects nest deeper than 256$/,
    );
  });
});
