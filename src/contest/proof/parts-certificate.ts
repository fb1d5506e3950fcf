/**
 * Writes a tree of parts, with the bound of the whole model at which they began, as branches of a
 * certificate. The leaves have the prices of their parts as integers, and their messages or the
 * sweeps that find them.
 */
import type { Certificate, Problem } from '../../solver/types.ts';
import { Dual } from '../bound/trws.ts';
import { floorPrice, ProofWriter, type WholeBound } from '../finish/dual-certificate.ts';
import { PartValues } from '../model/part-values.ts';
import { isSmall, leastBound, type Part } from './parts.ts';

/** A part that needs more sweeps from the messages of the whole has its own messages written. */
const MOST_SWEEPS = 200;
/** Units below the least bound at which a part is good enough: the bound is rounded up. */
const NEAR = 0.25;

/**
 * The certificate of the least bound over the parts of a tree; undefined where there are no two
 * parts. Parts of small models are written as prices and a number of sweeps, in which the checker
 * finds the messages: some hundred bytes instead of all messages.
 */
export function partsCertificate(
  problem: Problem,
  { whole, dual: first }: WholeBound,
  tree: Part,
  swept = isSmall(whole.model),
): Certificate | undefined {
  if (tree.parts === undefined) return undefined;
  const { model } = whole;
  const writer = new ProofWriter(problem, whole);
  const dual = new Dual(model);
  const values = new PartValues(model);
  const least = leastBound(tree) - NEAR;
  const write = ({ bound, start, split, parts }: Part, live: Uint8Array): void => {
    // The checker sees that a variable has no value left.
    if (values.isEmpty(live)) return;
    if (parts !== undefined && split !== undefined) {
      const sides = values.sides(live, split);
      writer.branch(split.variable, split.low, live, (side) => write(parts[side], sides[side]));
      return;
    }
    if (start === undefined || bound === Infinity) return;
    dual.restrict(live);
    if (swept) {
      start.lambda.forEach((price, t) => (dual.lambda[t] = floorPrice(price)));
      dual.toFirst.set(first.toFirst);
      dual.toSecond.set(first.toSecond);
      dual.reprice();
      for (let k = 1; k <= MOST_SWEEPS; k++) {
        if (dual.sweep() < least) continue;
        writer.swept(dual, k);
        return;
      }
    }
    dual.lambda.set(start.lambda);
    dual.toFirst.set(start.toFirst);
    dual.toSecond.set(start.toSecond);
    dual.reprice();
    dual.sweep();
    writer.messages(dual, live);
  };
  const live = values.all();
  writer.messages(first, live);
  write(tree, live);
  return writer.certificate();
}
