/**
 * Writes losses as lines for the top of a file, without the sign of a comment. Names in losses are
 * data.
 */
import { pyComment } from './python-text.ts';
import type { ExportLoss } from './target.ts';

/** `LOSS item: planned ...; ...`, with nothing in it that ends the line. */
export function lossLines(losses: readonly ExportLoss[]): string[] {
  return losses.map(({ item, planned, instead }) =>
    pyComment(`LOSS ${item}: planned ${planned}; ${instead}`),
  );
}
