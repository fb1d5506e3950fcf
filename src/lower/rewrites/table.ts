/** Lists, for each operator name, the rewrite that makes its call local. */
import { internalError } from '../../errors.ts';
import type { LocalCall, Rewrite, Rewrites } from '../local-call.ts';
import { attentionRewrites } from './attention.ts';
import { batchNormRewrites } from './batch-norm.ts';
import { embeddingRewrites } from './embedding.ts';
import { factoryRewrites, randomRewrites } from './factory.ts';
import { indexingRewrites } from './indexing.ts';
import { lossRewrites } from './loss.ts';
import { nllRewrites } from './nll.ts';
import { normRewrites } from './norm.ts';
import { productRewrites } from './product.ts';
import { reductionRewrites } from './reduction.ts';
import { shapeRewrites } from './shape.ts';
import { softmaxRewrites } from './softmax.ts';
import { stablehloRewrites } from './stablehlo.ts';

const FAMILIES: readonly Rewrites[] = [
  attentionRewrites,
  batchNormRewrites,
  embeddingRewrites,
  factoryRewrites,
  indexingRewrites,
  lossRewrites,
  nllRewrites,
  normRewrites,
  productRewrites,
  randomRewrites,
  reductionRewrites,
  shapeRewrites,
  softmaxRewrites,
  stablehloRewrites,
];

/**
 * The local forms, by the name of their operator: what a call becomes where its rule asks for a
 * change.
 */
export const LOCAL_FORMS = new Map<string, Rewrite>();
for (const family of FAMILIES)
  for (const [name, made] of Object.entries(family)) {
    if (LOCAL_FORMS.has(name)) throw internalError(`two local forms of ${name}`);
    LOCAL_FORMS.set(name, made);
  }

/**
 * Writes a call for one device: as it is, or in the form that its rules ask for.
 *
 * @throws E_UNSUPPORTED naming operator and node when there is no such form
 */
export function rewrite(call: LocalCall): readonly (string | null)[] {
  const words = call.rewrites();
  if (words.size === 0) return call.run();
  const form = LOCAL_FORMS.get(call.record.name);
  if (form === undefined)
    return call.unsupported(`there is no local form for '${[...words].join("', '")}'`);
  return form(call);
}
