/**
 * Files of every importer with changed bits, lines, numbers and words. Each one gives a linted graph
 * whose text reads back, or is refused with a code and a remedy. None gives an internal error or a
 * foreign exception, and none runs forever.
 */
import fc from 'fast-check';
import { unzipSync, zipSync } from 'fflate';
import { expect } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import { lintGraph } from '../../src/graph/lint.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import type { Format } from '../../src/import/formats.ts';
import { readHlo } from '../../src/import/hlo/collectives.ts';
import { importGraph, importModel } from '../../src/import/import.ts';
import { buildModel } from '../../src/models/build.ts';
import { parseModelConfig } from '../../src/models/families.ts';
import { answerKey } from '../import/fixtures.ts';
import { genericText } from '../import/support-generic.ts';
import { fixture, infer, inputTypes } from '../import/twins.ts';
import { TINY } from '../models/tiny.ts';
import { ending, type Fuzzer, fuzzer } from './runner.ts';

/** A file of some kilobytes is read in milliseconds; the limit leaves room for a busy machine. */
const MOST_MILLISECONDS = 20_000;
const MOST_HEAP_GROWTH_BYTES = 2 ** 30;

const HOSTILE = [
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  '"',
  '\\',
  '%',
  '(',
  '[',
  '{',
  ')',
  ']',
  '}',
  '<',
  '>',
  ',',
  ':',
  ';',
  '?',
  '\n',
  '\t',
  '\0',
  '\u{1F600}',
  '→',
  '-> ',
  '%0',
  '@main',
  'dense',
  '#loc',
  'in (',
  'let ',
  '-1',
  '0x',
  '1e999',
  '99999999999999999999999999',
  '9007199254740993',
  '-9223372036854775808',
  'NaN',
  'null',
  'None',
  'true',
  '[]',
  '{}',
  '[['.repeat(300),
  '{"a":'.repeat(300),
  '('.repeat(600),
  'x'.repeat(5000),
];

const KINDS = [
  'bit',
  'byte',
  'cut',
  'delete',
  'copy',
  'word',
  'token',
  'token',
  'token',
  'line',
  'number',
  'number',
] as const;
const edits = fc.array(
  fc.record({
    kind: fc.constantFrom(...KINDS),
    at: fc.nat(999_999),
    length: fc.nat(40),
    value: fc.nat(255),
    to: fc.nat(999_999),
  }),
  { minLength: 1, maxLength: 3 },
);
type Edit = (typeof edits extends fc.Arbitrary<infer T> ? T : never)[0];

const joined = (...parts: readonly Uint8Array[]): Uint8Array =>
  Uint8Array.from(Buffer.concat(parts));
const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);

