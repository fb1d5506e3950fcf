/** Prints how far a search is. */

import type { Progress } from '../../solver/types.ts';
import { percentText, secondsText } from '../../units.ts';
import type { CliIo } from './io.ts';

/** One status line, rewritten on a terminal, at most one plain line per 5 s otherwise. */
export function progressPrinter(io: CliIo, quiet: boolean): (event: Progress) => void {
  // Work of under a second needs no progress.
  let last = io.isTerminal ? 0.95 : 0;
  return (event) => {
    if (quiet || event.seconds - last < (io.isTerminal ? 0.05 : 5)) return;
    last = event.seconds;
    const gap = Number.isFinite(event.gap) ? `gap ${percentText(event.gap)}` : 'no bound yet';
    io.progress(`${event.phase}  ${gap}  ${secondsText(event.seconds)}`);
  };
}
