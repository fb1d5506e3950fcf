/**
 * Takes the solved program of one data rank and gives seconds, saved bytes and parameters by
 * pipeline unit.
 */

import { keptScoreBytes, type StepSystem } from '../../cost/kernels/call.ts';
import type { Optimizer } from '../../cost/memory/state-bytes.ts';
import { internalError } from '../../errors.ts';
import { roleName } from '../../graph/nodes.ts';
import { DTYPE_BYTES } from '../../graph/types.ts';
import { isPartialCode } from '../../mesh/sharding/space.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { Routes } from '../../plan/choice/routes.ts';
import type { Model } from '../../plan/model/model.ts';
import { localCall } from '../../plan/model/node-costs.ts';
import { type Checkpoint, modulesOf, POLICIES, programPart } from '../checkpoints.ts';
import {
  type ByCheckpoint,
  type ContextPass,
  type CoreParameter,
  type CoreTraffic,
  type CoreUnit,
  type DataExtra,
  type PassSeconds,
} from '../units.ts';
import { chargedProgram, type Charges } from './charged-program.ts';
import { freeCopies } from './free-copies.ts';
import { gradientRoots } from './gradient-roots.ts';
import { type GraphUnits, graphUnits, type PassOf } from './graph-units.ts';
import { localBytes, PendingSums } from './moves/pending-sums.ts';
import { dataExtras, unitTraffic } from './moves/plan-collectives.ts';
import { coreParameters } from './parameters.ts';
import { planStates, type StagedStates } from './plan-states.ts';
import type { RoutedPart } from './routed-part.ts';
import { type GatheredRepeats, gatheredRepeats, groupedRepeats } from './saved/key-values.ts';
import { priceModuleSets } from './saved/layer-modules.ts';
import { type LossValues, lossValues } from './saved/loss-values.ts';
import { fusedCalls } from './saved/made-again.ts';
import { keptByUnit, narrowSaves, recomputedCalls } from './saved/saved-activations.ts';
import { temporaryBytes } from './saved/temporaries.ts';

/** The pass that recomputes, by unit, and what is then kept. */
interface SecondRun {
  readonly again: readonly PassSeconds[];
  readonly bytes: Float64Array;
}

/** How a program is read. */
interface ReaderOptions {
  /** The machine and the software that kernels are priced for; absent: as the plan prices calls. */
  readonly system?: StepSystem | undefined;
  /**
   * True if parameters that are gathered and gradients that are summed are states of the units
   * (`PlanReader.states`), not paid with the calls that they move for. Default false.
   */
  readonly statesApart?: boolean;
  /** True if such a program is also priced with what trainers recompute. Default false. */
  readonly recomputes?: boolean;
  /** Routed blocks, which are priced apart: their calls, values and parameters count nothing. */
  readonly routed?: RoutedPart | undefined;
}

/** Reads the parts of a plan of one data rank: seconds, bytes and parameters by unit. */
export class PlanReader {
  private readonly statesApart: boolean;
  private readonly recomputes: boolean;
  private readonly system: StepSystem | undefined;
  private readonly routed: RoutedPart | undefined;
  readonly graphUnits: GraphUnits;
  private readonly routes: Routes;
  private readonly charges: Charges;
  /** Parameter (node) whose gradient a value is, from where only views follow. */
  private readonly gradientOf: Int32Array;
  private readonly pendingSums: PendingSums;
  private readonly repeats: readonly GatheredRepeats[];
  /** Their calls: what they make is not kept, and made again in the backward pass. */
  private readonly repeated: ReadonlySet<number>;
  /** Other keys and values that the software does not keep repeated. */
  private readonly unkeptRepeats: readonly GatheredRepeats[];

  constructor(
    private readonly model: Model,
    private readonly choice: Int32Array,
    layers: number,
    private readonly table: OperatorTable,
    { system, statesApart = false, recomputes = false, routed }: ReaderOptions = {},
  ) {
    this.statesApart = statesApart;
    this.recomputes = recomputes;
    this.system = system;
    this.routed = routed;
    const free = system === undefined ? undefined : freeCopies(model, choice, table);
    this.graphUnits = graphUnits(model.graph, model.flow.phases, layers, table, free);
    this.routes = new Routes(model, choice);
    this.gradientOf = gradientRoots(model, table);
    this.repeats = gatheredRepeats(model, this.routes);
    this.repeated = new Set(this.repeats.flatMap((r) => r.nodes));
    this.unkeptRepeats =
      system?.software.memory?.groupedKeys === true ? groupedRepeats(model, this.repeated) : [];
    this.charges = chargedProgram({
      ...{ model, choice, table, system, statesApart, routed },
      ...{ units: this.graphUnits, routes: this.routes },
      ...{ gradientOf: this.gradientOf, repeated: this.repeated },
    });
    this.pendingSums = new PendingSums(model, this.routes, this.graphUnits, this.charges.moves);
  }

