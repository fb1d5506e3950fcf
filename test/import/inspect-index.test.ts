import { describe, expect, test } from 'vitest';

import { inspectGraph, type Inspection } from '../../src/cli/commands/reading/inspect.ts';
import { importModel } from '../../src/import/import.ts';
import { FULL } from '../support/full.ts';
import { corpus, corpusFile, type CorpusRecord, graphFiles, shapesOf } from './corpus.ts';
import { infer, inputTypes, table } from './twins.ts';

/**
 * What `inspect` says of every file that PyTorch's tools wrote, against the index of the corpus.
 */

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
  const { graph, format, counts } = importModel(corpusFile(path), {
    infer,
    inputs: inputTypes(shapes ?? {}),
  });
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
