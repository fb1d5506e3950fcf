/** The placement `R`: every rank has the whole tensor. */

import type { PlacementKind } from './kinds.ts';
import type { Placement } from './placement.ts';
import { Uncut } from './uncut.ts';

/** Equal data on every rank. */
class Replicate extends Uncut {
  readonly kind = 'replicate';
  readonly text = 'R';
}

/** The replicated placement, `R`. */
export const REPLICATE: Placement = Object.freeze(new Replicate());

/** Reads `R`, `Replicate()`. */
export const REPLICATE_KIND: PlacementKind = {
  kind: 'replicate',
  words: ['R', 'Replicate'],
  parse(scan, word) {
    if (word === 'Replicate' && scan.take('(')) scan.expect(')');
    return REPLICATE;
  },
};
