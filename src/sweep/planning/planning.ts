/**
 * Joins many comparisons: one model on several clusters, numbers of devices, sequence lengths,
 * batches. It gives each point at its best plan, the curves through the points with their
 * efficiency, and the places where the best plan changes along a curve.
 */

import type { Allocation } from '../../cost/hardware/topology.ts';
import type { RunCost } from '../../cost/training/run-cost.ts';
import { defined } from '../../defined.ts';
import { bestPlan, stepTime } from '../../recipes/compare/best-plan.ts';
import type {
  ComparedLayout,
  ComparedPlan,
  Comparison,
  RiskierPlan,
} from '../../recipes/compare/comparison.ts';
import { type AskedGoals, goalsOf, type PlanningGoals } from './goals.ts';

/** The question of one point. */
export interface PointQuestion {
  readonly model: string;
  /** The cluster as it was asked for: a node design, or the name of a file. */
  readonly cluster: string;
  readonly devices: number;
  readonly sequence: number;
  readonly globalBatch: number;
}

/** A point at its best plan. */
export interface PlanningPoint extends PointQuestion {
  readonly budgetBytes: number;
  /** `Comparison.risk`. */
  readonly risk?: number;
  /** `Comparison.safest`, with its mesh and the probability with which it fits. */
  readonly safest?: Pick<ComparedPlan, 'plan' | 'mesh' | 'fitProbability'>;
  /** `Comparison.riskier`. */
  readonly riskier?: RiskierPlan;
  /** Null where no plan fits, or the time was over before any was priced. */
  readonly best: BestOfPoint | null;
  readonly held?: Allocation;
  readonly run?: RunCost;
  /** `Comparison.warnings`. */
  readonly warnings?: readonly string[];
  /** The cause that ended the comparison of the point before it was done. */
  readonly stopped?: 'interrupted' | 'time limit';
}

interface BestOfPoint
  extends
    Pick<
      ComparedPlan,
      | 'plan'
      | 'mesh'
      | 'seconds'
      | 'peakBytes'
      | 'stepSeconds'
      | 'stepBand'
      | 'fitProbability'
      | 'trainer'
    >,
    Pick<
      ComparedLayout,
      'tokensPerSecond' | 'mfu' | 'microbatch' | 'microbatches' | 'checkpoint' | 'unitsAgain'
    > {
  readonly tokensPerSecondPerDevice: number;
}

/** Points of one cluster (and of one sequence, batch ...) along one axis. */
export interface Curve {
  /** The settings that all of its points share. */
  readonly of: string;
  readonly axis: 'devices' | 'sequence' | 'globalBatch';
  /** Over devices: strong where the batch stays, weak where it grows with them. */
  readonly scaling?: 'strong' | 'weak';
  /** Places in `points`, by rising axis. */
  readonly points: readonly number[];
  /**
   * Tokens a second of a device over those at the first point that has a plan; null where a point
   * has none.
   */
  readonly efficiency: readonly (number | null)[];
  /** The points at which the best plan is another than at the point before. */
  readonly changes: readonly { readonly at: number; readonly from: string; readonly to: string }[];
}

/** Comparisons side by side. */
export interface Planning {
  readonly version: 1;
  readonly points: readonly PlanningPoint[];
  readonly curves: readonly Curve[];
  /** Present where a run is to end in time, or a sum is to be spent. */
  readonly goals?: PlanningGoals;
}

/** A point from its comparison. */
export function pointOf(
  question: PointQuestion,
  comparison: Comparison | undefined,
): PlanningPoint {
  if (comparison === undefined)
    return { ...question, budgetBytes: 0, best: null, stopped: 'time limit' };
  const { budgetBytes, risk, riskier, held, run, warnings, stopped } = comparison;
  const best = bestPlan(comparison);
  const safest = comparison.plans.find((p) => p.name === comparison.safest);
  return {
    ...question,
    budgetBytes,
    ...defined({ risk, riskier }),
    ...(safest === undefined ? {} : { safest: nearestOf(safest) }),
    best: best?.layout === undefined ? null : bestOf(best, best.layout, question.devices),
    ...defined({ held, run, warnings }),
    ...defined({ stopped: stopped?.by }),
  };
}

