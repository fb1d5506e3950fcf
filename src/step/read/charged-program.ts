/**
 * Charges the calls and moves of a solved program to its nodes and units: what each call computes,
 * what collectives of activations cost it, and what a step pays once for gradients.
 */

import type { StepSystem } from '../../cost/kernels/call.ts';
import { movedType } from '../../cost/redistribution/pricing.ts';
import { internalError } from '../../errors.ts';
import { valueBytes } from '../../graph/value.ts';
import type { TypedContext } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { Routes } from '../../plan/choice/routes.ts';
import type { Model, Use } from '../../plan/model/model.ts';
import { localCall } from '../../plan/model/node-costs.ts';
import type { GraphUnits } from './graph-units.ts';
import { NarrowGathers } from './moves/narrow-gathers.ts';
import { localBytes, type Move, PARTS, type Step } from './moves/pending-sums.ts';
import { COLLECTIVES } from './moves/plan-collectives.ts';
import { programKernels } from './program-kernels.ts';
import type { RoutedPart } from './routed-part.ts';
import { isSavedAsTaken } from './saved/key-values.ts';

/** A solved program of one data rank, with what is known of its values. */
interface SolvedProgram {
  readonly model: Model;
  readonly choice: Int32Array;
  readonly table: OperatorTable;
  readonly units: GraphUnits;
  readonly routes: Routes;
  /** Parameter (node) whose gradient a value is, from where only views follow. */
  readonly gradientOf: Int32Array;
  /** Calls that repeat keys and values for attention. */
  readonly repeated: ReadonlySet<number>;
  /** The machine and the software that kernels are priced for; absent: as the plan prices calls. */
  readonly system: StepSystem | undefined;
  /** Parameters that are gathered and gradients that are summed are not paid here. */
  readonly statesApart: boolean;
  /** Routed blocks, which are priced apart. */
  readonly routed: RoutedPart | undefined;
}

/** Seconds, kernels and moves of a solved program. */
export interface Charges {
  /** Compute of each node with nothing moved, in seconds. */
  readonly compute: Float64Array;
  /** Kernels and collectives that the host launches, by node. */
  readonly kernels: Float64Array;
  /** Seconds of collectives of activations, by node. */
  readonly communication: Float64Array;
  /** Seconds of those collectives over `cp` alone, by node. */
  readonly contextSeconds: Float64Array;
  /** Seconds of those collectives that are gathers and scatters over `tp` alone, by node. */
  readonly tensorParts: Float64Array;
  /**
   * Seconds of each unit that a step has once, whatever its microbatches: gradients on their way
   * out.
   */
  readonly stepSeconds: Float64Array;
  /** Those seconds that lay gradients out again, by unit. */
  readonly relaidSeconds: Float64Array;
  readonly moves: readonly Move[];
  /** Bytes of the copies that stay from the forward to the backward pass instead of their value. */
  readonly copyBytes: ReadonlyMap<number, number>;
  /** Exchanges that the backward pass finds done, and the node that makes what they move. */
  readonly saved: readonly { readonly producer: number; readonly steps: readonly Step[] }[];
}

/** The charges while the program is walked. */
interface Ledger extends Charges {
  readonly moves: Move[];
  readonly copyBytes: Map<number, number>;
  readonly saved: { readonly producer: number; readonly steps: readonly Step[] }[];
}

export function chargedProgram(program: SolvedProgram): Charges {
  const { model, choice, units, repeated, system, table } = program;
  const ledger = emptyLedger(model.graph.nodes.length, units.count);
  const { compute, communication } = ledger;
  model.graph.nodes.forEach((_, n) => {
    const entry = model.strategies.nodes[n];
    if (entry === null) return;
    const seconds = model.nodeSeconds.get(entry.content);
    const s = choice[model.nodeVariable[n]];
    compute[n] = seconds?.compute[s] ?? 0;
    communication[n] = seconds?.internal[s] ?? 0;
  });
  if (system !== undefined) chargeKernels(program, system, ledger);
  // Kernels of grouped queries read keys as they are: the copies that the program writes cost
  // what they cost other plans, for the rows of a rank.
  const cp = model.space.mesh.names.indexOf('cp');
  for (const n of repeated) compute[n] /= model.space.mesh.sizes[cp];
  const gathers = new NarrowGathers(model, units, table, system);
  for (const use of inOrder(model.uses))
    if (!isRoutedUse(program, use)) chargeUse(program, use, gathers, ledger);
  return ledger;
}

function emptyLedger(nodes: number, units: number): Ledger {
  return {
    compute: new Float64Array(nodes),
    kernels: new Float64Array(nodes),
    communication: new Float64Array(nodes),
    contextSeconds: new Float64Array(nodes),
    tensorParts: new Float64Array(nodes),
    stepSeconds: new Float64Array(units),
    relaidSeconds: new Float64Array(units),
    moves: [],
    copyBytes: new Map(),
    saved: [],
  };
}

