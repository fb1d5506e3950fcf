/**
 * Compares two plans of one model, from the plans alone: differences in seconds, memory, placements
 * and collectives.
 */
import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import type { Plan, PlannedInside, PlannedRedistribution } from './types.ts';

/** Differences of two plans of one model, from the plans alone. */
export interface PlanDiff {
  /** b - a. */
  readonly deltaSeconds: number;
  readonly deltaPeakBytes: number;
  /** Every term of the step time in seconds; each side sums to its objective. */
  readonly terms: readonly { readonly term: string; readonly a: number; readonly b: number }[];
  readonly memory: readonly {
    readonly term: string;
    readonly a: number | null;
    readonly b: number | null;
  }[];
  /** Parameters and nodes that are placed differently, equal ones of repeated layers folded. */
  readonly placements: readonly {
    readonly name: string;
    readonly count: number;
    readonly a: string;
    readonly b: string;
  }[];
  /** Collectives of one run of the program, where the numbers differ. */
  readonly collectives: readonly {
    readonly kind: string;
    readonly axes: string;
    readonly a: number;
    readonly b: number;
  }[];
  /** The other differences: mesh, cluster, settings of the request. */
  readonly request: readonly { readonly key: string; readonly a: string; readonly b: string }[];
}

/** Collectives of one kind over the same mesh dims, in one run of the program. */
export interface CollectiveSum {
  readonly kind: string;
  readonly axes: string;
  readonly count: number;
  readonly bytes: number;
  readonly seconds: number;
}

/** Every redistribution of a plan with how often it runs. */
function movesOf(plan: Plan): PlannedRedistribution[] {
  return [...plan.nodes, ...plan.outputs].flatMap((at) => at.redistributions);
}

/**
 * The collectives of a plan, between operators and inside them, by kind and mesh dims, most
 * expensive first.
 */
export function sumCollectives(plan: Plan): CollectiveSum[] {
  const sums = new Map<
    string,
    { kind: string; axes: string; count: number; bytes: number; seconds: number }
  >();
  const add = (collectives: readonly PlannedInside[], times = 1): void => {
    for (const c of collectives) {
      const axes = c.meshDims.join(',');
      const key = `${c.kind} ${axes}`;
      let sum = sums.get(key);
      if (sum === undefined)
        sums.set(key, (sum = { kind: c.kind, axes, count: 0, bytes: 0, seconds: 0 }));
      sum.count += times;
      sum.bytes += c.bytes * times;
      sum.seconds += c.seconds * times;
    }
  };
  for (const { collectives, times } of movesOf(plan)) add(collectives, times);
  for (const { inside = [], times } of plan.nodes) add(inside, times);
  return [...sums.values()].sort(
    (a, b) => b.seconds - a.seconds || (`${a.kind} ${a.axes}` < `${b.kind} ${b.axes}` ? -1 : 1),
  );
}

/** The step time of a plan by term; the terms sum to `plan.objective.seconds`. */
export function termsOf(plan: Plan): Map<string, number> {
  const terms = new Map<string, number>();
  const add = (term: string, seconds: number): void =>
    void terms.set(term, (terms.get(term) ?? 0) + seconds);
  for (const node of plan.nodes) {
    add('compute', node.seconds * (node.times ?? 1));
    if (node.internalSeconds !== undefined)
      add('collectives inside operators', node.internalSeconds * (node.times ?? 1));
  }
  for (const move of movesOf(plan)) {
    let collectives = 0;
    for (const c of move.collectives) {
      collectives += c.seconds;
      add(`${c.kind} (${c.meshDims.join(',')})`, c.seconds * (move.times ?? 1));
    }
    const executed = move.executedSeconds ?? move.seconds;
    if (executed !== collectives)
      add('local copies of redistributions', (executed - collectives) * (move.times ?? 1));
    if (executed !== move.seconds) add(FORMULA, (move.seconds - executed) * (move.times ?? 1));
  }
  let sum = 0;
  for (const seconds of terms.values()) sum += seconds;
  terms.set(ROUNDING, plan.objective.seconds - sum);
  return terms;
}

/**
 * Under a preset that charges redistributions by a formula: what the formula says beyond the steps
 * that run, less than 0 where less.
 */
const FORMULA = "the preset's formula beyond what runs";

/**
 * The solver adds whole units; the rest that its rounding makes is a term of its own, so that the
 * terms sum exactly.
 */
const ROUNDING = "rounding to the solver's unit";

