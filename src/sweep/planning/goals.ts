/**
 * Answers the questions of a budget about the points of a comparison: how many devices end the run
 * in time, and how many tokens a sum of money trains.
 */

import type { Price } from '../../cost/hardware/operation.ts';
import type { RunCost } from '../../cost/training/run-cost.ts';

/** A point of a comparison, as far as its run says. */
interface GoalPoint {
  readonly devices: number;
  readonly cluster: string;
  readonly best: object | null;
  readonly run?: RunCost;
}

/** A limit of a whole run in time or money, as it is asked. */
export interface AskedGoals {
  readonly withinSeconds?: number;
  readonly spend?: Price;
}

/** The points that end the run in time. */
export interface WithinGoal {
  readonly withinSeconds: number;
  /** Place of the cheapest point that does, or without prices of the one of fewest devices. */
  readonly at: number | null;
  /** The same among points whose whole measured range does. */
  readonly surely: number | null;
  /**
   * Devices that would be enough, at the rate of a device of the fastest point; absent where a
   * point is in time, or where no plan fits.
   */
  readonly wouldTake?: { readonly devices: number; readonly cluster: string };
}

/** The point at which a sum trains most tokens; in time, where a time is asked, too. */
interface SpendGoal {
  readonly spend: Price;
  readonly at: number | null;
  /** 0 where no point has a plan. */
  readonly tokens: number;
  readonly seconds: number;
}

export interface PlanningGoals {
  readonly within?: WithinGoal;
  readonly spend?: SpendGoal;
}

interface PointRun {
  readonly at: number;
  readonly point: GoalPoint;
  readonly run: RunCost;
}

export function goalsOf(
  points: readonly GoalPoint[],
  { withinSeconds, spend }: AskedGoals,
): PlanningGoals | undefined {
  if (withinSeconds === undefined && spend === undefined) return undefined;
  const runs = points.flatMap((point, at): PointRun[] =>
    point.best === null || point.run === undefined ? [] : [{ at, point, run: point.run }],
  );
  return {
    ...(withinSeconds === undefined ? {} : { within: withinOf(runs, withinSeconds) }),
    ...(spend === undefined ? {} : { spend: spentOn(runs, spend, withinSeconds) }),
  };
}

function withinOf(runs: readonly PointRun[], withinSeconds: number): WithinGoal {
  const inTime = runs.filter(({ run }) => run.wallSeconds <= withinSeconds);
  const surely = inTime.filter(
    ({ run: { wallSecondsBand } }) => (wallSecondsBand?.[1] ?? Infinity) <= withinSeconds,
  );
  const at = cheapest(inTime)?.at ?? null;
  const fastest = least(runs, ({ run }) => run.wallSeconds);
  return {
    withinSeconds,
    at,
    surely: cheapest(surely)?.at ?? null,
    ...(at !== null || fastest === undefined
      ? {}
      : { wouldTake: enoughDevices(fastest, withinSeconds) }),
  };
}

function enoughDevices(
  { point, run }: PointRun,
  withinSeconds: number,
): NonNullable<WithinGoal['wouldTake']> {
  const devices = Math.ceil((point.devices * run.wallSeconds) / withinSeconds);
  return { devices, cluster: point.cluster };
}

function spentOn(runs: readonly PointRun[], spend: Price, withinSeconds = Infinity): SpendGoal {
  const bought = runs.flatMap(({ at, run }) => {
    const { price, tokens, wallSeconds } = run;
    if (price?.currency !== spend.currency) return [];
    const share = Math.min(spend.amount / price.amount, withinSeconds / wallSeconds);
    return [{ at, tokens: tokens * share, seconds: wallSeconds * share }];
  });
  const most = least(bought, ({ tokens }) => -tokens);
  return most === undefined
    ? { spend, at: null, tokens: 0, seconds: 0 }
    : { spend, at: most.at, tokens: most.tokens, seconds: most.seconds };
}

/** The cheapest where all have a price of one currency, else the one of fewest devices. */
function cheapest(runs: readonly PointRun[]): PointRun | undefined {
  const currencies = new Set(runs.map(({ run }) => run.price?.currency));
  return currencies.size === 1 && !currencies.has(undefined)
    ? least(runs, ({ run }) => run.price?.amount ?? Infinity)
    : least(runs, ({ point }) => point.devices);
}

/** The first item of the least amount. */
function least<T>(items: readonly T[], amount: (item: T) => number): T | undefined {
  const [first, ...rest] = items;
  if (first === undefined) return undefined;
  return rest.reduce((best, item) => (amount(item) < amount(best) ? item : best), first);
}
