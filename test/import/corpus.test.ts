import { gzipSync } from 'node:zlib';

import { afterAll, describe, expect, test } from 'vitest';

import { inspectGraph, type Inspection } from '../../src/cli/commands/reading/inspect.ts';
import type { ValueType } from '../../src/graph/types.ts';
import { contiguousStride } from '../../src/graph/value.ts';
import { detectFormat } from '../../src/import/detect.ts';
import { gunzip } from '../../src/import/file/unpack.ts';
import { importGraph, importModel } from '../../src/import/import.ts';
import type { Imported } from '../../src/import/types.ts';
import { graphFlops } from '../../src/ops/flops.ts';
import { programFlops } from '../../src/ops/program-flops.ts';
import { FULL } from '../support/full.ts';
import {
  corpus,
  corpusFile,
  type CorpusRecord,
  corpusText,
  fileOf,
  graphFiles,
  shapesOf,
} from './corpus.ts';
import { type AnswerKey, KEY_DTYPES, type KeyType } from './fixtures.ts';
import { content, infer, inputTypes, table } from './twins.ts';

/** Every file of the corpus against the index and the answer keys of the frameworks. */

const FORMATS: readonly (readonly [name: RegExp, format: string])[] = [
  [/\.(readable|expanded)\.txt/, 'fx'],
  [/\.graph\.txt/, 'fx-graph'],
  [/\.ep\.txt/, 'exported-program'],
  [/\.pt2/, 'pt2'],
  [/\.model\.json/, 'pt2-json'],
  [/\.log/, 'torch-log'],
  [/\.mlir/, 'stablehlo'],
  [/\.hlo/, 'hlo'],
  [/jaxpr\.txt/, 'jaxpr'],
  [/\.onnx/, 'onnx'],
];

/** Records with a readable text and its answer key. */
const READABLE = corpus.flatMap(
  (record): { record: CorpusRecord; path: string; shapes: AnswerKey['shapes'] }[] => {
    const path = fileOf(record, '.readable.txt');
    const shapes = path === undefined ? undefined : shapesOf(record);
    return path === undefined || shapes === undefined ? [] : [{ record, path, shapes }];
  },
);
/** Graphs of 12 and 32 layers are those of 2 for longer: all of them with SHARDWRIGHT_FULL. */
const SHALLOW = READABLE.filter(({ record }) => FULL || !/12l|32l/.test(record.id));
/** Every file is imported once, with the types of its inputs where its text has none. */
const read = new Map<string, Imported>();
function imported(path: string, shapes?: AnswerKey['shapes']): Imported {
  const known = read.get(path);
  if (known !== undefined) return known;
  const inputs = shapes === undefined ? {} : inputTypes(shapes);
  const model = importModel(corpusFile(path), { infer, inputs });
  read.set(path, model);
  return model;
}
afterAll(() => read.clear());

type TensorValue = Extract<ValueType, { kind: 'tensor' }>;
/** Joint graphs that were added to the index after the specification was written. */
const ADDED = new Set([
  'llama3-8b-2l-b16/joint',
  'llama3-8b-4l-b64/joint',
  'llama3-8b-32l-b16/joint',
]);

const shapeOf = (type: TensorValue): unknown[] =>
  type.shape.map((d) => (typeof d === 'number' ? d : d.sym));

