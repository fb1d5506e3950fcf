/** Every ATen operator that has a text in HLO, by its canonical name. */
import { internalError } from '../../errors.ts';
import { indexingLowerings } from './aten/indexing.ts';
import { lossLowerings } from './aten/losses.ts';
import { normLowerings } from './aten/norms.ts';
import { pointwiseLowerings } from './aten/pointwise.ts';
import { productLowerings } from './aten/products.ts';
import { randomLowerings } from './aten/random.ts';
import { reductionLowerings } from './aten/reductions.ts';
import { shapeLowerings } from './aten/shapes.ts';
import type { Lowering } from './call.ts';

const FAMILIES = [
  indexingLowerings,
  lossLowerings,
  normLowerings,
  pointwiseLowerings,
  productLowerings,
  randomLowerings,
  reductionLowerings,
  shapeLowerings,
];

const byName = new Map<string, Lowering>();
for (const family of FAMILIES)
  for (const [name, made] of Object.entries(family)) {
    if (byName.has(name)) throw internalError(`two HLO forms of ${name}`);
    byName.set(name, made);
  }

/** How an operator is written; undefined where there is no text for it. */
export function loweringOf(name: string): Lowering | undefined {
  return byName.get(name);
}