function nearestOf({
  plan,
  mesh,
  fitProbability = null,
}: ComparedPlan): NonNullable<PlanningPoint['safest']> {
  return { plan, mesh, fitProbability };
}

function bestOf(best: ComparedPlan, layout: ComparedLayout, devices: number): BestOfPoint {
  const { plan, mesh, seconds, peakBytes, stepBand = null, fitProbability = null, trainer } = best;
  const { tokensPerSecond, mfu, microbatch, microbatches, checkpoint, unitsAgain } = layout;
  const tuned = {
    microbatch,
    microbatches,
    checkpoint,
    ...defined({ unitsAgain }),
  };
  return {
    plan,
    mesh,
    stepSeconds: stepTime(best),
    stepBand,
    seconds,
    peakBytes,
    fitProbability,
    ...defined({ trainer }),
    tokensPerSecond,
    tokensPerSecondPerDevice: tokensPerSecond / devices,
    mfu,
    ...tuned,
  };
}

const AXES = ['devices', 'sequence', 'globalBatch'] as const;

/** The points with the curves through them. */
export function planningOf(points: readonly PlanningPoint[], asked: AskedGoals = {}): Planning {
  const goals = goalsOf(points, asked);
  return { version: 1, points, curves: curvesOf(points), ...defined({ goals }) };
}

/**
 * A curve for every cluster along the first axis that has more than one value; a batch that is one
 * a device grows with devices.
 */
function curvesOf(points: readonly PlanningPoint[]): Curve[] {
  const perDevice = new Set(points.map((p) => p.globalBatch / p.devices)).size === 1;
  const grows = perDevice && new Set(points.map((p) => p.globalBatch)).size > 1;
  const axis = AXES.find((name) => new Set(points.map((p) => p[name])).size > 1);
  if (axis === undefined) return [];
  const shared = (p: PlanningPoint): string =>
    [
      p.model,
      p.cluster,
      ...(axis === 'devices' ? [] : [`${p.devices} devices`]),
      ...(axis === 'sequence' ? [] : [`sequences of ${p.sequence}`]),
      ...(axis === 'globalBatch'
        ? []
        : [
            axis === 'devices' && grows
              ? `${sequences(p.globalBatch / p.devices)} a device`
              : `${sequences(p.globalBatch)} a step`,
          ]),
    ].join(', ');
  const groups = new Map<string, number[]>();
  points.forEach((p, i) => groups.set(shared(p), [...(groups.get(shared(p)) ?? []), i]));
  return [...groups]
    .filter(([, list]) => list.length > 1)
    .map(([of, list]): Curve => {
      const order = [...list].sort((a, b) => points[a][axis] - points[b][axis]);
      return {
        of,
        axis,
        ...(axis === 'devices' ? { scaling: grows ? ('weak' as const) : ('strong' as const) } : {}),
        points: order,
        efficiency: efficiencyOf(order.map((i) => points[i])),
        changes: changesOf(order, points),
      };
    });
}

function efficiencyOf(points: readonly PlanningPoint[]): (number | null)[] {
  const first = points.find((p) => p.best !== null)?.best?.tokensPerSecondPerDevice;
  return points.map(({ best }) =>
    best === null || first === undefined ? null : best.tokensPerSecondPerDevice / first,
  );
}

/** Plans are the same where their names are: meshes grow with the devices. */
function changesOf(order: readonly number[], points: readonly PlanningPoint[]): Curve['changes'] {
  const name = (i: number): string => points[i].best?.plan ?? 'no plan fits';
  return order.flatMap((at, k) =>
    k === 0 || name(at) === name(order[k - 1])
      ? []
      : [{ at, from: name(order[k - 1]), to: name(at) }],
  );
}

function sequences(n: number): string {
  return n === 1 ? '1 sequence' : `${n} sequences`;
}
