import { describe, expect, test } from 'vitest';

import { lintGraph } from '../../src/graph/lint.ts';
import { importGraph, type Infer } from '../../src/import/import.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import { FULL } from '../support/full.ts';
import { answerKey, KEY_DTYPES, type KeyType, packed, text } from './fixtures.ts';

const table = builtinOperators();
const infer: Infer = (call, typeOf) => inferCall(table, call, typeOf);

const MODELS = [
  'mlp',
  'mlp-loss',
  'convnet',
  'llama-tiny',
  'llama3-8b-2l',
  'gpt2-2l',
  'bert-base',
  // Those of 2 layers for longer.
  ...(FULL ? ['llama3-8b-32l', 'gpt2-12l'] : []),
];

describe('import with the built-in operators', () => {
  test.each(MODELS)('%s: every stated type agrees with its operator', (model) => {
    const graph = importGraph(packed(`${model}/joint.expanded.txt.gz`), { infer });
    lintGraph(graph, infer);
    expect(graph.nodes.length + 1).toBe(answerKey(`${model}/joint`).graph.nodes);
  });

  test.each(MODELS)(
    '%s: dtypes and shapes inferred from the placeholders alone equal the answer key',
    (model) => {
      const erased = text(`${model}/joint.readable.txt.gz`).replaceAll(
        /^( *\w+): "[^"]*" =/gm,
        '$1 =',
      );
      const { shapes } = answerKey(`${model}/joint`);
      const graph = importGraph(erased, { infer });
      let compared = 0;
      for (const node of graph.nodes) {
        const wanted = shapes[node.name];
        if (wanted === undefined || node.type.kind !== 'tensor') continue;
        const [dtype, shape] = wanted as KeyType;
        expect([node.type.dtype, node.type.shape], node.name).toEqual([KEY_DTYPES[dtype], shape]);
        compared++;
      }
      expect(compared).toBeGreaterThan(graph.nodes.length * 0.9);
    },
  );

  test('symbolic sizes are taken as stated, and the note says so', () => {
    const graph = importGraph(packed('mlp-dynamic/export.readable.txt.gz'), { infer });
    expect(graph.notes?.join(' ')).toContain('without a check: 3.');
  });
});
