import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { expect, test } from 'vitest';

import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { RunPredictor } from '../../src/fidelity/predict-run.ts';
import { type MeasuredRun, parseRuns } from '../../src/fidelity/runs.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';

const file = new URL('../fixtures/runs/measured.csv.gz', import.meta.url);
const { runs } = parseRuns(gunzipSync(readFileSync(file)).toString('utf8'));
const predictor = new RunPredictor(builtinOperators());

/**
 * FLOPs of a training step of a dense gated model, by hand: 6 for each weight of a product and each
 * token, and 6 for each channel of each key that a query of causal attention sees on average, which
 * is half of the sequence for scores and values together.
 */
function flopsOfStep({ shape, plan }: MeasuredRun): number {
  const { layers, hidden, heads, kvHeads, headDim, ffn, vocab, sequence } = shape;
  const attention = 2 * hidden * heads * headDim + 2 * hidden * kvHeads * headDim;
  const weights = layers * (attention + 3 * hidden * ffn) + hidden * vocab;
  const scores = layers * heads * headDim * sequence;
  return 6 * (weights + scores) * plan.globalBatch * sequence;
}

test.each([
  ['bf16', 'bf16'],
  ['fp8', 'fp8'],
])('the utilisation of a run in %s is of the peak of that unit', async (_, unit) => {
  const run = runs.find(
    (r) =>
      r.shape.gated &&
      r.shape.experts === undefined &&
      r.shape.latent === undefined &&
      r.plan.pipeline === 1 &&
      r.devices <= 8 &&
      r.system.matmulUnit === unit,
  );
  if (run === undefined) throw new Error(`no run in ${unit}`);
  const found = await predictor.predict(run);
  if ('reason' in found) throw new Error(found.reason);
  const peak = loadCluster(run.clusterText).peakFlopsPerSecond[unit];
  expect(found.utilisation).toBeCloseTo(flopsOfStep(run) / (found.seconds * run.devices * peak), 6);
  expect(found.utilisation).toBeGreaterThan(0.1);
  expect(found.utilisation).toBeLessThan(1);
});
