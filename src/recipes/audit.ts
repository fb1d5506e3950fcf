/**
 * Takes a planning problem and a choice and gives the gap to the optimum, with the edits of one
 * placement that close most of it.
 */

import { defined } from '../defined.ts';
import { ShardwrightError } from '../errors.ts';
import { roleName } from '../graph/nodes.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { decode } from '../plan/choice/decode.ts';
import type { Infeasible, PlannedResult } from '../plan/choice/result.ts';
import { leastCostPlanOf } from '../plan/least-cost-plan.ts';
import type { Model } from '../plan/model/model.ts';
import type { Prepared } from '../plan/prepare/prepared.ts';
import { EXPORTED, planAnswer, type StepKeys } from '../plan/record/answer.ts';
import type { Plan, StepFigures } from '../plan/record/types.ts';
import { Deadline } from '../plan/request/deadline.ts';
import { holdsPeak, type PlanRequest } from '../plan/request/request.ts';
import { Restriction } from '../plan/restrict/restriction.ts';
import { evaluate } from '../solver/check/verify.ts';
import type { StepFacts } from '../step/facts.ts';
import { expertsNotRun } from '../step/read/routed-part.ts';
import { stepOfPlan } from '../step/step-of-plan.ts';
import { excessOver } from '../units.ts';
import { ofShortestStep } from './answer.ts';
import { priceRecipes } from './compare/compare.ts';
import { budgetedBytes, type Priced, solveRestricted } from './compare/price.ts';
import { simulatedSeconds } from './compare/simulated.ts';

/**
 * One edit of a plan: a parameter (the same one of every layer), or the inputs, placed otherwise.
 */
export interface Edit {
  readonly node: string;
  readonly from: string;
  readonly to: string;
  /**
   * Seconds off the step, against the plan before this edit; negative where only the next edit
   * makes it pay. Absent where the trainer does not run one of the two.
   */
  readonly savedStepSeconds?: number;
  /** The same of the sum of all costs, by which edits are chosen. */
  readonly secondsSaved: number;
  readonly bytesFreed: number;
}

/** A plan against the best one that is known by its step, and the optimum of its own problem. */
export interface Audit extends StepKeys {
  /** The best plan that `plan` knows by its step; absent where no time was left to look for it. */
  readonly best?: BestByStep;
  /** All costs one after another, which the proof is about. */
  readonly seconds: number;
  /** The bytes that the budget of the proof limits: those of the exported program. */
  readonly budgetedBytes: number;
  readonly fits: boolean;
  readonly overBytes?: number;
  /** The quantity that all bytes count: peak memory, or the states. */
  readonly holds: 'peak' | 'states';
  readonly optimumSeconds: number;
  readonly optimumPeakBytes: number;
  /** Proven lower bound on the seconds of every plan that fits. */
  readonly bound: number;
  readonly status: Plan['proof']['status'];
  /** seconds / optimumSeconds - 1; negative only for a plan that does not fit. */
  readonly regret: number;
  /** seconds / bound - 1: no plan that fits can be further away than this. */
  readonly provenRegret: number;
  readonly edits: readonly Edit[];
  readonly editedSeconds: number;
  readonly editedPeakBytes: number;
  /** The step that the edits lead to; absent where its trainer does not run it. */
  readonly editedStepSeconds?: number;
  /** How edits were found and priced. */
  readonly method: string;
  /** The cause that ended the search for edits early; absent where nothing did. */
  readonly stopped?: 'interrupted' | 'time limit';
}

/** The plan of the shortest step that is known. */
interface BestByStep {
  /** The name of a recipe; `the plan` that is audited; `the plan of least seconds`. */
  readonly name: string;
  readonly stepSeconds: number;
  /** stepSeconds of the audited plan over these, minus 1. */
  readonly regret: number;
}

/** Operators, number of edits and limits of an audit. */
export interface AuditOptions {
  /** Default the built-in operators. */
  readonly table?: OperatorTable;
  /** Most edits of the path. Default 3. */
  readonly edits?: number;
  readonly signal?: AbortSignal;
  /** Deadline of the whole audit, instead of the request's time limit and the signal. */
  readonly deadline?: Deadline;
  /** Called when the plan has its price: from then on there is something to answer with. */
  readonly onPlan?: () => void;
  readonly onProgress?: (line: string) => void;
}

/** The same, and the software by which steps are priced. */
interface StepAuditOptions extends Omit<AuditOptions, 'table'> {
  /** Absent: the step of the exported program is simulated. */
  readonly facts?: StepFacts;
}

/** Edits that an audit looks for by default. */
const EDITS = 3;

/** Part of the time that the optimum may take where edits are looked for after it. */
const OPTIMUM_SHARE = 3 / 4;

/** Part of the time left that the recipes may take together. */
const RECIPES_SHARE = 1 / 2;