/**
 * The changes from plan `a` to plan `b`.
 *
 * @param parameterNodes nodes that read parameters, which are listed under the parameters' own
 *   names
 * @throws E_PLAN where the plans have no parameter and no node in common
 */
export function diffPlans(
  a: Plan,
  b: Plan,
  parameterNodes: ReadonlySet<string> = new Set(),
): PlanDiff {
  checkKinds('diffPlans', {
    a: [a, 'plan'],
    b: [b, 'plan'],
    parameterNodes: [parameterNodes, 'set', 'undefined'],
  });
  const terms = pairs(termsOf(a), termsOf(b), 0).map(([term, x, y]) => ({ term, a: x, b: y }));
  const count = (plan: Plan): Map<string, number> =>
    new Map(sumCollectives(plan).map((c) => [`${c.kind}\u0000${c.axes}`, c.count]));
  return {
    deltaSeconds: b.objective.seconds - a.objective.seconds,
    deltaPeakBytes: b.memory.peakBytes - a.memory.peakBytes,
    terms: terms.filter((t) => t.a !== t.b),
    memory: MEMORY.map((term) => ({ term, a: a.memory[term], b: b.memory[term] })).filter(
      (m) => m.a !== m.b,
    ),
    placements: changedPlacements(a, b, parameterNodes),
    collectives: pairs(count(a), count(b), 0).flatMap(([key, x, y]) => {
      const [kind, axes] = key.split('\u0000');
      return x === y ? [] : [{ kind, axes, a: x, b: y }];
    }),
    request: requestChanges(a, b),
  };
}

const MEMORY = [
  'peakBytes',
  'budgetBytes',
  'parameterBytes',
  'gradientBytes',
  'optimizerBytes',
  'activationBytes',
] as const;

/** Both values of every key, in the order of the first map and then of the second. */
function pairs<T>(a: ReadonlyMap<string, T>, b: ReadonlyMap<string, T>, none: T): [string, T, T][] {
  return [...new Set([...a.keys(), ...b.keys()])].map((key) => [
    key,
    a.get(key) ?? none,
    b.get(key) ?? none,
  ]);
}

function changedPlacements(
  a: Plan,
  b: Plan,
  parameterNodes: ReadonlySet<string>,
): PlanDiff['placements'] {
  const placed = (plan: Plan): Map<string, string> => {
    const all = new Map(plan.parameters.map((p) => [p.name, p.placement]));
    for (const node of plan.nodes) {
      if (parameterNodes.has(node.name)) continue;
      const read = node.inputs.length > 0 ? `${node.inputs.join(', ')} -> ` : '';
      all.set(node.name, read + node.outputs.join(', '));
    }
    return all;
  };
  const [left, right] = [placed(a), placed(b)];
  if (![...left.keys()].some((name) => right.has(name)))
    throw new ShardwrightError(
      'E_PLAN',
      `the plans have nothing in common: ${a.model} and ${b.model}`,
      {
        hint: 'compare two plans of one model.',
      },
    );
  const folded = new Map<string, { names: string[]; pattern: string; a: string; b: string }>();
  for (const [name, x, y] of pairs(left, right, '(not in this plan)')) {
    if (x === y) continue;
    const pattern = name.replace(/(^|[._])\d+(?=[._]|$)/g, '$1*');
    const key = `${pattern}\u0000${x}\u0000${y}`;
    const row = folded.get(key);
    if (row === undefined) folded.set(key, { names: [name], pattern, a: x, b: y });
    else row.names.push(name);
  }
  return [...folded.values()].map((row) => ({
    name: row.names.length === 1 ? row.names[0] : row.pattern,
    count: row.names.length,
    a: row.a,
    b: row.b,
  }));
}

function requestChanges(a: Plan, b: Plan): PlanDiff['request'] {
  const asked = (plan: Plan): Map<string, string> => {
    const { pins, padVocabulary, inputDims, ...rest } = plan.request;
    const all = new Map<string, string>([['model', plan.model]]);
    for (const [key, value] of Object.entries(rest)) all.set(key, String(value));
    if (padVocabulary !== undefined)
      all.set('padVocabulary', `${padVocabulary.vocabulary} to ${padVocabulary.rows}`);
    if (inputDims !== undefined) all.set('inputDims', JSON.stringify(inputDims));
    all.set(
      'pins',
      (pins as unknown) instanceof Array ? pins.map((p) => `${p.node}=${p.spec}`).join(' ') : '',
    );
    return all;
  };
  return pairs(asked(a), asked(b), '(default)').flatMap(([key, x, y]) =>
    x === y ? [] : [{ key, a: x, b: y }],
  );
}
