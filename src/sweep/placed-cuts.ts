/** Prices plans with cut experts after all others, where nothing proves them worthless. */

import { coreRequest } from './model/types.ts';
import type { PricedPrograms } from './priced-programs.ts';
import type { Composer } from './step/compose.ts';
import {
  type CutRow,
  type CutsLeftOut,
  Front,
  isWorse,
  leastOf,
  lessCut,
} from './step/expert-cuts.ts';
import type { LayoutRow } from './step/layouts.ts';
import type { RowPricer } from './step/row-pricer.ts';

interface CutSweep {
  readonly programs: PricedPrograms;
  readonly composer: Composer;
  readonly pricer: RowPricer;
  /** Sequences of a microbatch that are tried. */
  readonly sizes: readonly number[];
  /** Routed experts of a layer. */
  readonly experts: number;
  readonly onProgress?: (line: string) => void;
}

const CUTS_BETWEEN_LINES = 500;

/** The rows with cut experts, on the programs that are priced. */
export function placeCuts(rows: readonly LayoutRow[], of: CutSweep): CutsLeftOut {
  const { composer, pricer, experts, onProgress } = of;
  let [worse, beaten] = [0, 0];
  const open: (CutRow & { readonly seconds: number; readonly bytes: () => number })[] = [];
  for (const row of rows) {
    const { ep, etp = 1 } = row.sizes;
    const programs = programsOf(row, of);
    // The fate of other programs is reported with the plans of whole experts.
    if (programs.length === 0) continue;
    const others = lessCut({ ep, etp }, experts);
    if (others.some((fold) => programs.every((p) => isWorse(row, fold, p.routed, composer))))
      worse++;
    else open.push({ row, programs, ...leastOf({ row, programs }, composer) });
  }
  open.sort((a, b) => a.seconds - b.seconds);
  const front = new Front(
    [...pricer.best.values()].filter((p) => p.fits).map(({ figures }) => figures),
  );
  open.forEach(({ row, programs, seconds, bytes }, i) => {
    if (seconds >= pricer.incumbent && front.within(bytes()) <= seconds) beaten++;
    else for (const { core, routed } of programs) pricer.price(row, core, routed);
    if ((i + 1) % CUTS_BETWEEN_LINES === 0)
      onProgress?.(`${i + 1} of ${open.length} plans with cut experts`);
  });
  return { worse, beaten };
}

/** The priced programs that a row lies on, by the sequences of a microbatch. */
function programsOf(row: LayoutRow, { sizes, composer, programs }: CutSweep): CutRow['programs'] {
  return sizes.flatMap((microbatch): CutRow['programs'] => {
    if ((microbatch > 1 && row.sizes.cp > 1) || composer.microbatches(row.sizes, microbatch) === 0)
      return [];
    const request = coreRequest(row.sizes, row.kind, microbatch);
    const core = programs.core(request);
    const routed = programs.routed(request);
    return core === undefined || routed === undefined ? [] : [{ core, routed }];
  });
}