/** The name of the audited plan among those that its step is compared with. */
const AUDITED = 'the plan';

const METHOD =
  'greedy edits: each step releases one parameter (in all layers at once), or the inputs, ' +
  'whose placement differs from the optimum; two at once where one saves nothing. The other ' +
  'placements stay, and activations are planned again. Every candidate is solved exactly, and ' +
  'the one of the least sum of costs is taken';

/** Name of the edit that leaves parameters and inputs alone. */
const ACTIVATIONS = '(activations)';

/** The request of the optimum that a plan is measured against: nothing is bound. */
export function auditedRequest({ recipe: _, overlap: __, ...request }: PlanRequest): PlanRequest {
  return {
    ...request,
    pins: [],
    shardings: 'ignore',
    inputs: 'free',
    outputs: 'free',
    objective: 'time',
    solver: 'auto',
  };
}

/**
 * Prices a choice against the best plan by its step and the optimum of its problem, and finds the
 * edits that bring it nearest to that.
 *
 * @param prepared without pins: the optimum is over the whole problem
 * @returns what is infeasible, where the problem has no plan that fits
 * @throws E_PLAN where the trainer does not run the choice
 */
export async function auditByStep(
  prepared: Prepared,
  choice: Int32Array,
  { edits = EDITS, ...options }: StepAuditOptions,
): Promise<Audit | Infeasible> {
  const {
    model,
    question: { budgetBytes, request },
  } = prepared;
  const given = pricedChoice(prepared, choice);
  const step = stepOfChoice(prepared, given, options.facts);
  options.onPlan?.();
  options.onProgress?.('solving the optimum');
  const deadline =
    options.deadline ?? new Deadline(request.timeLimitSeconds, { signal: options.signal });
  const serial = await leastCostPlanOf(prepared, {
    starts: [choice],
    deadline: edits > 0 ? deadline.part(OPTIMUM_SHARE) : deadline,
  });
  if (serial.status === 'infeasible') return serial;
  const { plan } = serial;
  const { objective, proof, memory } = plan;
  const best = await bestByStep(serial, given, step, options.facts, deadline);
  // A plan whose peak binds may be a choice of a model prepared again (`Model.ceilingSeconds`),
  // whose strategies are others.
  const isSame = serial.choice.length === choice.length && serial.prepared.model === model;
  const path = isSame
    ? await new EditPath(prepared, serial.choice, { ...options, edits }, deadline).walk({
        ...given,
        stepSeconds: step.stepSeconds,
      })
    : { edits: [], end: { ...given, stepSeconds: step.stepSeconds } };
  const editedStepSeconds = path.end.stepSeconds;
  const overBytes = Math.max(given.peakBytes, overStep(request, step)) - budgetBytes;
  const { stepBand, fitProbability, trainer } = planAnswer({ ...plan, step });
  return {
    ...{ stepSeconds: step.stepSeconds, stepBand, peakBytes: step.peakBytes, fitProbability },
    trainer,
    ...defined({ best, editedStepSeconds }),
    seconds: given.seconds,
    budgetedBytes: given.peakBytes,
    fits: overBytes <= 0,
    ...(overBytes <= 0 ? {} : { overBytes }),
    holds: holdsPeak(request) ? 'peak' : 'states',
    optimumSeconds: objective.seconds,
    optimumPeakBytes: memory.peakBytes,
    bound: proof.bound,
    status: proof.status,
    regret: excessOver(objective.seconds, given.seconds),
    provenRegret: excessOver(proof.bound, given.seconds),
    edits: path.edits,
    editedSeconds: path.end.seconds,
    editedPeakBytes: path.end.peakBytes,
    method: isSame
      ? METHOD
      : 'no edits: the optimum under the peak is one of another set of placements',
    ...(deadline.isOver ? { stopped: deadline.cause } : {}),
  };
}

function pricedChoice(prepared: Prepared, choice: Int32Array): Priced {
  const { model, question } = prepared;
  const seconds =
    Number(evaluate({ ...model.problem, rows: [] }, choice).cost) / model.unitsPerSecond;
  const peakBytes = budgetedBytes(prepared, choice);
  return { seconds, peakBytes, fits: peakBytes <= question.budgetBytes, choice };
}

/** The bytes of a step that its budget limits; 0 where the plan's own are limited. */
function overStep({ activations }: PlanRequest, { peakBytes }: StepFigures): number {
  return activations === 'trainer' ? peakBytes : 0;
}

/** @throws E_PLAN where the trainer does not run the choice */
function stepOfChoice(
  prepared: Prepared,
  priced: Priced,
  facts: StepFacts | undefined,
): StepFigures {
  const step = stepIfRun(prepared, priced, facts);
  if (step !== undefined) return step;
  const why = expertsNotRun(prepared.model, priced.choice) ?? 'experts';
  throw new ShardwrightError('E_PLAN', `${facts?.trainer ?? EXPORTED} does not run it: ${why}`, {
    hint: 'ask for the exported program with --for shardwright.',
  });
}