  /** Seconds of each unit that a step has once, whatever its microbatches. */
  get stepSeconds(): Float64Array {
    return this.charges.stepSeconds;
  }

  private isRouted(n: number): boolean {
    return this.routed?.isRouted[n] === true;
  }

  /** Tells whether what a node makes is a parameter or the gradient of one. */
  private isState(n: number): boolean {
    if (this.graphUnits.weight[n] === 1) return true;
    return this.model.flow.results[n].some((v) => v >= 0 && this.gradientOf[v] >= 0);
  }

  /** @param asked also priced with this recomputed */
  units(asked: Checkpoint = 'none'): CoreUnit[] {
    const { graphUnits } = this;
    const { pass, count } = graphUnits;
    const { logitBytes } = this.system?.software.memory ?? {};
    const loss = logitBytes === undefined ? undefined : lossValues(this.model.graph, this.table);
    const keptUnder = this.kept(loss);
    const kept = keptUnder('none');
    const temporary = temporaryBytes(this.model, this.choice, {
      units: graphUnits,
      kept: kept.nodes,
      repeats: [...this.repeats, ...this.unkeptRepeats],
      moved: (n) =>
        this.isRouted(n) || loss?.nodes.has(n) === true || (this.statesApart && this.isState(n)),
    });
    if (loss !== undefined && logitBytes !== undefined)
      temporary[graphUnits.unit[loss.logits]] += logitBytes * this.localElements(loss.logits);
    const boundary = this.boundaries();
    const of = (which: PassOf): PassSeconds[] => this.sums((n) => pass[n] === which);
    const [forward, weight] = [of('forward'), of('weight')];
    const input = this.sums((n) => pass[n] === 'input' || this.repeated.has(n));
    const byPolicy = this.secondRuns(asked, (policy) => keptUnder(policy).bytes);
    const record = <T>(get: (run: SecondRun) => T): ByCheckpoint<T> =>
      Object.fromEntries([...byPolicy].map(([policy, run]) => [policy, get(run)]));
    const context = this.contexts([...byPolicy.keys()]);
    return Array.from({ length: count }, (_, u): CoreUnit => ({
      forward: forward[u],
      backwardInput: input[u],
      backwardWeight: weight[u],
      again: record((run) => run.again[u]),
      keptBytes: record((run) => run.bytes[u]),
      temporaryBytes: temporary[u],
      boundaryBytes: boundary[u],
      stepSeconds: this.charges.relaidSeconds[u],
      ...context(u),
    }));
  }

  /** Elements of what a call makes, on a device. */
  private localElements(n: number): number {
    const { flow, graph } = this.model;
    const { type } = graph.nodes[n];
    if (type.kind !== 'tensor') throw internalError(`'${graph.nodes[n].name}' is not a tensor`);
    return this.valueBytes(flow.results[n][0]) / DTYPE_BYTES[type.dtype];
  }

  /**
   * The results that each unit keeps, by the policy of recomputation.
   *
   * @param loss values that the loss keeps in another form
   */
  private kept(loss?: LossValues): (policy: Checkpoint) => ReturnType<typeof keptByUnit> {
    const { graphUnits, table } = this;
    const { graph } = this.model;
    const software = this.system?.software;
    const narrow = narrowSaves(graph, graphUnits, table, software);
    const fused = fusedCalls(graph, graphUnits, table, software);
    return (policy) =>
      keptByUnit(graph, graphUnits, this.notKept(policy), (n) => this.bytes(n, policy), {
        counts: (n) => loss?.nodes.has(n) !== true && !this.isRouted(n),
        reads: (n) => !this.isRouted(n),
        narrow,
        fused,
      });
  }

  /** The policies, the sets of modules that are worth recomputing, and what is asked for. */
  private secondRuns(
    asked: Checkpoint,
    keptBytes: (policy: Checkpoint) => Float64Array,
  ): ReadonlyMap<Checkpoint, SecondRun> {
    const byPolicy = new Map<Checkpoint, SecondRun>();
    const priced = (policy: Checkpoint): SecondRun => {
      let found = byPolicy.get(policy);
      if (found === undefined)
        byPolicy.set(
          policy,
          (found = { again: this.secondPass(policy), bytes: keptBytes(policy) }),
        );
      return found;
    };
    const { bytes: whole } = priced('none');
    // A program that is planned has what it recomputes among its calls, unless the trainer does it.
    if (this.statesApart && !this.recomputes) return byPolicy;
    for (const policy of POLICIES) priced(policy);
    priceModuleSets((set) => {
      const { again, bytes } = priced(set);
      return {
        seconds: again.reduce((sum, p) => sum + p.compute + p.communication, 0),
        savedBytes: whole.reduce((sum, b, u) => sum + b - bytes[u], 0),
      };
    });
    priced(programPart(asked));
    return byPolicy;
  }

