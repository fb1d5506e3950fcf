import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { describe, expect, test } from 'vitest';

import { flat } from '../../../src/ndarray/array.ts';
import { COMPOSITES } from '../../../src/ops/vjp/composite/composite.ts';
import { VJPS } from '../../../src/ops/vjp/table.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { FULL } from '../../support/full.ts';
import { readGradients, wrongAgainstKept } from '../gradient-record.ts';
import {
  type GradientSample,
  gradientSamples,
  gradientsOf,
  graphOf,
  inputsOf,
  lossOf,
  moved,
  positions,
  table,
  tangentsOf,
} from '../vjp-samples.ts';

/**
 * Daily of each operator the first and the last call, and those that PyTorch does not judge.
 */
const daily = (samples: readonly GradientSample[]): readonly GradientSample[] =>
  samples.filter(
    (s, i) => FULL || i === 0 || i === samples.length - 1 || recording.calls[s.text] === 'refused',
  );

/** Difference quotients and our gradients of one sample, where they disagree. */
function wrongGradients(s: GradientSample): string[] {
  const graph = graphOf(s);
  const tangents = tangentsOf(s, graph);
  const inputs = inputsOf(s);
  const names = [...s.arrays.keys()];
  const ours = gradientsOf(s);
  return s.wanted.flatMap((name, k) => {
    const at = names.indexOf(name);
    const x = inputs[at];
    const gradient = ours[k];
    const values = gradient === null ? new Float64Array(x.size) : flat(gradient);
    if (gradient !== null && gradient.shape.join() !== x.shape.join())
      return [`${s.text}: ${name} has shape [${gradient.shape.join()}]`];
    const loss = (i: number, by: number): number =>
      lossOf(graph, inputs.with(at, moved(x, i, by)), tangents);
    return positions(x.size).flatMap((i) => {
      const h = 1e-5;
      const quotient = (loss(i, h) - loss(i, -h)) / (2 * h);
      const error = Math.abs(quotient - values[i]) / Math.max(1, Math.abs(quotient));
      return error < 1e-6
        ? []
        : [`${s.text}: d ${name}[${i}] is ${values[i]}, the quotient is ${quotient}`];
    });
  });
}

/**
 * Calls whose difference quotient is not their gradient; PyTorch judges those
 * (test/engines/gradients.test.ts).
 */
const NO_QUOTIENT: ReadonlySet<string> = new Set([
  // A divisor near zero: the quotient has lost its digits.
  'div.Tensor(x[6,1], x[3,1,5])',
  // The padding row has no gradient by definition.
  'embedding(x[7,6], index7[5], 2)',
]);

/** Functions of a symmetric matrix that read one triangle of it, while both have a gradient. */
const OF_ONE_TRIANGLE = /^aten\.(linalg_)?cholesky(_ex)?\.default$/;

const byTarget = new Map<string, GradientSample[]>();
for (const s of gradientSamples) byTarget.set(s.target, [...(byTarget.get(s.target) ?? []), s]);

const recording = readGradients(
  readFileSync(join(import.meta.dirname, '../../fixtures/kernels/gradients.json.gz')),
);

describe('gradients against those that PyTorch gave', () => {
  test('every sample is recorded, and agrees', () => {
    expect(gradientSamples.flatMap((s) => wrongAgainstKept(s, recording.calls[s.text]))).toEqual(
      [],
    );
  });
});

describe('gradients against central differences', () => {
  const compared = [...byTarget].filter(([target]) => !OF_ONE_TRIANGLE.test(target));
  test.each(compared)('%s', (_target, samples) => {
    const judged = daily(samples).filter((s) => !NO_QUOTIENT.has(s.text));
    expect(judged.flatMap(wrongGradients)).toEqual([]);
  });

  test('every operator with a derivative is tried', () => {
    // Those on complex numbers have a recording of their own, which complex-vjp.test.ts reads.
    const file = gunzipSync(
      readFileSync(join(import.meta.dirname, '../../fixtures/kernels/complex-gradients.json.gz')),
    );
    const complex = new Set(
      (JSON.parse(file.toString()) as { calls: { target: string }[] }).calls.map((c) => c.target),
    );
    // Verbs of per-device code run on virtual devices, where test/local-spmd tries their gradients.
    const untried = [...VJPS.keys(), ...Object.keys(COMPOSITES)].filter(
      (name) => !byTarget.has(name) && !complex.has(name) && !name.startsWith('spmd_types.'),
    );
    expect(untried).toEqual([]);
  });

  test('in bf16 every gradient has the dtype and shape of its tensor', () => {
    for (const s of [...byTarget.values()].flatMap(daily)) {
      const narrow = new Map(
        [...s.arrays].map(([name, x]) => [name, x.dtype === 'f64' ? x.as('bf16') : x]),
      );
      // The lint of the joint graph compares every type with the operator's own, and gradients with
      // what they are of.
      const joint = jointGraph(graphOf({ ...s, arrays: narrow }), { table, wrt: s.wanted });
      expect(joint.outputs.filter((output) => output.role === 'grad').length).toBe(s.arrays.size);
    }
  });

  test('every derivative is of an operator that there is', () => {
    expect(
      [...VJPS.keys(), ...Object.keys(COMPOSITES)].filter((name) => table.get(name)?.name !== name),
    ).toEqual([]);
  });
});
