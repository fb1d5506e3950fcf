import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { describe, expect, test } from 'vitest';

import { tensorInputs } from '../../src/ops/record/context.ts';
import { encode } from '../ops/support/kernel-record.ts';
import {
  kept,
  type KeptGradients,
  readGradients,
  type TorchGradients,
  writeGradients,
  wrongAgainst,
} from '../passes/gradient-record.ts';
import {
  type GradientSample,
  gradientSamples,
  graphOf,
  table,
  tangentsOf,
} from '../passes/vjp-samples.ts';
import { askTorch } from './support/torch.ts';
import { wireCall } from './support/wire-call.ts';

/**
 * Every gradient against PyTorch's autograd in float64, on the sample calls. What PyTorch answers
 * is also kept in a file for `npm test`; `SHARDWRIGHT_RECORD=1` writes that file, else it is
 * compared with the answer.
 */
const FILE = fileURLToPath(new URL('../fixtures/kernels/gradients.json.gz', import.meta.url));

function wire(s: GradientSample): unknown {
  const record = table.get(s.call.target);
  if (record === undefined) throw new Error(`no record ${s.call.target}`);
  const order = tensorInputs(record, s.call.args, s.call.kwargs);
  return {
    ...wireCall(record, s.call),
    tensors: order.map((name) => encode(s.arrays.get(name)!)),
    wanted: s.wanted.map((name) => order.indexOf(name)),
    results: s.results,
    tangents: tangentsOf(s, graphOf(s)).map(encode),
  };
}

/** Numbers may differ in the last digits from processor to processor. */
function same(a: KeptGradients, b: KeptGradients): boolean {
  if (a === 'refused' || b === 'refused') return a === b;
  const near = (x: number, y: number | undefined): boolean =>
    y !== undefined && Math.abs(x - y) <= 1e-7 * (1 + Math.abs(x));
  return a.every((g, k) => (g === null ? b[k] === null : g.every((v, i) => near(v, b[k]?.[i]))));
}

const answer = askTorch<{ readonly calls: readonly TorchGradients[] }>('run_gradients.py', {
  calls: gradientSamples.map(wire),
});
const recording = {
  torch: answer.torch,
  calls: Object.fromEntries(gradientSamples.map((s, i) => [s.text, kept(answer.calls[i])])),
};
if (process.env['SHARDWRIGHT_RECORD'] === '1') writeFileSync(FILE, writeGradients(recording));

describe('gradients against PyTorch', () => {
  test('every sample agrees to 1e-9', () => {
    expect(gradientSamples.flatMap((s, i) => wrongAgainst(s, answer.calls[i]))).toEqual([]);
  });

  test('the recorded gradients are those of this PyTorch', () => {
    expect(existsSync(FILE)).toBe(true);
    const file = readGradients(readFileSync(FILE));
    expect(file.torch).toBe(answer.torch);
    expect(Object.keys(file.calls)).toEqual(Object.keys(recording.calls));
    const changed = gradientSamples.filter(
      (s) => !same(file.calls[s.text], recording.calls[s.text]),
    );
    expect(changed.map((s) => s.text)).toEqual([]);
  });
});
