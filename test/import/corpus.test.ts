import { gzipSync } from 'node:zlib';

import { describe, expect, test } from 'vitest';

import type { ValueType } from '../../src/graph/types.ts';
import { contiguousStride } from '../../src/graph/value.ts';
import { detectFormat } from '../../src/import/detect.ts';
import { gunzip } from '../../src/import/file/unpack.ts';
import { importGraph } from '../../src/import/import.ts';
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

  test('the 41,444 top-level annotations are those of the answer keys', () => {
    let compared = 0;
    let added = 0;
    for (const { record, path, shapes } of READABLE) {
      const [found, wanted]: [string[], string[]] = [[], []];
      for (const { name, type } of importGraph(corpusFile(path)).nodes) {
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
    expect([READABLE.length, compared - added, compared]).toEqual([78, 41_444, 50_848]);
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
      const ours = importGraph(corpusFile(twin), { infer, inputs: inputTypes(shapes) });
      expect(content(ours), twin).toEqual(content(importGraph(corpusFile(path), { infer })));
      compared++;
    }
    if (FULL) expect(compared).toBe(75);
    else expect(compared).toBeGreaterThan(60);
  }, 60_000);
});

describe('work', () => {
  test('by operator, at the top level', () => {
    let compared = 0;
    for (const { record, path } of READABLE) {
      if (record.graph_flops === undefined) continue;
      const wanted = { ...record.graph_flops.by_op };
      // The index counts a grouped backward convolution as if it had one group.
      const grouped = record.graph_flops.grouped_conv_backward_overcount ?? 0;
      if (grouped > 0) wanted['aten.convolution_backward'] -= grouped;
      const found: Record<string, number> = {};
      // The texts of mlp-dynamic do not say how large the batch was; the archive does.
      const sized = record.model === 'mlp-dynamic' ? fileOf(record, '.pt2') : path;
      for (const [target, flops] of Object.entries(
        graphFlops(importGraph(corpusFile(sized ?? path), { infer }), table).byTarget,
      )) {
        const name = target.replace(/\.\w+$/, '');
        found[name] = (found[name] ?? 0) + flops;
      }
      expect([path, found]).toEqual([path, wanted]);
      compared++;
    }
    expect(compared).toBe(78);
  }, 60_000);

  test('by phase: what the framework counted while the model ran', () => {
    let compared = 0;
    for (const { record, path } of READABLE) {
      const eager = record.eager_flops;
      if (!record.id.includes('/joint') || eager?.backward === undefined) continue;
      const { forward, backward } = programFlops(importGraph(corpusFile(path), { infer }), table);
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
    expect(compared).toBe(18);
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
  ['llama3-8b-32l', 3445, 4060, 2796, 295, 4],
];

describe('phases of imported joint graphs', () => {
  test.each(PHASES)(
    '%s: %i forward, %i backward; %i needed; %i slots, %i none',
    (model, ...wanted) => {
      const found = READABLE.find(({ record }) => record.id === `${model}/joint`);
      const { nodes, outputs } = importGraph(corpusFile(found?.path ?? ''));
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
