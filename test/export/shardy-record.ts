import { fileURLToPath } from 'node:url';

/** What XLA made of a Shardy or GSPMD text. */
export interface ShardyAnswer {
  /**
   * Largest difference from the float64 evaluation of the graph, relative to the largest number of
   * an output.
   */
  readonly worst: number;
  /** Collectives of the plan, and of the compiled module, by HLO's names. */
  readonly planned: Readonly<Record<string, number>>;
  readonly compiled: Readonly<Record<string, number>>;
}

export const SHARDY_RECORD = fileURLToPath(
  new URL('../fixtures/export/shardy.json', import.meta.url),
);
