/**
 * Prices the recipes of a plan's mesh on the plan's own problem and says why each of them loses.
 */

import { stepAgain } from '../../../fidelity/trainer-step.ts';
import { itemAt } from '../../../item-at.ts';
import { decode } from '../../../plan/choice/decode.ts';
import type { Prepared } from '../../../plan/prepare/prepared.ts';
import { sumCollectives, termsOf } from '../../../plan/record/diff.ts';
import type { Plan } from '../../../plan/record/types.ts';
import { dominators, paretoFront } from '../../../recipes/compare/pareto.ts';
import { type Priced, priceRestriction, type Solvable } from '../../../recipes/compare/price.ts';
import { inputRoles } from '../../../recipes/inputs/roles.ts';
import { applyRecipe, meshRecipes } from '../../../recipes/recipes.ts';

/**
 * A recipe, priced on the same problem; where the mesh or the model does not admit it, `reason`
 * says why.
 */
export interface ComparedRecipe {
  readonly name: string;
  /** The step by the clock, as the plan's own: run by its trainer, or simulated. */
  readonly stepSeconds: number | null;
  /** Every cost one after another. */
  readonly seconds: number | null;
  readonly computeSeconds: number | null;
  readonly communicationSeconds: number | null;
  /**
   * The bytes that count against the budget on the fullest device: peak memory, or the states where
   * only those were asked about.
   */
  readonly peakBytes: number | null;
  /** Bytes above the budget, where it is over. */
  readonly overBytes?: number;
  /** The plan, or another recipe, that is no worse in seconds and bytes, and better in one. */
  readonly dominatedBy?: string;
  /** The terms of the step time that it loses most by, in seconds and bytes, largest first. */
  readonly losses: readonly Loss[];
  /** Why there is no price. */
  readonly reason: string;
}

interface Loss {
  readonly term: string;
  /** More than the plan takes. */
  readonly seconds: number;
  /** Bytes of the collective more than the plan moves; null for compute. */
  readonly bytes: number | null;
}

export interface Compared {
  readonly plans: readonly ComparedRecipe[];
  /**
   * Plans that fit and that no other fitting one is better than in both seconds and bytes, least
   * bytes first.
   */
  readonly frontier: readonly {
    readonly name: string;
    readonly peakBytes: number;
    readonly seconds: number;
  }[];
  readonly choices: readonly { readonly name: string; readonly choice: Int32Array }[];
}

/** Name of the plan itself among the recipes. */
export const THIS_PLAN = 'this plan';

/** Prices the recipes of the mesh, those that do not fit too, and says why each of them loses. */
export async function compareRecipes(prepared: Prepared, plan: Plan): Promise<Compared> {
  const rows: ComparedRecipe[] = [];
  const choices: { name: string; choice: Int32Array }[] = [];
  const inputs = inputRoles(prepared.model);
  for (const recipe of meshRecipes(prepared.model, inputs)) {
    const { name } = recipe;
    const applied = applyRecipe(prepared.model, recipe, undefined, inputs);
    const priced =
      'refused' in applied ? applied : await priceRestriction(prepared, applied.restriction);
    if ('refused' in priced) {
      rows.push({ name, ...WITHOUT_PRICE, reason: priced.refused });
      continue;
    }
    choices.push({ name, choice: priced.choice });
    const step = plan.step === undefined ? undefined : stepAgain(prepared, priced.choice, plan);
    const stepSeconds = step?.stepSeconds ?? null;
    rows.push({ name, stepSeconds, ...pricedRow(prepared, plan, priced) });
  }
  const points = pointsOf(plan, rows);
  return { plans: withDominators(rows, points), frontier: frontierOf(points), choices };
}

const WITHOUT_PRICE = {
  stepSeconds: null,
  seconds: null,
  computeSeconds: null,
  communicationSeconds: null,
  peakBytes: null,
  losses: [],
};

function pricedRow(
  { model, question }: Solvable,
  plan: Plan,
  { choice, seconds, peakBytes }: Priced,
): Omit<ComparedRecipe, 'name' | 'stepSeconds'> {
  const decoded = decode(model, choice);
  const { computeSeconds, communicationSeconds } = decoded;
  const other = {
    ...plan,
    ...decoded,
    objective: { seconds, computeSeconds, communicationSeconds },
    memory: plan.memory,
  };
  const over = peakBytes - question.budgetBytes;
  return {
    seconds,
    computeSeconds,
    communicationSeconds,
    peakBytes,
    ...(over > 0 ? { overBytes: over } : {}),
    losses: lossesOf(plan, other),
    reason: '',
  };
}

/** A plan in the plane of seconds and bytes. */
interface Point {
  readonly name: string;
  readonly seconds: number;
  readonly peakBytes: number;
  readonly fits: boolean;
}

/** The plan itself, then the recipes that have a price. */
function pointsOf({ objective, memory }: Plan, rows: readonly ComparedRecipe[]): Point[] {
  const own = {
    name: THIS_PLAN,
    seconds: objective.seconds,
    peakBytes: memory.peakBytes,
    fits: true,
  };
  return [
    own,
    ...rows.flatMap(({ name, seconds, peakBytes, overBytes }) =>
      seconds === null || peakBytes === null
        ? []
        : [{ name, seconds, peakBytes, fits: overBytes === undefined }],
    ),
  ];
}

function withDominators(
  rows: readonly ComparedRecipe[],
  points: readonly Point[],
): ComparedRecipe[] {
  const dominatorOf = dominators(points);
  const byName = new Map(points.map((p) => [p.name, p]));
  return rows.map((row) => {
    const point = byName.get(row.name);
    const by = point === undefined ? undefined : dominatorOf(point);
    return by === undefined ? row : { ...row, dominatedBy: by };
  });
}

/**
 * The Pareto front, least bytes first. Among plans that are equal in both, the first represents
 * all: the plan itself before any known one.
 */
function frontierOf(points: readonly Point[]): Compared['frontier'] {
  const byName = new Map(points.map((p) => [p.name, p]));
  const order = new Map(points.map((p, k) => [p.name, k]));
  return paretoFront(points)
    .flatMap((name) => {
      const p = byName.get(name);
      return p === undefined ? [] : [{ name, peakBytes: p.peakBytes, seconds: p.seconds }];
    })
    .sort(
      (a, b) => a.peakBytes - b.peakBytes || (order.get(a.name) ?? 0) - (order.get(b.name) ?? 0),
    )
    .filter((p, k, all) => k === 0 || p.peakBytes !== itemAt(all, k - 1).peakBytes);
}

const MOST_LOSSES = 3;

function lossesOf(plan: Plan, other: Plan): Loss[] {
  const [mine, theirs] = [termsOf(plan), termsOf(other)];
  const moved = (p: Plan): Map<string, number> =>
    new Map(sumCollectives(p).map((c) => [`${c.kind} (${c.axes})`, c.bytes]));
  const [mineBytes, theirBytes] = [moved(plan), moved(other)];
  const least = 1e-3 * plan.objective.seconds;
  return [...theirs]
    .map(([term, seconds]) => ({ term, seconds: seconds - (mine.get(term) ?? 0) }))
    .filter((loss) => loss.seconds > least)
    .sort((a, b) => b.seconds - a.seconds || (a.term < b.term ? -1 : 1))
    .slice(0, MOST_LOSSES)
    .map((loss) => {
      const bytes = theirBytes.get(loss.term);
      return {
        ...loss,
        bytes: bytes === undefined ? null : bytes - (mineBytes.get(loss.term) ?? 0),
      };
    });
}
