/**
 * Bounds of small problems as the anytime mode finds them, without a search: a few steps of ascent,
 * then parts.
 */
import { PriceAscent } from '../../src/contest/bound/row-prices.ts';
import { Dual } from '../../src/contest/bound/trws.ts';
import { type WholeBound, wholeBound } from '../../src/contest/finish/dual-certificate.ts';
import { presolve, type Presolved } from '../../src/contest/model/presolve.ts';
import { allValues } from '../../src/contest/proof/bound-by-parts.ts';
import { boundByParts, type Part } from '../../src/contest/proof/parts.ts';
import type { BoundReport } from '../../src/contest/run/member.ts';
import type { Problem } from '../../src/solver/types.ts';

export interface Bounded {
  readonly reduced: Presolved;
  readonly report: Pick<BoundReport, 'lambda' | 'toFirst' | 'toSecond'>;
  readonly root: WholeBound;
  readonly tree: Part;
}

/**
 * Parts of a problem after a few steps of its whole bound; undefined where the reduction finds it
 * infeasible.
 */
export function partsOf(problem: Problem, cost: number): Bounded | undefined {
  const reduced = presolve(problem);
  if (reduced === undefined) return undefined;
  const ascent = new PriceAscent(new Dual(reduced.model));
  for (let k = 0; k < 20; k++) ascent.step();
  const report = { lambda: ascent.kept, toFirst: ascent.bestFirst, toSecond: ascent.bestSecond };
  const root = wholeBound(allValues(problem, reduced), reduced, report);
  const { lambda, toFirst, toSecond } = root.dual;
  const start = { lambda, toFirst, toSecond, steps: 0 };
  const tree = boundByParts({
    model: root.whole.model,
    start,
    cost,
    deadline: Infinity,
    partMilliseconds: 0,
  });
  return { reduced, report, root, tree };
}
