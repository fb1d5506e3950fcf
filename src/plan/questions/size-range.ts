/** Makes plans of a graph with symbolic sizes at both ends of a range of sizes. */
import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import type { SizeValues } from '../../graph/text/size-value.ts';
import type { Graph } from '../../graph/types.ts';
import { atSizes, openSizes } from '../../passes/sizes/fix-sizes.ts';
import { evaluate } from '../../solver/check/verify.ts';
import { choiceOfPlan } from '../choice/transfer.ts';
import { type LeastCostOptions, leastCostPlanOf } from '../least-cost-plan.ts';
import { prepare } from '../prepare/prepare.ts';
import type { Prepared } from '../prepare/prepared.ts';
import type { Plan } from '../record/types.ts';
import type { GivenRequest } from '../request/request.ts';

/** A plan at one end of the sizes that its program admits. */
export interface RangeEnd {
  readonly sizes: Readonly<Record<string, number>>;
  /** Step time of the plan's placements at these sizes; null where they are not possible. */
  readonly seconds: number | null;
  /** Why not. */
  readonly refused?: string;
  /**
   * Step time of the best plan found for these sizes, and the proven bound below every plan; null
   * where there is none.
   */
  readonly bestSeconds: number | null;
  readonly boundSeconds: number | null;
  /** How much of its time the plan could at most save at these sizes: 1 - bound / seconds. */
  readonly regret: number | null;
}

/**
 * A plan that was made at one size of a range, at the ends of the range: its placements are priced
 * there, and compared with the best plan for that end. Sizes without a stated range stay as they
 * are; an end without a finite largest size is left out.
 *
 * @param open the program with its sizes open
 * @param values the sizes that the plan was made at
 */
export async function planAtEnds(
  plan: Plan,
  open: Graph,
  values: SizeValues,
  request: GivenRequest,
  options: Omit<LeastCostOptions, 'starts'> = {},
): Promise<RangeEnd[]> {
  checkKinds('planAtEnds', {
    plan: [plan, 'plan'],
    open: [open, 'graph'],
    values: [values, 'map'],
    request: [request, ['mesh', 'cluster']],
    options: [options, 'record', 'undefined'],
  });
  const ends = rangeEnds(open, values);
  const found: RangeEnd[] = [];
  for (const sizes of ends) found.push(await atEnd(plan, open, sizes, request, options));
  return found;
}

/** The least and the largest admissible sizes, all dims at once; none where no range is stated. */
export function rangeEnds(open: Graph, values: SizeValues): SizeValues[] {
  checkKinds('rangeEnds', {
    open: [open, 'graph'],
    values: [values, 'map'],
  });
  const ranged = openSizes(open).filter((size) => size.min !== undefined);
  if (ranged.length === 0) return [];
  const low = new Map(values);
  const high = new Map(values);
  for (const { name, min = 0, max = Infinity, multiple = 1 } of ranged) {
    low.set(name, Math.ceil(min / multiple) * multiple);
    high.set(name, Math.floor(max / multiple) * multiple);
  }
  return [low, high].filter((end) => [...end.values()].every(Number.isFinite));
}

async function atEnd(
  plan: Plan,
  open: Graph,
  sizes: SizeValues,
  request: GivenRequest,
  { table, ...options }: Omit<LeastCostOptions, 'starts'>,
): Promise<RangeEnd> {
  const end = { sizes: Object.fromEntries(sizes) };
  let prepared: Prepared;
  try {
    prepared = prepare(atSizes(open, sizes), request, table);
  } catch (error) {
    // A pin may not exist at these sizes: then no plan does.
    if (!(error instanceof ShardwrightError) || error.code !== 'E_PIN') throw error;
    return {
      ...end,
      seconds: null,
      refused: error.message,
      bestSeconds: null,
      boundSeconds: null,
      regret: null,
    };
  }
  const priced = priceOf(plan, prepared);
  const starts = priced.choice === undefined ? [] : [priced.choice];
  const best = await leastCostPlanOf(prepared, { ...options, starts });
  const found = best.status === 'planned' ? best.plan : undefined;
  const bound = found?.proof.bound ?? null;
  return {
    ...end,
    seconds: priced.seconds,
    ...defined({ refused: priced.refused }),
    bestSeconds: found?.objective.seconds ?? null,
    boundSeconds: bound,
    regret:
      priced.seconds === null || bound === null ? null : Math.max(0, 1 - bound / priced.seconds),
  };
}

function priceOf(
  plan: Plan,
  { model, left: { problem } }: Pick<Prepared, 'model' | 'left'>,
): { seconds: number | null; refused?: string; choice?: Int32Array } {
  try {
    const choice = choiceOfPlan(plan, model);
    const { cost, violations } = evaluate(problem, choice);
    const [first] = violations;
    if (first !== undefined) {
      const what =
        first.code === 'row'
          ? `${first.row} is over its limit`
          : `the choice breaks '${first.code}'`;
      return { seconds: null, refused: what };
    }
    return { seconds: Number(cost) / model.unitsPerSecond, choice };
  } catch (error) {
    if (!(error instanceof ShardwrightError) || error.code !== 'E_PLAN') throw error;
    return { seconds: null, refused: error.message };
  }
}

/** The sizes that a program is planned at: those given, else the examples. */
export function plannedSizes(open: Graph, given: SizeValues): SizeValues {
  const values = new Map(given);
  for (const { name, example } of openSizes(open))
    if (example !== undefined && !values.has(name)) values.set(name, example);
  return values;
}
