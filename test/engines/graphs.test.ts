import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { describe, expect, test } from 'vitest';

import { evaluateGraph } from '../../src/simulate/evaluate.ts';
import {
  drawnInputs,
  graphOf,
  GRAPHS,
  graphText,
  inputSpecs,
  table,
  wrongNumbers,
} from '../simulate/graph-inputs.ts';
import { askTorch } from './support/torch.ts';

/**
 * Whole traced graphs against PyTorch in float64. The numbers are also kept for `npm test`;
 * `SHARDWRIGHT_RECORD=1` writes them, else they are compared with the answer.
 */
const FILE = fileURLToPath(new URL('../fixtures/kernels/graphs.json', import.meta.url));

type Numbers = readonly (readonly number[] | null)[];

const graphs = GRAPHS.map((id) => graphOf(id));
const answer = askTorch<{ readonly graphs: readonly Numbers[] }>('run_graphs.py', {
  graphs: GRAPHS.map((id, i) => ({ text: graphText(id), inputs: inputSpecs(graphs[i]) })),
});
const recording = {
  torch: answer.torch,
  graphs: Object.fromEntries(GRAPHS.map((id, i) => [id, answer.graphs[i]])),
};
if (process.env['SHARDWRIGHT_RECORD'] === '1')
  writeFileSync(FILE, `${JSON.stringify(recording, null, 1)}\n`);

describe('whole graphs against PyTorch', () => {
  test.each(GRAPHS.map((id, i) => [id, i] as const))('%s', (id, i) => {
    const { outputs } = evaluateGraph(table, graphs[i], drawnInputs(graphs[i]));
    expect(wrongNumbers(id, outputs, answer.graphs[i])).toEqual([]);
  });

  test('the recorded numbers are those of this PyTorch', () => {
    const kept = JSON.parse(readFileSync(FILE, 'utf8')) as typeof recording;
    expect(kept.torch).toBe(answer.torch);
    for (const id of GRAPHS)
      kept.graphs[id].forEach((numbers, k) => {
        const now = recording.graphs[id][k];
        expect(now === null).toBe(numbers === null);
        numbers?.forEach((v, j) =>
          expect(Math.abs(v - (now?.[j] ?? NaN))).toBeLessThanOrEqual(1e-7 * (1 + Math.abs(v))),
        );
      });
  });
});
