import { createHash } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { gzipSync, strToU8 } from 'fflate';

import type { ExportFile, ExportSource } from '../../src/backend/target.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { sourceOf } from './programs.ts';

/** What JAX made of an exported program. */
export interface JaxAnswer {
  /**
   * Largest difference from the float64 evaluation of the graph, relative to the largest number of
   * each output.
   */
  readonly sharded: number;
  /** The same of `reference.py`. */
  readonly whole: number;
  /** Collectives that the program asks XLA for, and those in the compiled module. */
  readonly written: Readonly<Record<string, number>>;
  readonly compiled: Readonly<Record<string, number>>;
}

/** A program that JAX ran, with the plan that it was exported from. */
export interface RecordedCase {
  readonly graph: string;
  readonly plan: Pick<Plan, 'request' | 'nodes' | 'outputs' | 'parameters'>;
  /** SHA-256 of the files. */
  readonly files: string;
  readonly answer: JaxAnswer;
}

export interface JaxRecord {
  readonly jax: string;
  readonly cases: Readonly<Record<string, RecordedCase>>;
}

export const JAX_RECORD = fileURLToPath(new URL('../fixtures/export/jax.json.gz', import.meta.url));

export function readJaxRecord(bytes: Uint8Array): JaxRecord {
  return JSON.parse(gunzipSync(bytes).toString('utf8')) as JaxRecord;
}

export function writeJaxRecord(record: JaxRecord): Uint8Array {
  return gzipSync(strToU8(JSON.stringify(record)), { mtime: 0, level: 9 });
}

/** The plan with what stands in the head of files left out. */
export function keptPlan({ plan }: ExportSource): RecordedCase['plan'] {
  const { request, nodes, outputs, parameters } = plan;
  return { request, nodes, outputs, parameters };
}

export function keptGraph({ program }: ExportSource): string {
  return printGraph(program);
}

export function recordedSource({
  graph,
  plan,
}: Pick<RecordedCase, 'graph' | 'plan'>): ExportSource {
  return sourceOf(parseGraph(graph), { model: 'recorded', mesh: [], cluster: 'test', ...plan });
}

export function hashOf(files: readonly ExportFile[]): string {
  const hash = createHash('sha256');
  for (const { name, text } of files) hash.update(`${name}\n${text}\n`);
  return hash.digest('hex');
}

/**
 * Collectives of a `collectives.json` that the program asks for, by the name that HLO has for them.
 */
export function askedCollectives(files: readonly ExportFile[]): Record<string, number> {
  const file = files.find(({ name }) => name === 'collectives.json');
  const { collectives } = JSON.parse(file?.text ?? '{"collectives":[]}') as {
    collectives: { kind: string; as?: string; unread?: boolean }[];
  };
  const counts: Record<string, number> = {};
  for (const { kind, as, unread } of collectives) {
    if (unread === true) continue;
    const name = (as ?? kind).replaceAll('_', '-');
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return Object.fromEntries(Object.entries(counts).sort());
}
