/**
 * Finds the cheapest certified bound on the overlapped step, for plans whose step is not searched
 * for: from known plans it computes seconds that no plan of their problem goes below.
 */
import type { Prepared } from '../../plan/prepare/prepared.ts';
import type { Deadline } from '../../plan/request/deadline.ts';
import { workOn } from '../../plan/request/efforts.ts';
import { restrictionOf } from '../../plan/restrict/pins.ts';
import { bestMixture } from '../../solver/dual/best-mixture.ts';
import { costFunction } from '../../solver/problem/cost.ts';
import { repairRows } from '../../solver/problem/repair.ts';
import { compactProblem } from '../../solver/problem/restrict.ts';
import { messageBound } from '../../solver/search/messages/bound.ts';
import { solve } from '../../solver/solve.ts';
import type { LongestPath } from '../work/longest-path.ts';
import type { StepWork } from '../work/step-work.ts';
import { StreamCosts } from '../work/stream-costs.ts';

/** Bins of kernels: prices differ from bin to bin, so that many take longer. */
const BINS = 4;
/** A sweep of messages that raises the bound by a smaller share is the last. */
const LEAST_GAIN = 1e-4;
const MOST_SWEEPS = 40;
/** Where rows take part, the bound may end this near to the best choice that is known. */
const GAP = 1e-3;

/**
 * One problem, under the packing that gives the highest bound against all known plans, and bounded
 * by messages. Where the choice that they point to breaks a row, and no neighbouring choice that
 * keeps the rows is as near to the bound as a search would end, the search bounds it with its rows.
 *
 * @param work with the launches and buckets of the simulation
 * @param known choices of the problem, each with its longest path
 * @returns 0 where the time was over before any bound was proven
 */
export async function boundOverlap(
  prepared: Pick<Prepared, 'model' | 'question'>,
  work: StepWork,
  known: readonly { readonly choice: Int32Array; readonly path: LongestPath }[],
  deadline: Deadline,
): Promise<number> {
  const {
    model,
    question: { request, given },
  } = prepared;
  const costs = new StreamCosts(
    work,
    BINS,
    known.map(({ path }) => path),
  );
  const { shares } = bestMixture(
    known.map(({ choice }) => costs.cut(choice)),
    costs.stretches,
    costs.places,
  );
  const narrowed = compactProblem(
    costs.problem(costs.packing(shares)),
    restrictionOf(model, request, given).restriction.kept(),
  );
  const { problem } = narrowed;
  const found = messageBound(problem, {
    minGain: LEAST_GAIN,
    sweeps: MOST_SWEEPS,
    stopped: () => deadline.isOver,
  });
  const kept = found?.choice === undefined ? undefined : repairRows(problem, found.choice);
  if (found !== undefined && kept !== undefined) {
    const isNear = (): boolean => costFunction(problem)(kept) * (1 - GAP) <= found.bound;
    if (kept === found.choice || isNear()) return found.bound / model.unitsPerSecond;
  }
  const { bound } = await solve(problem, {
    engine: 'exact',
    // A bound of a folded network is valid only with its certificate.
    certify: true,
    gap: GAP,
    seed: request.seed,
    workLimit: workOn(problem),
    starts: known.flatMap(({ choice }) => narrowed.contract(choice) ?? []),
    ...deadline.solveOptions,
  });
  return (found === undefined ? bound : Math.max(bound, found.bound)) / model.unitsPerSecond;
}
