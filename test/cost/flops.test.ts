import { describe, expect, test } from 'vitest';

import { importGraph } from '../../src/import/import.ts';
import { programFlops } from '../../src/ops/program-flops.ts';
import { corpus, corpusFile } from '../import/corpus.ts';
import { infer, table } from '../import/twins.ts';

/**
 * Joint graphs of the corpus with counted FLOPs; the rest of the corpus is counted in
 * `test/import/corpus.test.ts`.
 */
const records = corpus.filter(
  (r) =>
    r.id.endsWith('/joint') && r.graph_flops !== undefined && !/32l|4l-b64|12l|^hop/.test(r.id),
);

describe('FLOPs of the public graphs equal the index', () => {
  test.each(records.map((r) => [r.id, r] as const))('%s', (_, record) => {
    const path = record.files.map((f) => f.path).find((p) => p.includes('joint.expanded'));
    expect(path).toBeDefined();
    const { total } = programFlops(importGraph(corpusFile(path!), { infer }), table);
    // A common formula ignores the groups of convolutions; the index says by how much.
    expect(total).toBe(record.graph_flops!.total_group_aware ?? record.graph_flops!.total);
  });

  test('one of them has grouped convolutions', () => {
    const grouped = records.filter(
      (r) => r.graph_flops!.grouped_conv_backward_overcount !== undefined,
    );
    expect(grouped.map((r) => r.id)).toEqual(['convnet/joint']);
  });
});