  /** The calls that run again under a policy, by unit. */
  private secondPass(policy: Checkpoint): PassSeconds[] {
    const { graph } = this.model;
    const { unit } = this.graphUnits;
    const names = this.recomputedNames(policy);
    const made = this.pendingSums.madeBefore(names);
    const exchanges = (u: number): number =>
      this.charges.saved
        .filter(({ producer: n }) => unit[n] === u && names.has(graph.nodes[n].name))
        .reduce((total, { steps }) => total + steps.reduce((t, step) => t + step.seconds, 0), 0);
    return this.sums((n) => names.has(graph.nodes[n].name)).map((s, u) => ({
      ...s,
      // Values that are recomputed without the attention that read them are exchanged again.
      communication:
        s.communication - made.seconds[u] + (this.isAttentionAgain(names) ? 0 : exchanges(u)),
      tensorParts: s.tensorParts - made.tensorParts[u],
    }));
  }

  /** Seconds and kernels of some calls, by unit. */
  private sums(accepts: (n: number) => boolean): PassSeconds[] {
    const { unit, count } = this.graphUnits;
    const out = Array.from({ length: count }, () => ({
      compute: 0,
      communication: 0,
      products: 0,
      tensorParts: 0,
      kernels: 0,
    }));
    this.model.graph.nodes.forEach((node, n) => {
      if (!accepts(n)) return;
      out[unit[n]].compute += this.charges.compute[n];
      out[unit[n]].communication += this.charges.communication[n];
      out[unit[n]].kernels += this.charges.kernels[n];
      out[unit[n]].tensorParts += this.charges.tensorParts[n];
      if (this.table.get(node.target)?.cls === 'matmul')
        out[unit[n]].products += this.charges.compute[n];
    });
    return out;
  }

  private isAttentionAgain(names: ReadonlySet<string>): boolean {
    return this.model.graph.nodes.some(
      (n) => names.has(n.name) && this.table.get(n.target)?.cls === 'attention',
    );
  }

  /** The work of each layer over `cp`. */
  private contexts(policies: readonly Checkpoint[]): (unit: number) => Pick<CoreUnit, 'context'> {
    const { graph, space } = this.model;
    const { unit, pass, count } = this.graphUnits;
    if (!space.mesh.names.includes('cp')) return () => ({});
    const again = policies.map((policy) => [policy, this.recomputedNames(policy)] as const);
    const isAttention = (n: number): boolean =>
      this.table.get(graph.nodes[n].target)?.cls === 'attention';
    return (u) => {
      if (u === 0 || u === count - 1) return {};
      const own = [...unit.keys()].filter((n) => unit[n] === u);
      const sum = (accepts: (n: number) => boolean): ContextPass => {
        const list = own.filter(accepts);
        const add = (of: (n: number) => number): number =>
          list.reduce((total, n) => total + of(n), 0);
        return {
          seconds: add((n) => this.charges.contextSeconds[n]),
          attentionSeconds: add((n) => (isAttention(n) ? this.charges.compute[n] : 0)),
        };
      };
      const forward = sum((n) => pass[n] === 'forward');
      const backward = sum((n) => pass[n] !== 'forward' || this.repeated.has(n));
      return {
        context: {
          forward,
          backward,
          again: Object.fromEntries(
            again.map(([policy, names]) => [policy, sum((n) => names.has(graph.nodes[n].name))]),
          ),
        },
      };
    };
  }

  /**
   * Calls that are recomputed for what is not kept; repeats for the gradient of attention are part
   * of the backward pass.
   */
  private recomputedNames(policy: Checkpoint): Set<string> {
    const names = new Set(recomputedCalls(policy, this.model.graph, this.table));
    if (policy !== 'full') for (const name of this.repeatedNames()) names.delete(name);
    return names;
  }

  private notKept(policy: Checkpoint): Set<string> {
    const { graph } = this.model;
    const names = new Set([...recomputedCalls(policy, graph, this.table), ...this.repeatedNames()]);
    for (const { nodes } of this.unkeptRepeats)
      for (const n of nodes) names.add(graph.nodes[n].name);
    // The result of attention is kept where attention alone is recomputed, because the projection
    // after it reads it.
    if (modulesOf(policy).includes('core_attn'))
      for (const n of graph.nodes)
        if (this.table.get(n.target)?.cls === 'attention') names.delete(n.name);
    return names;
  }

