import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import type { AnswerKey, KeyCounts } from './fixtures.ts';

/**
 * All graphs that the frameworks wrote, with the index that says what they hold; copies under
 * `test/fixtures`.
 */

const ROOT = join(import.meta.dirname, '..', 'fixtures');

/** FLOPs by class of operation. */
export interface WorkByClass {
  readonly matmul: number;
  readonly conv: number;
  readonly attention: number;
  readonly total: number;
  readonly by_op: Readonly<Record<string, number>>;
  /** Work that backward convolutions with groups do not have, but are counted with. */
  readonly grouped_conv_backward_overcount?: number;
  /** `total` with the groups of convolutions. */
  readonly total_group_aware?: number;
}

export interface CorpusRecord {
  readonly id: string;
  readonly kind: string;
  readonly tool: string;
  readonly model: string;
  /** `path` as the index has it; packed files end in `.gz`. */
  readonly files: readonly { readonly path: string; readonly format: string }[];
  readonly params: {
    readonly count?: number;
    readonly initializers?: number;
    readonly numel: number;
  };
  readonly graph?: KeyCounts;
  readonly graph_flops?: WorkByClass;
  /** Counted by the framework while the model ran. */
  readonly eager_flops?: {
    readonly forward: { readonly with_cpu_flash: WorkByClass };
    readonly backward?: { readonly with_cpu_flash: WorkByClass };
  };
  readonly num_fwd_outputs?: number;
  readonly hlo?: {
    readonly by_op: Readonly<Record<string, number>>;
    readonly collectives: Readonly<Record<string, number>>;
    readonly collective_list: readonly {
      readonly op: string;
      readonly type: string;
      readonly replica_groups: string | null;
    }[];
  };
}

export const corpus = (
  JSON.parse(unpacked('index.json.gz')) as { readonly records: readonly CorpusRecord[] }
).records;

function unpacked(path: string): string {
  return gunzipSync(readFileSync(join(ROOT, path))).toString('utf8');
}

/** Place of the copy of a file of the index; every copy is packed. */
function copyOf(path: string): string {
  const base = path.replace(/\.gz$/, '');
  const model = /^onnx\/([^/]+)\/model\.onnx$/.exec(base)?.[1];
  return join(ROOT, `${model === undefined ? base : `onnx/${model}.onnx`}.gz`);
}

/** Bytes of a file of the index, unpacked. */
export function corpusFile(path: string): Uint8Array {
  return new Uint8Array(gunzipSync(readFileSync(copyOf(path))));
}

export function corpusText(path: string): string {
  return new TextDecoder().decode(corpusFile(path));
}

/** Files that hold a graph: all but answer keys and printouts for people. */
export function graphFiles(record: CorpusRecord): string[] {
  return record.files
    .map((file) => file.path)
    .filter((path) => !/\.shapes\.json|^onnx\/.*\.txt$/.test(path));
}

/** The file of a record whose name has this part. */
export function fileOf(record: CorpusRecord, part: string): string | undefined {
  return record.files.find((file) => file.path.includes(part))?.path;
}

/** Node name -> [dtype, shape, stride]; undefined where the record has no answer key. */
export function shapesOf(record: CorpusRecord): AnswerKey['shapes'] | undefined {
  const path = fileOf(record, '.shapes.json');
  if (path === undefined) return undefined;
  const key = path
    .replace(/\.gz$/, '')
    .replace('/model.shapes.', '.shapes.')
    .replace('.shapes.json', '.key.json.gz');
  return (JSON.parse(unpacked(key)) as AnswerKey).shapes;
}
