/**
 * Explains one node of a plan: every strategy of the node, with its cost next to that of the chosen
 * one.
 */
import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError, suggestion, valueText, wrongArgument } from '../../errors.ts';
import { placeholdersByRoleName } from '../../graph/carried.ts';
import { roleName } from '../../graph/nodes.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { evaluate } from '../../solver/check/verify.ts';
import { insideOf } from '../choice/decode.ts';
import { choiceOfPlan } from '../choice/transfer.ts';
import type { Model } from '../model/model.ts';
import { prepare } from '../prepare/prepare.ts';
import type { Prepared } from '../prepare/prepared.ts';
import type { Plan, PlannedInside } from '../record/types.ts';
import { type GivenRequest, holdsPeak } from '../request/request.ts';
import { LocalCosts } from './local-costs.ts';

/** The rank of a strategy against the chosen one while everything around it stays. */
export type CandidateClass =
  'CHOSEN' | 'TIE' | 'COSTLIER' | 'CHEAPER' | 'OVER BUDGET' | 'UNAVAILABLE';

/** One strategy of a node, priced with its neighbours where they are. */
interface Candidate {
  /** `S(0)R, RR -> S(0)R`; a placeholder's placement alone. */
  readonly spec: string;
  readonly class: CandidateClass;
  /**
   * Seconds more than the chosen strategy, with neighbours fixed and shared copies chosen again;
   * null where unavailable.
   */
  readonly localSeconds: number | null;
  readonly computeSeconds: number;
  /** Collectives inside the operator's own rule. */
  readonly internalSeconds: number;
  /** The collectives of `internalSeconds`; for a region of per-device code, its body's calls. */
  readonly inside: readonly PlannedInside[];
  /** The cost of bringing its inputs there, and of taking its results from there. */
  readonly inSeconds: number | null;
  readonly outSeconds: number | null;
  /** Bytes per device above the budget, where it is over. */
  readonly overBytes?: number;
  readonly reason?: string;
}

/** The strategies of one node of a plan. */
export interface NodeExplanation {
  readonly node: string;
  readonly target: string;
  readonly chosen: string;
  readonly strategies: readonly Candidate[];
  /** No re-solve can save more than this: the proven bound minus the plan's seconds, at most 0. */
  readonly globalAtLeastSeconds: number;
  /** Limits that exclude a cheaper or equal candidate, one sentence each. */
  readonly limits: readonly string[];
}

/**
 * A plan made ready for questions: its request prepared again, and its choice found in the model.
 */
export interface Reopened {
  readonly plan: Plan;
  readonly prepared: Prepared;
  readonly choice: Int32Array;
}

/**
 * Prepares the request of a plan again and finds the plan in it. Nothing is solved.
 *
 * @param program with its bodies, as a plan folder keeps it
 * @param given default that of the plan
 * @param table default the built-in operators
 * @throws E_PLAN where the plan is none of this program and request
 */
export function reopen(
  plan: Plan,
  program: Graph,
  given?: GivenRequest,
  table?: OperatorTable,
): Reopened {
  checkKinds('reopen', { plan: [plan, 'plan'], graph: [program, 'graph'] });
  const request = given ?? plan.request;
  const prepared = prepare(program, request, table);
  const choice = choiceOfPlan(plan, prepared.model);
  const { cost, violations } = evaluate(prepared.model.problem, choice);
  const seconds = Number(cost) / prepared.model.unitsPerSecond;
  if (
    violations.length > 0 ||
    Math.abs(seconds - plan.objective.seconds) > 1e-9 * plan.objective.seconds
  )
    throw new ShardwrightError(
      'E_PLAN',
      `this version prices the plan at ${seconds} s, the file says ${plan.objective.seconds} s`,
      { hint: 'make the plan again with this version.' },
    );
  return { plan, prepared, choice };
}