/** The step of a choice; undefined where the trainer does not run it. */
function stepIfRun(
  prepared: Prepared,
  { choice, peakBytes }: Priced,
  facts: StepFacts | undefined,
): StepFigures | undefined {
  const { model } = prepared;
  if (facts !== undefined)
    return expertsNotRun(model, choice) === undefined
      ? stepOfPlan(model, choice, facts)
      : undefined;
  const stepSeconds = simulatedSeconds(prepared, choice, decode(model, choice));
  return { trainer: EXPORTED, stepSeconds, peakBytes };
}

/** The plan of the shortest step among those that `plan` knows, and the one that is audited. */
async function bestByStep(
  serial: PlannedResult,
  given: Priced,
  { stepSeconds }: StepFigures,
  facts: StepFacts | undefined,
  deadline: Deadline,
): Promise<BestByStep | undefined> {
  if (deadline.isOver) return undefined;
  const others = await priceRecipes(serial.prepared, deadline.part(RECIPES_SHARE));
  // The audited plan is a candidate as well, where it is one of the same model.
  const isSame = serial.choice.length === given.choice.length;
  const own = isSame ? [{ status: 'priced' as const, name: AUDITED, ...given }] : [];
  const found = { serial, recipes: [...own, ...others] };
  const options = { deadline, limits: { deadline }, ...defined({ facts }) };
  const best = await ofShortestStep(found, options);
  if (best.status === 'infeasible' || best.plan.step === undefined) return undefined;
  const named = best.fastest?.name ?? best.step?.name ?? 'the plan of least seconds';
  const shortest = Math.min(best.plan.step.stepSeconds, stepSeconds);
  return {
    name: shortest < best.plan.step.stepSeconds ? AUDITED : named,
    stepSeconds: shortest,
    regret: excessOver(shortest, stepSeconds),
  };
}

/** Variables that one edit places. */
interface Group {
  readonly name: string;
  readonly variables: readonly number[];
}

/** A plan on the path of edits. */
interface Stepped extends Priced {
  /** Absent where the trainer does not run it. */
  readonly stepSeconds?: number | undefined;
}

/** An edit, and the plan that it leads to. */
interface Step {
  readonly name: string;
  readonly from: string;
  readonly to: string;
  readonly next: Priced;
}

function editBetween(at: Stepped, { name, from, to }: Step, next: Stepped): Edit {
  const [before, after] = [at.stepSeconds, next.stepSeconds];
  const isKnown = before !== undefined && after !== undefined;
  return {
    node: name,
    from,
    to,
    ...(isKnown ? { savedStepSeconds: before - after } : {}),
    secondsSaved: at.seconds - next.seconds,
    bytesFreed: at.peakBytes - next.peakBytes,
  };
}

class EditPath {
  private readonly groups: readonly Group[];

  constructor(
    private readonly prepared: Prepared,
    private readonly optimum: Int32Array,
    private readonly options: Pick<StepAuditOptions, 'onProgress' | 'facts'> & {
      readonly edits: number;
    },
    private readonly deadline: Deadline,
  ) {
    this.groups = groupsOf(prepared.model);
  }

  async walk(given: Stepped): Promise<{ readonly edits: readonly Edit[]; readonly end: Stepped }> {
    const { options, deadline } = this;
    const edits: Edit[] = [];
    let at = given;
    const take = (edit: Step): void => {
      const next = this.stepped(edit.next);
      edits.push(editBetween(at, edit, next));
      at = next;
    };
    if (options.edits > 0) {
      const next = await this.solve(at, []);
      if (next !== undefined && next.seconds < at.seconds && (next.fits || !at.fits))
        take({ name: ACTIVATIONS, from: 'as given', to: 'planned again', next });
    }
    while (edits.length < options.edits && !deadline.isOver) {
      options.onProgress?.(`edit ${edits.length + 1} of at most ${options.edits}`);
      const steps = await this.next(at, options.edits - edits.length);
      if (steps.length === 0) break;
      steps.forEach(take);
    }
    return { edits, end: at };
  }

  private stepped(next: Priced): Stepped {
    const { stepSeconds } = stepIfRun(this.prepared, next, this.options.facts) ?? {};
    return { ...next, stepSeconds };
  }

