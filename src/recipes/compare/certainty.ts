/**
 * Says how sure a comparison is: the range in which measured steps lie for each plan, the
 * probability that each fits, the plans that cannot be told from the best, and the simplest of
 * them. Everything comes from measured runs (`cost/error-bands.ts`).
 */

import {
  fidelity,
  fitProbability,
  nearestPool,
  NO_RUNS,
  poolText,
  type PricedBy,
} from '../../cost/error-bands.ts';
import type { Cluster } from '../../cost/hardware/cluster.ts';
import { defined } from '../../defined.ts';
import { bestPlan, isSafe, riskierOf, stepTime } from './best-plan.ts';
import type { Certainty, ComparedPlan, Comparison } from './comparison.ts';

interface Asked {
  readonly cluster: Cluster;
  readonly experts: boolean;
  /** True if no run of the kind was measured: adapters alone are trained, or the model diffuses. */
  readonly unmeasured?: boolean;
  readonly cost: string;
  readonly by: PricedBy;
  /** Id of the trainer that is asked for; absent: none is, and runs of all resemble it. */
  readonly trainer?: string | undefined;
  /** True if nobody named that trainer and it was taken as the default. */
  readonly assumed?: boolean | undefined;
  /** True if the program is a training step; no other was measured. */
  readonly trains: boolean;
  /** Memory that somebody set as the budget; absent: all that the driver reports. */
  readonly memoryBytes?: number | undefined;
}

/** The criteria in words; those that are compared first come first. */
const SIMPLER = [
  'fewer mesh dims',
  'no pipeline',
  'no experts over devices',
  'no cut sequence',
  'no tensor parallelism',
  'a recipe rather than free placements',
  'states whole rather than cut (dp, zero1, zero2, fsdp, hsdp)',
  'nothing recomputed',
  'the faster',
] as const;

/** The comparison with the certainty of its figures; as it was where no measured run tells. */
export function withCertainty(comparison: Comparison, asked: Asked): Comparison {
  const { cluster, experts, unmeasured, cost, by, trains, memoryBytes, trainer, assumed } = asked;
  const limit = memoryBytes ?? cluster.memoryBytes;
  const fits =
    comparison.holds === 'states'
      ? undefined
      : (bytes: number): number => fitProbability(bytes, limit);
  const plans = comparison.plans.map((plan) =>
    withFields(plan, {
      stepSeconds: stepTime(plan),
      stepBand: null,
      trainer: trainer ?? 'shardwright',
      fitProbability: fits?.(plan.peakBytes) ?? null,
    }),
  );
  const known = comparison.riskier === undefined ? [] : [comparison.riskier];
  const riskier = riskierOf({ ...comparison, plans }, known);
  const sure = { ...comparison, plans, ...defined({ riskier }) };
  if (cost !== 'nccl' || !trains)
    return {
      ...sure,
      unsure: trains
        ? `no band: the prices of ${cost} were not set against measured runs`
        : 'no band: only training steps were measured',
    };
  const hosts = comparison.devices > cluster.devicesPerHost ? 2 : 1;
  const { accelerator } = cluster;
  const pool = nearestPool({
    accelerator,
    experts,
    hosts,
    unmeasured,
    trainer,
    assumed,
  });
  if (pool === undefined) return { ...sure, unsure: NO_RUNS };
  const { p10, p90 } = pool[by];
  const banded = plans.map((plan) => {
    const secondsBand = [plan.seconds * p10, plan.seconds * p90] as const;
    // Runs were set against sums of calls and against composed steps, not against played ones.
    return withFields(plan, { secondsBand, ...(by === 'step' ? { stepBand: secondsBand } : {}) });
  });
  const { pairs } = fidelity();
  const figures = {
    p10,
    p90,
    from: poolText(pool),
    runs: pool.runs,
    families: pool.families,
    alikeShare: pairs[by],
    alikeGroups: pairs.groups,
  };
  const compared = { ...sure, plans: banded };
  return { ...compared, certainty: { ...figures, ...tiesOf(compared, pairs[by]) } };
}

/** A plan with more fields; what it makes on demand is not asked for. */
function withFields(plan: ComparedPlan, fields: Partial<ComparedPlan>): ComparedPlan {
  return Object.assign(
    Object.defineProperties({}, Object.getOwnPropertyDescriptors(plan)) as ComparedPlan,
    fields,
  );
}

/**
 * The certainty of a comparison that was put together from pieces: their figures, and what is alike
 * in the whole.
 */
export function certaintyOfWhole(
  whole: Comparison,
  { certainty, unsure }: Comparison,
): Pick<Comparison, 'certainty' | 'unsure'> {
  if (certainty === undefined) return unsure === undefined ? {} : { unsure };
  return { certainty: { ...certainty, ...tiesOf(whole, certainty.alikeShare) } };
}

/** The plans that are equal to the best within the error, and the simplest of them. */
function tiesOf(
  comparison: Comparison,
  share: number,
): Pick<Certainty, 'alike' | 'simplest' | 'recommended' | 'order'> {
  const alike = tiedPlans(comparison, share);
  const [simplest] = [...alike].sort(bySimplicity);
  return {
    alike: alike.map((p) => p.name),
    simplest: alike.length === 0 ? null : simplest.name,
    recommended: comparison.best,
    order: SIMPLER,
  };
}

/**
 * Plans that fit as surely as is asked for and are not slower than the best by more than what
 * measured pairs confirm nine times in ten.
 */
function tiedPlans(comparison: Comparison, share: number): ComparedPlan[] {
  const best = bestPlan(comparison);
  if (best === undefined) return [];
  const most = stepTime(best) * (1 + share);
  return comparison.plans.filter((p) => isSafe(p, comparison) && stepTime(p) <= most);
}

/** The simpler plan first, by the order of `SIMPLER`. */
function bySimplicity(a: ComparedPlan, b: ComparedPlan): number {
  const [left, right] = [complexity(a), complexity(b)];
  const at = left.findIndex((value, i) => value !== right[i]);
  return at < 0 ? a.name.localeCompare(b.name, 'en') : left[at] - right[at];
}

const STATES = ['dp', 'zero1', 'zero2', 'fsdp', 'hsdp'];

function complexity(plan: ComparedPlan): number[] {
  const dims = plan.mesh.split(/[ ,]+/).filter((dim) => !dim.endsWith('=1'));
  const names = dims.map((dim) => dim.replace(/=.*/, ''));
  const parts = plan.plan.split('+');
  const has = (...any: readonly string[]): number =>
    Number(any.some((name) => names.includes(name) || parts.includes(name)));
  return [
    dims.length,
    has('pp'),
    has('ep', 'etp'),
    Number(names.includes('cp') || names.includes('sp')),
    has('tp'),
    Number(plan.origin === 'ilp'),
    Math.max(0, ...parts.map((part) => STATES.indexOf(part))),
    Number((plan.layout?.unitsAgain ?? 0) > 0),
    stepTime(plan),
  ];
}
