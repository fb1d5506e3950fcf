import { describe, expect, it } from 'vitest';

import { DeviceTimes, type TraceSpan } from '../../src/export/torch/run/trace.ts';

/** A call on thread 1, and what it launched on the device, from `at` for `dur`. */
function launched(name: string, ts: number, at: number, dur: number): TraceSpan[] {
  return [
    { name: 'cudaLaunchKernel', cat: 'cuda_runtime', tid: 1, ts, dur: 1, correlation: ts },
    { name, cat: 'kernel', tid: 7, ts: at, dur, correlation: ts },
  ];
}

const step: TraceSpan = {
  name: 'Step',
  cat: 'user',
  tid: 1,
  ts: 0,
  dur: 100,
  correlation: undefined,
};
const times = (...spans: readonly TraceSpan[][]): DeviceTimes =>
  new DeviceTimes(
    spans.flat().sort((a, b) => a.ts - b.ts),
    [step],
  );

describe('times of a device, from the kernels that a step launched', () => {
  it('the time in which any of them ran counts once', () => {
    // [10, 30] holds [15, 20] whole, overlaps [25, 40], and [60, 65] is by itself.
    const found = times(
      launched('a', 1, 10, 20),
      launched('b', 2, 15, 5),
      launched('c', 3, 25, 15),
      launched('d', 4, 60, 5),
    );
    expect(found.busy).toBe(30 + 5);
    expect(found.step).toBe(65 - 10);
    expect(found.idle).toBe(60 - 40);
  });

  it('collectives are no time of compute, and belong to the step', () => {
    const found = times(launched('ncclDevKernel', 1, 10, 50), launched('gemm', 2, 20, 8));
    expect([found.busy, found.step, found.idle]).toEqual([8, 50, 0]);
  });

  it('kernels of calls before or behind the step are left out', () => {
    const found = times(
      launched('before', -5, -4, 3),
      launched('gemm', 100, 120, 8),
      launched('behind', 101, 130, 8),
    );
    expect([found.busy, found.step]).toEqual([8, 8]);
  });

  it('a call has the kernels that its thread launched within it', () => {
    const found = times(
      launched('a', 10, 20, 4),
      launched('b', 12, 30, 5),
      launched('c', 15, 40, 6),
    );
    const of = (ts: number, dur: number, tid = 1): number =>
      found.of({ name: 'call', cat: 'cpu_op', tid, ts, dur, correlation: undefined });
    expect([of(10, 2), of(11, 3), of(10, 5), of(10, 5, 2)]).toEqual([9, 5, 15, 0]);
  });

  it('a step that launched nothing takes no time', () => {
    expect([times().busy, times().step]).toEqual([0, 0]);
  });
});