/**
 * The strategies of a node with the cost of each in its place, cheapest first.
 *
 * @param result what `shard` gives for a plan, or what `reopen` gives for one of a file
 * @param name of a node, of a parameter or of an input
 * @throws E_REF, with the nearest names, for a name that the graph does not have
 *
 * @example
 * ```ts
 * import { explain, input, parameter, shard, trace } from 'shardwright';
 *
 * const graph = trace(({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2), {
 *   x: input([4096, 4096]),
 *   w1: parameter([4096, 16384]),
 *   w2: parameter([16384, 4096]),
 * });
 * const result = await shard(graph, { mesh: 'tp=4', cluster: 'dgx-h100' });
 * if (result.status === 'infeasible') throw new Error(result.conflict.join('\n'));
 * const { chosen, strategies } = explain(result, 'w1');
 * console.log(chosen, 'of', strategies.map(({ spec }) => spec).join(', ')); // R of R, S(0), S(1)
 * ```
 */
export function explainNode(result: Reopened, name: string): NodeExplanation {
  checkKinds('explain', { result: [result, ['plan', 'prepared', 'choice']] });
  if (typeof name !== 'string')
    throw wrongArgument('explain', 'node', valueText(name), "give explain(result, 'w1').");
  checkKinds('explain', { result: [result, 'planned'] });
  const { plan, prepared, choice } = result;
  const { model } = prepared;
  const n = nodeIndex(model, name);
  const chosen = choice[model.nodeVariable[n]];
  const candidates = candidatesOf({ plan, prepared, choice }, n);
  const node = model.graph.nodes[n];
  return {
    node: roleName(node),
    target: node.kind === 'call' ? node.target : node.kind,
    chosen: specOf(model, n, chosen),
    strategies: candidates,
    globalAtLeastSeconds: Math.min(0, plan.proof.bound - plan.objective.seconds),
    limits: limitsOf(
      candidates,
      plan,
      holdsPeak(prepared.question.request) ? ', with the activations of the plan as they are' : '',
    ),
  };
}

/** The strategies of a node, cheapest first: the chosen one, then those that could be. */
function candidatesOf({ plan, prepared, choice }: Reopened, n: number): Candidate[] {
  const { model } = prepared;
  const entry = model.strategies.nodes[n]!;
  const variable = model.nodeVariable[n];
  const chosen = choice[variable];
  const seconds = model.nodeSeconds.get(entry.content)!;
  const times = model.opened?.loops.runsOf(model.graph.nodes[n].name) ?? 1;
  const around = new LocalCosts(model, choice, variable);
  const current = around.cost(chosen);
  const overBytes = overBudget({ plan, prepared, choice }, variable);
  const unary = model.problem.vectors[model.problem.unary[variable]];
  const left = prepared.left.problem.vectors[prepared.left.problem.unary[variable]];
  const inUnits = (units: number): number | null =>
    Number.isFinite(units) ? units / model.unitsPerSecond : null;
  const found = Array.from({ length: entry.set.count }, (_, s) => {
    const { into, out, blocked } = around.cost(s);
    const delta = unary[s] + into + out - (unary[chosen] + current.into + current.out);
    const over = overBytes(s);
    const reason =
      left[s] === Infinity
        ? 'a pin of the request leaves it out'
        : blocked === undefined
          ? undefined
          : `${blocked} is refused`;
    const kind = classify(s === chosen, reason, over, delta);
    const candidate: Candidate = {
      spec: specOf(model, n, s),
      class: kind,
      localSeconds: inUnits(delta),
      computeSeconds: seconds.compute[s] * times,
      internalSeconds: seconds.internal[s] * times,
      inside: insideOf(model, entry, s),
      inSeconds: inUnits(into),
      outSeconds: inUnits(out),
      ...(over > 0 ? { overBytes: over } : {}),
      ...defined({ reason }),
    };
    return {
      candidate,
      order: kind === 'UNAVAILABLE' ? Infinity : kind === 'CHOSEN' ? -Infinity : delta,
    };
  });
  found.sort((a, b) => (a.order === b.order ? 0 : a.order - b.order));
  return found.map(({ candidate }) => candidate);
}

