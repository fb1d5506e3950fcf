import { describe, expect, it } from 'vitest';

import { kernelNeeds } from '../../src/simulate/work/kernel-needs.ts';

describe('what kernels need', () => {
  it('is carried through steps that are not kernels, and ends at results that none reads', () => {
    // Value 0 is given. Kernel 0 makes 1, a move makes 2 of it, another 3 of 2; kernel 1 reads 3; a
    // sum makes 4 of 1; a gather makes 5 of 0 for kernel 2.
    const steps: readonly {
      readonly reads: readonly number[];
      readonly writes: readonly number[];
    }[] = [
      { reads: [0], writes: [1] },
      { reads: [1], writes: [2] },
      { reads: [2], writes: [3] },
      { reads: [1], writes: [4] },
      { reads: [0], writes: [5] },
      { reads: [3], writes: [6] },
      { reads: [5, 6], writes: [7] },
    ];
    const { after, before, madeBy } = kernelNeeds({
      kernelOf: Int32Array.of(0, -1, -1, -1, -1, 1, 2),
      kernels: 3,
      values: 8,
      reads: (step) => steps[step].reads,
      writes: (step) => steps[step].writes,
    });
    expect([...after]).toEqual([0, 0, 0, 0, -1, 1, 2]);
    expect([...before]).toEqual([0, 1, 1, 3, 2, 1, 2]);
    expect([...madeBy]).toEqual([-1, 0, 0, 0, 0, -1, 1, 2]);
  });
});
