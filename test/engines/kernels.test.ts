import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { describe, expect, test } from 'vitest';

import { inputArrays, type KernelSample, kernelSamples } from '../ops/support/kernel-calls.ts';
import { compareSample, UNCOMPARED } from '../ops/support/kernel-check.ts';
import {
  decode,
  difference,
  encode,
  readRecording,
  type RecordedResult,
  writeRecording,
} from '../ops/support/kernel-record.ts';
import { operators } from './samples/all.ts';
import { askTorch } from './support/torch.ts';
import { wireCall } from './support/wire-call.ts';

/**
 * Every kernel against PyTorch in float64, on the sample calls. What PyTorch answers is also kept
 * in a file for `npm test`; `SHARDWRIGHT_RECORD=1` writes that file, else it is compared with the
 * answer.
 */
const FILE = fileURLToPath(new URL('../fixtures/kernels/torch.json.gz', import.meta.url));

function wire(s: KernelSample): unknown {
  const record = operators.get(s.call.target);
  if (record === undefined) throw new Error(`no record ${s.call.target}`);
  return { ...wireCall(record, s.call), tensors: inputArrays(s).map(encode) };
}

const answer = askTorch<{ readonly calls: readonly RecordedResult[] }>('run_kernels.py', {
  calls: kernelSamples.map(wire),
});

const recording = {
  torch: answer.torch,
  calls: Object.fromEntries(
    kernelSamples.map((s, i) => [
      s.text,
      UNCOMPARED.has(s.call.target) ? { results: [] } : answer.calls[i],
    ]),
  ),
};
if (process.env['SHARDWRIGHT_RECORD'] === '1') writeFileSync(FILE, writeRecording(recording));

function changedResult(kept: RecordedResult, fresh: RecordedResult): boolean {
  if ('refused' in kept || 'refused' in fresh)
    return JSON.stringify(kept) !== JSON.stringify(fresh);
  return (
    kept.results.length !== fresh.results.length ||
    kept.results.some((was, k) => {
      const is = fresh.results[k];
      return was === null || is === null
        ? was !== is
        : difference(decode(is), decode(was)) !== undefined;
    })
  );
}

describe('kernels against PyTorch', () => {
  test('every sample agrees to 1e-9', () => {
    const wrong = kernelSamples.flatMap((s, i) => compareSample(s, answer.calls[i]) ?? []);
    expect(wrong).toEqual([]);
  });

  test('the recorded answers are those of this PyTorch', () => {
    expect(existsSync(FILE)).toBe(true);
    const kept = readRecording(readFileSync(FILE));
    expect(kept.torch).toBe(answer.torch);
    expect(Object.keys(kept.calls)).toEqual(Object.keys(recording.calls));
    // Another processor rounds the last bits another way.
    const changed = kernelSamples.filter((s) =>
      changedResult(kept.calls[s.text], recording.calls[s.text]),
    );
    expect(changed.map((s) => s.text)).toEqual([]);
  });
});