/** Bytes over the budget with another strategy of a variable; 0 where nothing limits it. */
function overBudget(
  { plan, prepared, choice }: Reopened,
  variable: number,
): (strategy: number) => number {
  const { model } = prepared;
  const row = model.problem.rows?.[0];
  const slot = row?.variables.indexOf(variable) ?? -1;
  // Under a limit on the peak a strategy adds to it what its states differ by; its activations are
  // not played again.
  const used = holdsPeak(prepared.question.request)
    ? plan.memory.peakBytes
    : memoryUsed(model, choice);
  return (s) =>
    row !== undefined && slot >= 0
      ? used - row.amounts[slot][choice[variable]] + row.amounts[slot][s] - row.bound
      : 0;
}

/** A strategy as text: placements of the inputs, and of the results. */
function specOf({ space, strategies }: Model, n: number, s: number): string {
  const { set } = strategies.nodes[n]!;
  const width = set.inputCount + set.outputCount;
  const text = (from: number, to: number): string =>
    Array.from(set.specs.subarray(s * width + from, s * width + to), (id) =>
      id < 0 ? '-' : space.text(id),
    ).join(', ');
  const outputs = text(set.inputCount, width);
  return set.inputCount === 0 ? outputs : `${text(0, set.inputCount)} -> ${outputs}`;
}

function classify(
  chosen: boolean,
  reason: string | undefined,
  over: number,
  delta: number,
): CandidateClass {
  if (chosen) return 'CHOSEN';
  if (reason !== undefined) return 'UNAVAILABLE';
  if (over > 0) return 'OVER BUDGET';
  if (delta === 0) return 'TIE';
  return delta < 0 ? 'CHEAPER' : 'COSTLIER';
}

function limitsOf(candidates: readonly Candidate[], plan: Plan, counted: string): string[] {
  const gains = (c: Candidate): boolean => c.localSeconds !== null && c.localSeconds <= 0;
  const out: string[] = [];
  const over = candidates.filter((c) => c.class === 'OVER BUDGET');
  if (over.length > 0) {
    const least = Math.min(...over.map((c) => c.overBytes ?? Infinity));
    out.push(
      `Memory: ${over.length} of ${candidates.length} strategies need more than the ` +
        `${plan.memory.budgetBytes} bytes per device${counted}; the nearest is ${least} bytes ` +
        `over${over.some(gains) ? ', and some of them would be no more expensive' : ''}.`,
    );
  } else
    out.push(`Memory does not bind here: no strategy of this node is over the budget${counted}.`);
  const pinned = candidates.filter((c) => c.reason?.startsWith('a pin') === true);
  if (pinned.length > 0)
    out.push(`Pins of the request leave out ${pinned.length} of ${candidates.length} strategies.`);
  const refused = candidates.filter((c) => c.class === 'UNAVAILABLE').length - pinned.length;
  if (refused > 0)
    out.push(
      `${refused} of ${candidates.length} strategies do not fit the present neighbours: a ` +
        'redistribution is refused.',
    );
  return out;
}

/** Index of the node that decides the placement of a name. */
export function nodeIndex(model: Model, name: string): number {
  const { flow, graph } = model;
  let n = flow.byName.get(name);
  n ??= placeholdersByRoleName(graph).get(name);
  if (n === undefined) {
    const names = graph.nodes.flatMap((node) => [node.name, roleName(node)]);
    throw new ShardwrightError('E_REF', `the plan has no node '${name}'`, {
      hint: suggestion(name, [...new Set(names)], 'nodes and parameters'),
    });
  }
  return flow.alias[n] >= 0 ? flow.values[flow.alias[n]].node : n;
}

/** Bytes of the memory row under a choice. */
function memoryUsed(model: Model, choice: Int32Array): number {
  const [row] = model.problem.rows ?? [];
  let used = 0;
  row?.variables.forEach((v, k) => (used += row.amounts[k][choice[v]]));
  return used;
}