function damaged(data: Uint8Array, edit: Edit): Uint8Array {
  // Edits before this one may have left nothing.
  if (data.length === 0) return data;
  const place = (share: number): number => Math.floor((share / 1e6) * data.length);
  const [at, other] = [place(edit.at), place(edit.to)];
  const splice = (from: number, to: number, put: Uint8Array): Uint8Array =>
    joined(data.subarray(0, from), put, data.subarray(to));
  const word = bytesOf(HOSTILE[edit.value % HOSTILE.length]);
  switch (edit.kind) {
    case 'bit':
      return data.with(at, data[at] ^ (1 << (edit.value % 8)));
    case 'byte':
      return data.with(at, edit.value);
    case 'cut':
      return data.slice(0, at + 1);
    case 'delete':
      return splice(at, at + 1 + edit.length, new Uint8Array());
    case 'copy':
      return splice(
        at,
        at + (edit.value % 2) * edit.length,
        data.slice(other, other + edit.length),
      );
    case 'word':
      return splice(at, at + (edit.value % 2) * edit.length, word);
    case 'token': {
      // A name, a number or a quoted text becomes another of the file, or a hostile word.
      const text = Buffer.from(data).toString('latin1');
      const tokens = [...text.matchAll(/"[^"\n]{0,60}"|[A-Za-z_%@][\w.]*|-?\d[\d.e+-]*/g)];
      if (tokens.length === 0) return data;
      const [from, by] = [tokens[edit.at % tokens.length], tokens[edit.to % tokens.length]];
      return splice(
        from.index,
        from.index + from[0].length,
        edit.value % 4 === 0 ? word : Buffer.from(by[0], 'latin1'),
      );
    }
    case 'line': {
      // A line moves or doubles: names are used before they are defined, or defined twice.
      const [start, stop] = [data.lastIndexOf(10, at) + 1, data.indexOf(10, at)];
      const line = data.slice(start, stop < 0 ? data.length : stop + 1);
      const rest =
        edit.value % 2 === 0
          ? data
          : joined(data.subarray(0, start), data.subarray(start + line.length));
      const put = rest.lastIndexOf(10, Math.min(other, rest.length)) + 1;
      return joined(rest.subarray(0, put), line, rest.subarray(put));
    }
    case 'number': {
      const text = Buffer.from(data).toString('latin1');
      const next = /\d+/.exec(text.slice(at));
      if (next === null) return data;
      const value =
        edit.value % 3 === 0
          ? String(edit.to)
          : edit.value % 3 === 1
            ? '0'
            : String(2 ** (edit.value % 70));
      return splice(at + next.index, at + next.index + next[0].length, bytesOf(value));
    }
  }
}

const MODEL = 'archive/models/model.json';
const archive = (path: string): Uint8Array => unzipSync(fixture(path))[MODEL];
const packed = (model: Uint8Array): Uint8Array =>
  zipSync({ [MODEL]: [model, { level: 6 }], 'archive/data/weights/w': new Uint8Array(64) });

/**
 * A zip archive is damaged inside, and sound outside: outside nearly every bit is under a checksum.
 * One edit in eight is of the archive itself, and comes last; one of a name.
 */
function damagedArchive(data: Uint8Array, edits: readonly Edit[]): Uint8Array {
  const inside = edits.filter(({ value }) => value % 8 !== 0).reduce(damagedMember, data);
  return edits.filter(({ value }) => value % 8 === 0).reduce(damaged, inside);
}

function damagedMember(data: Uint8Array, edit: Edit): Uint8Array {
  const members = Object.entries(unzipSync(data));
  const [model, ...others] = [...members].sort(([, a], [, b]) => b.length - a.length);
  const [name, content] =
    edit.value % 8 < 7 || others.length === 0 ? model : others[edit.at % others.length];
  const isRenamed = edit.value % 16 === 9;
  const after = isRenamed ? Buffer.from(damaged(bytesOf(name), edit)).toString('latin1') : name;
  const inside = isRenamed || content.length === 0 ? content : damaged(content, edit);
  return zipSync(
    Object.fromEntries(members.map(([n, c]) => (n === name ? [after, inside] : [n, c]))),
    { level: 1 },
  );
}

const graphText = (id: string): Uint8Array =>
  bytesOf(printGraph(importGraph(fixture(`torch/${id}.readable.txt.gz`), { infer })));
const generic = (path: string): Uint8Array =>
  bytesOf(genericText(Buffer.from(fixture(path)).toString()));
const firstLines = (path: string, count: number): Uint8Array =>
  bytesOf(Buffer.from(fixture(path)).toString().split('\n').slice(0, count).join('\n'));
const trace = (): Uint8Array =>
  bytesOf(
    `V1120 11:01:03.362000 13582 a.py:28] {"aot_joint_graph": {}, "frame_id": 0, "has_payload": "00"}\n\t${Buffer.from(fixture('torch/mlp/joint.readable.txt.gz')).toString().replaceAll('\n', '\n\t')}`,
  );
const files =
  (...paths: readonly string[]) =>
  (): readonly Uint8Array[] =>
    paths.map((path) => fixture(`${path}.gz`));

const SOURCES: readonly (readonly [
  format: Format | 'hf-config',
  name: string,
  sources: () => readonly Uint8Array[],
])[] = [
  [
    'fx',
    'FX text',
    files(
      'torch/mlp/joint.readable.txt',
      'torch/hop-cond/export.readable.txt',
      'torch/convnet/joint.expanded.txt',
      'torch/repro/mlp-backward.py',
      'torch/repro/sharded.py',
      'steps/torch-momentum.fx.txt',
    ),
  ],
  [
    'fx-graph',
    'FX graph listing',
    files('torch/mlp/joint.graph.txt', 'torch/hop-while/export.graph.txt'),
  ],
  [
    'exported-program',
    'printed exported program',
    files('torch/mlp-dynamic/export.ep.txt', 'steps/torch-momentum.ep.txt'),
  ],
  ['torch-log', 'torch log', () => [firstLines('torch/logs/mlp.log.gz', 50)]],
  ['torch-trace', 'torch trace', () => [trace()]],
  [
    'pt2',
    '.pt2 archive',
    () => [
      packed(archive('torch/hop-while/export.pt2.gz')),
      ...['torch/hop-while/export.pt2.gz', 'torch/mlp-dynamic/export.pt2.gz'].map((path) =>
        fixture(path),
      ),
    ],
  ],
  [
    'pt2-json',
    '.pt2 program',
    () => [archive('torch/hop-while/export.pt2.gz'), archive('torch/mlp-dynamic/export.pt2.gz')],
  ],
  ['onnx', 'ONNX', files('onnx/hop-cond.onnx', 'onnx/hop-while.onnx', 'onnx/mlp-dynamic.onnx')],
  [
    'swgraph',
    'graph text',
    () => ['hop-cond/export', 'mlp-dynamic/export', 'convnet/joint'].map(graphText),
  ],
  [
    'hlo',
    'HLO',
    files(
      'jax/einshard-mlp-2d-weight/shardy.partitioned.hlo',
      'jax/mlp-constraint/gspmd.partitioned.hlo',
      'jax/ctl-scan-rnn/compiled.hlo',
    ),
  ],
  [
    'stablehlo',
    'StableHLO',
    files(
      'jax/ctl-cond/stablehlo.mlir',
      'jax/ctl-scan-rnn/stablehlo.mlir',
      'jax/ctl-while/stablehlo.mlir',
      'jax/mlp-constraint/shardy.mlir',
      'jax/mlp-constraint/gspmd.mlir',
      'jax/shard-map-mlp/shardy.mlir',
      'jax/shard-map-mlp/gspmd.mlir',
      'jax/einshard-mlp-grad-batch2-y4/shardy.mlir',
    ),
  ],
  [
    'stablehlo',
    'StableHLO in generic form',
    () =>
      [
        'ctl-cond/stablehlo',
        'ctl-while/stablehlo',
        'mlp-constraint/shardy',
        'shard-map-mlp/gspmd',
      ].map((id) => generic(`jax/${id}.mlir.gz`)),
  ],
  [
    'jaxpr',
    'jaxpr',
    files(
      'jax/ctl-cond/jaxpr.txt',
      'jax/ctl-scan-rnn-grad/jaxpr.txt',
      'jax/ctl-while/jaxpr.txt',
      'jax/shard-map-mlp/jaxpr.txt',
      'jax/mlp-constraint/jaxpr.txt',
      'jax/einshard-mlp-grad-batch2-y4/jaxpr.txt',
      'jax/ctl-vmap-remat/jaxpr.txt',
    ),
  ],
  [
    'hf-config',
    'HF config',
    () => Object.values(TINY).map((config) => bytesOf(JSON.stringify(config, null, 1))),
  ],
];

const PLACED: ReadonlySet<string> = new Set(['stablehlo', 'jaxpr']);

export const INPUTS: readonly Fuzzer[] = SOURCES.map(([format, name, sources]) => {
  let read: readonly Uint8Array[] | undefined;
  let inputs: Readonly<Record<string, string>> | undefined;
  const check = (data: Uint8Array): void => {
    if (format === 'hf-config')
      return void buildModel(parseModelConfig(new TextDecoder().decode(data)), {
        batch: 2,
        seq: 8,
      });
    if (format === 'hlo') return void readHlo(data);
    inputs ??= {
      ...inputTypes(answerKey('mlp/joint').shapes),
      ...inputTypes(answerKey('hop-while/export').shapes),
    };
    const { graph } = importModel(data, {
      format,
      infer,
      inputs,
      ...(format === 'torch-log' ? { select: 'aot_joint_graph' } : {}),
    });
    lintGraph(graph, infer);
    parseGraph(printGraph(graph));
  };
  return fuzzer(
    `inputs: ${name}`,
    60,
    fc.record({ file: fc.nat(100), edits }),
    ({ file, edits: list }) => {
      read ??= sources();
      let data = read[file % read.length];
      if (format === 'pt2') data = damagedArchive(data, list);
      else for (const edit of list) if (data.length > 0) data = damaged(data, edit);
      const heap = process.memoryUsage().heapUsed;
      let outcome = 'graph';
      try {
        ending(MOST_MILLISECONDS, () => check(data));
      } catch (error) {
        if (!(error instanceof ShardwrightError) || error.code === 'E_INTERNAL') throw error;
        outcome = error.code;
        // Lint speaks of nodes and says what is wrong with them; others say what to do, and texts
        // where.
        if (outcome !== 'E_GRAPH_LINT') {
          expect(
            error.details.hint ?? (format === 'hf-config' ? 'path' : ''),
            error.headline,
          ).not.toBe('');
          if (PLACED.has(format) && outcome !== 'E_ENCODING')
            expect(error.details.position, error.headline).toBeDefined();
        }
      }
      expect(process.memoryUsage().heapUsed - heap, 'heap').toBeLessThan(MOST_HEAP_GROWTH_BYTES);
      expect(Object.keys(Object.prototype)).toEqual([]);
      return outcome;
    },
  );
});
