/**
 * Gives the measured errors of the model that decides, for a plan: its own band first, then those
 * of the hardware around it.
 */

import {
  type Circumstances,
  type ErrorPool,
  type FamilyErrors,
  fidelity,
  generationOf,
  type MeasuredErrors,
  nearestPool,
} from '../../cost/error-bands.ts';

export type { MeasuredErrors } from '../../cost/error-bands.ts';

/** The known errors of the predictions, nearest to a plan first. */
export interface Trust {
  readonly about: string;
  readonly source: string;
  /** Measured runs that are alike in what errors depend on. */
  readonly pool: ErrorPool | null;
  readonly families: readonly FamilyErrors[];
  /**
   * Errors on the plan's accelerator, or on its generation; empty where no run was measured on it.
   */
  readonly nearest: readonly MeasuredErrors[];
  readonly others: readonly MeasuredErrors[];
}

/**
 * The errors to show with a plan: those of its accelerator first, and of these the runs of its kind
 * of model.
 */
export function trustOf(circumstances: Circumstances): Trust {
  const { about, source, rows, families } = fidelity();
  const { accelerator, experts } = circumstances;
  const near = rows.filter((r) => generationOf(r.accelerator) === generationOf(accelerator));
  const distance = (r: MeasuredErrors): number =>
    2 * Number(r.accelerator !== accelerator) + Number(r.experts !== experts);
  return {
    about,
    source,
    pool: nearestPool(circumstances) ?? null,
    families,
    nearest: [...near].sort((a, b) => distance(a) - distance(b) || b.runs - a.runs),
    others: rows.filter((r) => !near.includes(r)),
  };
}