  /** The best edit, or the best pair of edits where no single one helps; none where none does. */
  private async next(at: Priced, most: number): Promise<readonly Step[]> {
    const isBetter = (next: Priced): boolean =>
      at.fits ? next.seconds < at.seconds : next.peakBytes < at.peakBytes;
    const single = await this.best(
      at,
      this.candidates(at).map((g) => [g]),
    );
    if (single !== undefined && isBetter(single.next))
      return [this.step(single.groups[0], at, single.next)];
    if (most < 2) return [];
    const pair = await this.best(at, pairs(this.candidates(at)));
    if (pair === undefined || !isBetter(pair.next)) return [];
    const [first, second] = pair.groups;
    const between = await this.solve(
      at,
      [],
      new Map(first.variables.map((v) => [v, pair.next.choice[v]])),
    );
    // Half of a pair may not be a plan at all; then the two are one edit.
    if (between === undefined) {
      const both = {
        name: `${first.name} and ${second.name}`,
        variables: [...first.variables, ...second.variables],
      };
      return [this.step(both, at, pair.next)];
    }
    const to = this.text(first, pair.next.choice);
    return [
      { ...this.step(first, at, between), to },
      { ...this.step(second, at, pair.next), from: this.text(second, between.choice) },
    ];
  }

  private step(group: Group, at: Priced, next: Priced): Step {
    const { name } = group;
    return { name, from: this.text(group, at.choice), to: this.text(group, next.choice), next };
  }

  /** Groups that the optimum places otherwise, as they are now. */
  private candidates(at: Priced): Group[] {
    return this.groups.filter((g) => g.variables.some((v) => at.choice[v] !== this.optimum[v]));
  }

  private async best(
    at: Priced,
    sets: readonly (readonly Group[])[],
  ): Promise<{ readonly groups: readonly Group[]; readonly next: Priced } | undefined> {
    let best: { readonly groups: readonly Group[]; readonly next: Priced } | undefined;
    for (const groups of sets) {
      const variables = groups.flatMap((g) => g.variables);
      // A plan that does not fit has first to fit: the optimum's placements do.
      const next = at.fits
        ? await this.solve(at, variables)
        : await this.solve(at, [], new Map(variables.map((v) => [v, this.optimum[v]])));
      // Edits of a plan that fits lead to plans that fit.
      if (next === undefined || (at.fits && !next.fits)) continue;
      if (best === undefined || this.order(at, next, best.next) < 0) best = { groups, next };
    }
    return best;
  }

  /** Less seconds first, or less bytes for a plan that does not fit; then the other of the two. */
  private order(at: Priced, a: Priced, b: Priced): number {
    const bySeconds = a.seconds - b.seconds;
    const byBytes = a.peakBytes - b.peakBytes;
    return at.fits ? bySeconds || byBytes : byBytes || bySeconds;
  }

  /**
   * The cheapest plan with parameters and inputs as they are, but those that are released or moved.
   */
  private async solve(
    at: Priced,
    released: readonly number[],
    moved = new Map<number, number>(),
  ): Promise<Priced | undefined> {
    const restriction = new Restriction(this.prepared.model);
    for (const group of this.groups)
      for (const v of group.variables) {
        if (released.includes(v)) continue;
        const value = moved.get(v) ?? at.choice[v];
        restriction.keep(v, group.name, (a) => a === value);
      }
    const bound = Math.max(this.prepared.question.budgetBytes, at.fits ? 0 : Infinity);
    const found = await solveRestricted(this.prepared, restriction, bound, this.deadline);
    return 'conflict' in found ? undefined : found;
  }

  /** Placements of a group, each once. */
  private text(group: Group, choice: Int32Array): string {
    const { space, strategies, variables } = this.prepared.model;
    const texts = group.variables.map((v) => {
      const variable = variables[v];
      const set = variable.kind === 'node' ? strategies.nodes[variable.node]?.set : undefined;
      return set === undefined ? '-' : space.text(set.specs[choice[v]]);
    });
    return [...new Set(texts)].join(' or ');
  }
}

function pairs(groups: readonly Group[]): Group[][] {
  return groups.flatMap((a, i) => groups.slice(i + 1).map((b) => [a, b]));
}

/**
 * Parameters by name with layer numbers as `*` and by shape, tied ones together; all inputs are one
 * group.
 */
function groupsOf({ graph, flow, nodeVariable }: Model): Group[] {
  const owner = new Map<string, string>();
  for (const [first, ...others] of graph.ties ?? [])
    for (const name of others) owner.set(name, first);
  const groups = new Map<string, { name: string; variables: number[] }>();
  graph.nodes.forEach((node, n) => {
    if (node.kind !== 'placeholder' || nodeVariable[n] < 0) return;
    const { role } = node.meta;
    if (role !== 'parameter' && role !== 'input') return;
    const own = roleName(node);
    const name =
      role === 'input' ? '(inputs)' : (owner.get(own) ?? own).replace(/(^|\.)\d+(?=\.)/g, '$1*');
    const shape = role === 'input' ? '' : flow.values[flow.results[n][0]].meta.shape.join();
    const key = `${name}:${shape}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { name, variables: [nodeVariable[n]] });
    else group.variables.push(nodeVariable[n]);
  });
  return [...groups.values()];
}