describe('the corpus', () => {
  test('content alone gives the format of every file, packed or not', () => {
    const seen = new Map<string, number>();
    for (const record of corpus) {
      for (const path of graphFiles(record)) {
        const bytes = corpusFile(path);
        const format = detectFormat(bytes);
        expect([path, format]).toEqual([path, FORMATS.find(([name]) => name.test(path))?.[1]]);
        expect(detectFormat(gunzip(gzipSync(bytes, { level: 1 }), {})), path).toBe(format);
        seen.set(format, (seen.get(format) ?? 0) + 1);
      }
    }
    expect(seen.size).toBe(10);
    expect([
      seen.get('fx-graph'),
      seen.get('pt2'),
      seen.get('pt2-json'),
      seen.get('stablehlo'),
      seen.get('jaxpr'),
      seen.get('onnx'),
    ]).toEqual([75, 10, 11, 33, 14, 8]);
  }, 60_000);

  test('the top-level annotations are those of the answer keys', () => {
    let compared = 0;
    let added = 0;
    for (const { record, path, shapes } of SHALLOW) {
      const [found, wanted]: [string[], string[]] = [[], []];
      for (const { name, type } of imported(path).graph.nodes) {
        const key = shapes[name] as KeyType | string | undefined;
        if (type.kind === 'sym') {
          found.push(`${name} Sym(${type.expr})`);
          wanted.push(`${name} Sym(${String(key)})`);
        } else if (type.kind !== 'tensor') continue;
        else {
          const [dtype, shape, stride] = key as KeyType;
          // Texts of torch.export print no strides.
          const printed = /export/.test(path) ? null : stride;
          found.push(
            JSON.stringify([
              name,
              type.dtype,
              shapeOf(type),
              printed && (type.stride ?? contiguousStride(type.shape)),
            ]),
          );
          wanted.push(JSON.stringify([name, KEY_DTYPES[dtype], shape, printed]));
        }
        compared++;
        if (ADDED.has(record.id)) added++;
      }
      expect(found, path).toEqual(wanted);
    }
    expect(READABLE.length).toBe(78);
    if (FULL) expect([compared - added, compared]).toEqual([41_444, 50_848]);
    else expect(compared).toBeGreaterThan(10_000);
  }, 60_000);

  test('with all annotations of calls erased, dtype, shape and stride are inferred again', () => {
    let compared = 0;
    for (const { path, shapes } of SHALLOW) {
      const erased = corpusText(path).replaceAll(/^( *\w+): "[^"]*" =/gm, '$1 =');
      const [found, wanted]: [string[], string[]] = [[], []];
      for (const { name, target, type } of importGraph(erased, { infer }).nodes) {
        if (type.kind !== 'tensor') continue;
        const [dtype, shape, stride] = shapes[name] as KeyType;
        found.push(
          JSON.stringify([
            name,
            target,
            type.dtype,
            shapeOf(type),
            type.stride ?? contiguousStride(type.shape),
          ]),
        );
        wanted.push(JSON.stringify([name, target, KEY_DTYPES[dtype], shape, stride]));
        compared++;
      }
      expect(found, path).toEqual(wanted);
    }
    if (FULL) expect(compared).toBe(50_848);
    else expect(compared).toBeGreaterThan(10_000);
  }, 60_000);

  test('str(graph) texts give the graph of the readable twin', () => {
    let compared = 0;
    for (const { record, path, shapes } of SHALLOW) {
      const twin = fileOf(record, '.graph.txt');
      if (twin === undefined) continue;
      const ours = imported(twin, shapes).graph;
      expect(content(ours), twin).toEqual(content(imported(path).graph));
      compared++;
    }
    if (FULL) expect(compared).toBe(75);
    else expect(compared).toBeGreaterThan(60);
  }, 60_000);
});

describe('work', () => {
  test('by operator, at the top level', () => {
    let compared = 0;
    for (const { record, path } of SHALLOW) {
      if (record.graph_flops === undefined) continue;
      const wanted = { ...record.graph_flops.by_op };
      // The index counts a grouped backward convolution as if it had one group.
      const grouped = record.graph_flops.grouped_conv_backward_overcount ?? 0;
      if (grouped > 0) wanted['aten.convolution_backward'] -= grouped;
      const found: Record<string, number> = {};
      // The texts of mlp-dynamic do not say how large the batch was; the archive does.
      const sized = record.model === 'mlp-dynamic' ? fileOf(record, '.pt2') : path;
      for (const [target, flops] of Object.entries(
        graphFlops(imported(sized ?? path).graph, table).byTarget,
      )) {
        const name = target.replace(/\.\w+$/, '');
        found[name] = (found[name] ?? 0) + flops;
      }
      expect([path, found]).toEqual([path, wanted]);
      compared++;
    }
    expect(compared).toBe(FULL ? 78 : 69);
  }, 60_000);

  test('by phase: what the framework counted while the model ran', () => {
    let compared = 0;
    for (const { record, path } of SHALLOW) {
      const eager = record.eager_flops;
      if (!record.id.includes('/joint') || eager?.backward === undefined) continue;
      const { forward, backward } = programFlops(imported(path).graph, table);
      // Inductor's decompositions write the rotary product of the Llama models as a multiplication.
      const rotary = record.id === 'llama3-8b-2l/joint_inductor' ? 524_288 : 0;
      const grouped = record.graph_flops?.grouped_conv_backward_overcount ?? 0;
      expect([path, forward + rotary, backward + grouped]).toEqual([
        path,
        eager.forward.with_cpu_flash.total,
        eager.backward.with_cpu_flash.total,
      ]);
      compared++;
    }
    expect(compared).toBe(FULL ? 18 : 15);
  });
});

/**
 * Forward and backward calls, forward calls that an output needs, gradient slots and how many of
 * them are none.
 */
const PHASES: readonly (readonly [
  model: string,
  forward: number,
  backward: number,
  needed: number,
  slots: number,
  none: number,
])[] = [
  ['mlp', 8, 14, 5, 5, 1],
  ['mlp-loss', 9, 15, 6, 6, 2],
  ['convnet', 21, 24, 15, 12, 4],
  ['resnet18', 233, 177, 154, 124, 62],
  ['gpt2-2l', 190, 132, 146, 31, 3],
  ['llama-tiny', 283, 269, 234, 25, 4],
  ['llama3-8b-2l', 295, 280, 246, 25, 4],
  ['mixtral-tiny', 337, 311, 274, 25, 4],
  ['vit-tiny', 586, 707, 448, 154, 2],
  ['bert-base', 752, 983, 587, 208, 6],
  ...(FULL ? [['llama3-8b-32l', 3445, 4060, 2796, 295, 4] as const] : []),
];