/** Prices every call as a kernel of the software, or its share of one. */
function chargeKernels(program: SolvedProgram, system: StepSystem, ledger: Ledger): void {
  const { model, choice, table, units, routes, routed } = program;
  const { graph, flow, strategies, space, nodeVariable } = model;
  const isRouted = (n: number): boolean => routed?.isRouted[n] === true;
  const bytesOf = (n: number): number =>
    isRouted(n)
      ? valueBytes(graph.nodes[n].type) / space.mesh.size
      : flow.results[n].reduce(
          (most, v) => (v < 0 ? most : Math.max(most, localBytes(model, v, routes.owned(v)))),
          0,
        );
  const contextOf = (n: number): TypedContext | undefined => {
    const entry = strategies.nodes[n];
    return entry?.call === undefined ? undefined : localCall(entry, choice[nodeVariable[n]], space);
  };
  const made = programKernels({ graph, units, table, bytesOf, contextOf }, system);
  ledger.compute.set(made.seconds);
  ledger.kernels.set(made.kernels);
  graph.nodes.forEach((_, n) => {
    if (isRouted(n)) ledger.compute[n] = ledger.kernels[n] = ledger.communication[n] = 0;
  });
}

/** Tells whether a use is inside a routed block, or between one and what is around it. */
function isRoutedUse({ model, units, routed }: SolvedProgram, { value, at }: Use): boolean {
  if (routed === undefined) return false;
  const { node } = model.flow.values[value];
  return (
    routed.isRouted[node] ||
    (at.kind === 'input' && routed.isRouted[at.node]) ||
    routed.parameters.has(units.root[node])
  );
}

/** Shared copies are made by the first use in program order. */
function inOrder(uses: readonly Use[]): Use[] {
  const at = (use: Use): number =>
    use.at.kind === 'input' ? use.at.node : Number.MAX_SAFE_INTEGER;
  return uses
    .map((use, i) => ({ use, i }))
    .sort((a, b) => at(a.use) - at(b.use) || a.i - b.i)
    .map(({ use }) => use);
}

/** Charges the redistributions of one use. */
function chargeUse(program: SolvedProgram, use: Use, gathers: NarrowGathers, ledger: Ledger): void {
  const { model, routes, table, units, statesApart } = program;
  const { flow, redistributor } = model;
  const type = movedType(flow.values[use.value]);
  const steps: Step[] = [];
  const hops = routes.of(use);
  const kept = hops.some((hop) => hop.kept === true);
  for (const { from, to, copy } of hops) {
    if (copy === 'reused') continue;
    const plan = redistributor.plan(type, from, to);
    if (plan === undefined) throw internalError('a chosen redistribution is refused');
    for (const step of plan.steps) steps.push(gathers.stepOf(use, step));
  }
  const exchanged =
    steps.some((s) => s.kind === 'all_to_all') && isSavedAsTaken(model, routes, table, use);
  const producer = flow.values[use.value].node;
  if (exchanged) ledger.saved.push({ producer, steps: steps.splice(0) });
  const node = use.at.kind === 'input' ? use.at.node : producer;
  const kind: Move['kind'] =
    units.weight[producer] === 1 ? 'weight' : isGradient(program, use) ? 'gradient' : 'activation';
  ledger.moves.push({ use, kind, node, steps, kept });
  const [copied] = hops;
  if (kept && kind === 'activation')
    ledger.copyBytes.set(use.value, localBytes(model, use.value, copied.to));
  const charged =
    statesApart && kind !== 'activation'
      ? steps.filter((step) => !COLLECTIVES.has(step.kind))
      : steps;
  chargeSteps(program, { use, kind, node, steps: charged }, ledger);
}

/** Charges the steps of a move to its call, or to the step of its unit. */
function chargeSteps(
  { model, units }: SolvedProgram,
  { use, kind, node, steps }: Pick<Move, 'use' | 'kind' | 'node' | 'steps'>,
  ledger: Ledger,
): void {
  const seconds = steps.reduce((sum, step) => sum + step.seconds, 0);
  // Parameters on the model dims are used as stored, or sliced for nothing; what does move is
  // paid with the call.
  if (kind === 'gradient' || (kind === 'weight' && use.at.kind !== 'input')) {
    ledger.stepSeconds[units.unit[node]] += seconds;
    // Sums are priced together with those over data ranks (`CoreParameter.pending`).
    for (const step of steps)
      if (step.kind === 'all_to_all' || step.kind === 'all_gather')
        ledger.relaidSeconds[units.unit[node]] += step.seconds;
    return;
  }
  ledger.communication[node] += seconds;
  const { names } = model.space.mesh;
  for (const step of steps) {
    const over = (name: string): boolean => step.meshDims.every((d) => names[d] === name);
    if (PARTS.has(step.kind) && over('tp')) ledger.tensorParts[node] += step.seconds;
    if (COLLECTIVES.has(step.kind)) ledger.kernels[node]++;
    if (!COLLECTIVES.has(step.kind) || !over('cp')) continue;
    ledger.contextSeconds[node] += step.seconds;
  }
}

/** Tells whether a use moves the gradient of a parameter on its way out. */
function isGradient({ model, gradientOf }: SolvedProgram, { at, value }: Use): boolean {
  if (gradientOf[value] < 0) return false;
  if (at.kind !== 'input') return true;
  return model.flow.results[at.node].some((v) => v >= 0 && gradientOf[v] >= 0);
}