  private repeatedNames(): string[] {
    return [...this.repeated].map((n) => this.model.graph.nodes[n].name);
  }

  /** Bytes of the results of a node on a device, as they are kept. */
  private bytes(n: number, policy: Checkpoint): number {
    const { flow, graph } = this.model;
    const isAttention = this.table.get(graph.nodes[n].target)?.cls === 'attention';
    const isAgain = isAttention && modulesOf(policy).includes('core_attn');
    const results = isAgain ? flow.results[n].slice(0, 1) : flow.results[n];
    const bytes = [...results].reduce(
      (sum, v) =>
        v < 0 ? sum : sum + (this.charges.copyBytes.get(v) ?? this.pendingSums.keptBytes(v)),
      0,
    );
    return bytes + (isAttention && !isAgain ? this.scoreBytes(n) : 0);
  }

  private scoreBytes(n: number): number {
    const { strategies, nodeVariable, space } = this.model;
    const entry = strategies.nodes[n];
    if (this.system === undefined || entry?.call === undefined) return 0;
    const call = localCall(entry, this.choice[nodeVariable[n]], space);
    return call === undefined ? 0 : keptScoreBytes(call, this.system.software);
  }

  private valueBytes(value: number): number {
    return localBytes(this.model, value, this.routes.owned(value));
  }

  /** Bytes of the largest activation that each unit hands to the next in the forward pass. */
  private boundaries(): Float64Array {
    const { model, graphUnits } = this;
    const { unit, pass, weight } = graphUnits;
    const out = new Float64Array(graphUnits.count);
    const depends = new Uint8Array(model.flow.values.length);
    model.graph.nodes.forEach((node, n) => {
      const isParameter = node.kind === 'placeholder' && node.meta.role === 'parameter';
      const from = isParameter || [...model.flow.inputs[n]].some((v) => depends[v] === 1);
      for (const v of model.flow.results[n]) if (v >= 0) depends[v] = Number(from);
      if (node.kind !== 'call' || pass[n] !== 'forward') return;
      for (const v of model.flow.inputs[n]) {
        const producer = model.flow.values[v].node;
        if (depends[v] === 0 || weight[producer] === 1 || unit[producer] >= unit[n]) continue;
        out[unit[producer]] = Math.max(out[unit[producer]], this.valueBytes(v));
      }
    });
    return out;
  }

  parameters(): CoreParameter[] {
    return coreParameters(
      this.model,
      this.choice,
      this.graphUnits,
      this.charges.moves,
      this.pending(),
    );
  }

  /** Model dims over which each parameter's gradient is pending where it is made. */
  private pending(): Map<number, string[]> {
    const { space } = this.model;
    const out = new Map<number, string[]>();
    for (const { use } of this.charges.moves) {
      const parameter = this.gradientOf[use.value];
      if (parameter < 0) continue;
      const from = this.routes.owned(use.value);
      const dims = space.mesh.dims.flatMap(({ name, size }, d) =>
        size > 1 && isPartialCode(space.kindAt(from, d)) ? [name] : [],
      );
      const known = out.get(parameter) ?? [];
      out.set(parameter, [...new Set([...known, ...dims])]);
    }
    return out;
  }

  /**
   * The states of all units, as the plan places them and moves them.
   *
   * @param pipeline absent: one stage
   */
  states(
    optimizer?: Optimizer,
    pipeline?: Omit<StagedStates, 'ends'>,
  ): ReturnType<typeof planStates> {
    const { model, choice, routes, graphUnits: units, gradientOf } = this;
    const { moves } = this.charges;
    const staged = pipeline === undefined ? undefined : { ...pipeline, ends: this.ends() };
    return planStates({
      model,
      choice,
      routes,
      units,
      moves,
      software: this.system?.software,
      optimizer,
      gradientOf,
      staged,
      apart: this.routed?.parameters,
    });
  }

  /** The two units of each parameter that several use, such as a tied table. */
  private ends(): ReadonlyMap<number, readonly [number, number]> {
    const nodes = new Map(this.model.graph.nodes.map((node, n) => [roleName(node), n]));
    return new Map(
      this.parameters().flatMap(({ name, unit, alsoUnit }) => {
        const n = nodes.get(name);
        return alsoUnit === undefined || n === undefined ? [] : [[n, [unit, alsoUnit]] as const];
      }),
    );
  }

  traffic(): CoreTraffic[] {
    return unitTraffic(this.model, this.graphUnits, this.charges.moves, this.repeated);
  }

  extras(): DataExtra[] {
    return dataExtras(this.model, this.choice, this.graphUnits, this.charges.moves);
  }
}