describe('phases of imported joint graphs', () => {
  test.each(PHASES)(
    '%s: %i forward, %i backward; %i needed; %i slots, %i none',
    (model, ...wanted) => {
      const found = READABLE.find(({ record }) => record.id === `${model}/joint`);
      const { nodes, outputs } = imported(found?.path ?? '').graph;
      const calls = nodes.filter((n) => n.kind === 'call');
      const forward = calls.filter((n) => n.meta.phase === 'forward');
      const slots = outputs.filter((o) => o.role === 'grad');
      expect([
        forward.length,
        calls.filter((n) => n.meta.phase === 'backward').length,
        forward.filter((n) => n.meta.savedOnly !== true).length,
        slots.length,
        slots.filter((o) => o.value === null).length,
      ]).toEqual(wanted);
    },
  );
});

// What `inspect` says of every file that PyTorch's tools wrote, against the index.

// Exceptions, each with the place that names it.

/** Specification 1.2: work enters bodies, the index counts the top level only. */
const WITH_BODIES: { readonly [id: string]: number } = {
  'hop-cond/export': 2048,
  'hop-scan/export': 24_576,
  'hop-while/export': 10_240,
  'hop-map/export': 12_288,
  'hop-cond-joint/joint': 6144,
  'hop-cond-joint/forward': 2048,
  'hop-cond-joint/backward': 4096,
  'hop-scan-joint/joint': 61_440,
  'hop-scan-joint/forward': 24_576,
  'hop-scan-joint/backward': 36_864,
  'hop-map-joint/joint': 36_864,
  'hop-map-joint/forward': 12_288,
  'hop-map-joint/backward': 24_576,
};

/** Specification 1.2: the rotary product inside `wrap_with_set_grad_enabled` of the exports. */
const ROTARY: { readonly [model: string]: number } = {
  'llama-tiny': 512,
  'mixtral-tiny': 512,
  'mixtral-tiny-grouped': 512,
  'llama3-8b-2l': 524_288,
  'llama3-8b-32l': 524_288,
};

/** README of the fixtures: expanded joint texts list a tied weight once per name. */
const TIED: { readonly [id: string]: readonly [count: number, elements: number] } = {
  'gpt2-2l/joint': [29, 92_158_464],
  'gpt2-12l/joint': [149, 163_037_184],
  'bert-base/joint': [204, 109_514_298 + 30_522 * 768 + 30_522],
};

function flopsOf(record: CorpusRecord, path: string): number | undefined {
  const { id, model, graph_flops } = record;
  const withBodies = WITH_BODIES[id];
  if (withBodies !== undefined) return withBodies;
  // The texts say that the batch is symbolic, but not how large it was; archives do.
  if (id === 'mlp-dynamic/export' && !path.endsWith('.pt2')) return 0;
  const total = graph_flops?.total_group_aware ?? graph_flops?.total;
  if (total === undefined) return undefined;
  const stillWrapped = id.endsWith('/export');
  return total + (stillWrapped ? (ROTARY[model] ?? 0) : 0);
}

function parametersOf(record: CorpusRecord, path: string): readonly [number, number] {
  // Specification 2.3: the partitioned graphs of AOTAutograd state no roles.
  if (/\/(forward|backward)(_inductor)?\./.test(path)) return [0, 0];
  const tied = TIED[record.id];
  if (tied !== undefined && path.includes('.expanded.')) return tied;
  return [record.params.count ?? record.params.initializers ?? -1, record.params.numel];
}

function inspected(record: CorpusRecord, path: string): Inspection {
  const shapes = path.includes('.graph.txt') ? shapesOf(record) : undefined;
  const { graph, format, counts } = imported(path, shapes);
  return inspectGraph(graph, table, format, counts);
}

describe('inspect equals the index', () => {
  test('torch and ONNX files', () => {
    let files = 0;
    for (const record of corpus) {
      if (record.graph === undefined || !/^torch/.test(record.tool)) continue;
      // Graphs of 12 and 32 layers are those of 2 for longer.
      if (!FULL && /12l|32l/.test(record.id)) continue;
      for (const path of graphFiles(record)) {
        const found = inspected(record, path);
        expect([found.nodes, found.ops], path).toEqual([record.graph.nodes, record.graph.by_op]);
        expect([found.parameterCount, found.parameters], path).toEqual(parametersOf(record, path));
        const flops = flopsOf(record, path);
        if (flops !== undefined) expect(found.flops.total, path).toBe(flops);
        expect(found.unknownOps, path).toEqual([]);
        files++;
      }
    }
    // Readable, expanded, graph() and signature texts, archives, JSON, ONNX.
    if (FULL) expect(files).toBe(78 + 21 + 75 + 21 + 10 + 11 + 8);
    else expect(files).toBeGreaterThan(180);
  }, 120_000);
});
