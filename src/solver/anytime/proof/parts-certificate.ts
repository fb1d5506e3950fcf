/**
 * Writes a tree of parts down as a dual certificate. In: the bound of the whole model that the parts began at, and the tree. Out: the
 * certificate, whose leaves have the prices of their parts as integers, and their messages or the sweeps that find them.
 */
import { hashProblem } from '../../check/hash.ts';
import type { DualCertificate, DualNumbers, DualPart, Problem } from '../../types.ts';
import { Dual } from '../bound/trws.ts';
import { DualWriter, floorPrice, type WholeBound } from '../finish/dual-certificate.ts';
import { PartValues } from './part-values.ts';
import { isSmall, leastBound, type Part } from './parts.ts';

/** A part that needs more sweeps from the messages of the whole has its own messages written. */
const MOST_SWEEPS = 200;
/** Units below the least bound at which a part is good enough: the bound is rounded up. */
const NEAR = 0.25;

/** Numbers of a part without any choice: the checker sees that a variable has no value left. */
const NONE: DualNumbers = { messageBits: 0, prices: [], messages: [] };

/**
 * The certificate of the least bound over the parts of a tree; undefined where there are no two parts. Parts of small models are
 * written as prices and a number of sweeps, in which the checker finds the messages: some hundred bytes instead of all messages.
 */
export function partsCertificate(
  problem: Problem,
  { whole, dual: first }: WholeBound,
  tree: Part,
  swept = isSmall(whole.model),
): DualCertificate | undefined {
  const { model } = whole;
  const writer = new DualWriter(problem, whole);
  const dual = new Dual(model);
  const values = new PartValues(model);
  const write = ({ bound, start, split, parts }: Part, live: Uint8Array): DualPart => {
    if (parts !== undefined && split !== undefined) {
      const at = model.start[split.variable];
      const listed = split.low.map((v) => whole.values[split.variable][v - at]);
      const [one, two] = values.sides(live, split);
      return {
        variable: whole.roots[split.variable],
        values: listed,
        parts: [write(parts[0], one), write(parts[1], two)],
      };
    }
    if (start === undefined || bound === Infinity) return NONE;
    dual.restrict(live);
    if (swept) {
      start.lambda.forEach((price, t) => (dual.lambda[t] = floorPrice(price)));
      dual.toFirst.set(first.toFirst);
      dual.toSecond.set(first.toSecond);
      dual.reprice();
      for (let k = 1; k <= MOST_SWEEPS; k++) if (dual.sweep() >= least) return writer.swept(dual, k);
    }
    dual.lambda.set(start.lambda);
    dual.toFirst.set(start.toFirst);
    dual.toSecond.set(start.toSecond);
    dual.reprice();
    dual.sweep();
    return writer.numbers(dual);
  };
  const least = leastBound(tree) - NEAR;
  const root = write(tree, values.all());
  if (!('variable' in root)) return undefined;
  const { joins } = whole.groups;
  return { version: 1, kind: 'dual', problem: hashProblem(problem), ...writer.numbers(first), joins, tree: root };
}
