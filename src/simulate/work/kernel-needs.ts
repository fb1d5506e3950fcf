/**
 * Finds the needs of kernels, in one definition for the bound and for the simulation: for every
 * step in program order the last kernel that must have run before, and the first kernel that waits
 * for it. A step that no kernel needs may run until the end: sums of gradients, results.
 */

/** Steps in program order; values are written before they are read. */
interface Steps {
  /** By step: number of its kernel, ascending; -1: it has none. */
  readonly kernelOf: Int32Array;
  readonly kernels: number;
  readonly values: number;
  /** Values of a step. */
  readonly reads: (step: number) => Iterable<number>;
  readonly writes: (step: number) => Iterable<number>;
}

/** The needs by step; a kernel has its own number on both sides. */
interface KernelNeeds {
  /** Last kernel that a step waits for; -1: none. */
  readonly after: Int32Array;
  /** First kernel that waits for a step; the number of kernels: none does. */
  readonly before: Int32Array;
  /** By value: last kernel that must have run before it is there; -1: it is given. */
  readonly madeBy: Int32Array;
}

export function kernelNeeds({ kernelOf, kernels, values, reads, writes }: Steps): KernelNeeds {
  const after = Int32Array.from(kernelOf);
  const madeBy = new Int32Array(values).fill(-1);
  for (let step = 0; step < kernelOf.length; step++) {
    if (kernelOf[step] < 0)
      for (const value of reads(step)) after[step] = Math.max(after[step], madeBy[value]);
    for (const value of writes(step)) madeBy[value] = after[step];
  }
  const before = new Int32Array(kernelOf.length);
  const needed = new Int32Array(values).fill(kernels);
  for (let step = kernelOf.length - 1; step >= 0; step--) {
    before[step] = kernels;
    if (kernelOf[step] >= 0) before[step] = kernelOf[step];
    else for (const value of writes(step)) before[step] = Math.min(before[step], needed[value]);
    for (const value of reads(step)) needed[value] = Math.min(needed[value], before[step]);
  }
  return { after, before, madeBy };
}
