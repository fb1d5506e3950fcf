/**
 * Finds the modules of a layer that may be recomputed, and the sets of them to price. A call of a
 * forward program belongs to modules by its module path, as our model families write it; calls
 * that only policies recompute belong to none. The modules are those of megatron-core 0.16
 * (`recompute_modules`); norms are those of the residual stream. Routed experts are priced
 * separately (`moe.ts`).
 */

import type { Node } from '../../../graph/types.ts';
import {
  type ModuleSet,
  moduleSet,
  RECOMPUTE_MODULES,
  type RecomputeModule,
} from '../../checkpoints.ts';
import { pathInLayer } from '../../layers.ts';

const NORM = /(norm|ln)(_\d+)?$/i;
const ATTENTION = /^(self_attn|attn|attention)(?=\.|$)/;
const SHARED = /^[^.]*\.shared_expert/;
/** Feed-forward layers, those too that have no module of their own (OPT, BERT). */
const FEED_FORWARD = /^(mlp|feed_forward|ffn|fc1|fc2|intermediate|output)(?=\.|$)/;
const ACTIVATION = /^aten\.(silu|gelu|relu|tanh|sigmoid)\b/;
/** From a latent up, and what lies between there and attention. */
const FROM_LATENT = /^self_attn(\.(q|kv)_b_proj)?$/;

/**
 * Lists the modules whose recomputation runs a call again.
 *
 * @param cls of the call's operator
 * @param hasLatent true if keys and values are made of a latent (multi-head latent attention)
 */
export function moduleOfCall(
  node: Node,
  cls: string,
  hasLatent: boolean,
): readonly RecomputeModule[] {
  const path = pathInLayer(node.meta.path);
  if (path === undefined) return [];
  if (cls === 'attention') return ['core_attn'];
  if (NORM.test(path))
    return ATTENTION.test(path) && !/^attention\.output/.test(path) ? [] : ['layernorm'];
  if (ATTENTION.test(path)) return hasLatent && FROM_LATENT.test(path) ? ['mla_up_proj'] : [];
  if (SHARED.test(path)) return ['shared_experts'];
  const isActivation =
    cls === 'pointwise' && (FEED_FORWARD.test(path) || ACTIVATION.test(node.target));
  if (path === '') return isActivation ? ['act', 'mlp'] : [];
  if (!FEED_FORWARD.test(path)) return [];
  return isActivation ? ['act', 'mlp'] : ['mlp'];
}

/** The cost and saving of a set for one microbatch. */
interface SetPrice {
  readonly seconds: number;
  readonly savedBytes: number;
}

/**
 * Asks for the price of every set that a search may want: each module alone, and all joined one
 * after the other, the least seconds for a byte first. Where modules do not share what they save,
 * no other set saves as much for as little.
 *
 * @param price of a set, without what routed experts do
 */
export function priceModuleSets(price: (set: ModuleSet) => SetPrice): void {
  const modules = RECOMPUTE_MODULES.filter((m) => m !== 'moe' && m !== 'moe_act');
  const saving = modules.map((name) => ({ name, ...price(name) })).filter((m) => m.savedBytes > 0);
  saving.sort(
    (a, b) => a.seconds / a.savedBytes - b.seconds / b.savedBytes || (a.name < b.name ? -1 : 1),
  );
  for (let n = 1; n <= saving.length; n++) {
    const names = saving.slice(0, n).map(({ name }) => name);
    // Where whole layers of experts are recomputed, shared experts are recomputed too.
    for (const set of [moduleSet(names), moduleSet([...names, 'shared_experts'])])
      if (set !== 'none') price(set);
  }
}
