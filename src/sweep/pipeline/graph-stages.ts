/**
 * Plans a captured training graph, which is the program of one microbatch, on pipeline stages. The
 * parts between the narrow points of its forward pass are planned one by one, equal ones once;
 * their prices decide where it is cut. Each stage is then planned as one problem on the mesh of a
 * stage, and the schedule is played with the seconds of those plans.
 */

import { usableMemoryBytes } from '../../cost/hardware/cluster.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import { ShardwrightError } from '../../errors.ts';
import { roleName } from '../../graph/nodes.ts';
import type { Graph } from '../../graph/types.ts';
import { itemAt } from '../../item-at.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { CutPoint } from '../../passes/stages/cut-points.ts';
import { cuttable, type StagedGraph } from '../../passes/stages/split.ts';
import { type Unnamed, unnamed } from '../../passes/stages/unnamed.ts';
import type { Infeasible, LeastCostResult, PlannedResult } from '../../plan/choice/result.ts';
import { leastCostPlan } from '../../plan/least-cost-plan.ts';
import type { Plan } from '../../plan/record/types.ts';
import type { Deadline } from '../../plan/request/deadline.ts';
import type { Pin, PlanRequest } from '../../plan/request/request.ts';
import { passOrder } from '../../simulate/pipeline/schedules.ts';
import { countedText } from '../../units.ts';
import {
  checkPins,
  endsOfPlan,
  pinsOfSends,
  pinsOfStage,
  pinsWithin,
  type StageEnds,
} from './boundaries.ts';
import { cutUnits, type PricedUnits, total } from './plan.ts';
import { type PartPrices, partPrices, playedStages, unitsOfParts } from './priced-part.ts';
import type { PlanPipelineRequest } from './request.ts';

/** One stage of a captured graph. */
export interface PlannedStage {
  /** The first and the last forward call. */
  readonly calls: readonly [first: string, last: string];
  /** Parts between narrow points that it has. */
  readonly parts: number;
  /** Parameter tensors. */
  readonly parameters: number;
  /** Seconds of one microbatch, forward and backward, under the plan of the stage. */
  readonly seconds: number;
  readonly peakBytes: number;
  /** Microbatches (of a chunk) that the device keeps. */
  readonly inFlight: number;
  /** Share of the step that the device waits, 0..1. */
  readonly idleShare: number;
  /** Bytes that each device sends to the next stage for one microbatch. */
  readonly sendBytes: number;
  /** Bytes of gradients that each device sends back to the stage in front for one microbatch. */
  readonly sendBackBytes: number;
  /** The proof of the plan of the stage, on its mesh. */
  readonly proof: Pick<Plan['proof'], 'status' | 'bound' | 'gap' | 'solver'>;
  /** The first stage whose program is the same. */
  readonly sameAs: number;
}

/** A captured graph on pipeline stages. */
export interface GraphPipeline {
  readonly schedule: PlanPipelineRequest['schedule'];
  readonly microbatches: number;
  readonly virtual: number;
  /** By chunk * devices + device. */
  readonly stages: readonly PlannedStage[];
  /** Points at which the graph could be cut, and those at which it is: the calls behind them. */
  readonly cutPoints: number;
  readonly cuts: readonly string[];
  /** Programs that were planned: equal ones once. */
  readonly planned: number;
  /** Parameters that several stages hold, with those stages. */
  readonly shared: StagedGraph['shared'];
  /** Values that stages send on without reading them, with those stages. */
  readonly carried: StagedGraph['carried'];
  readonly bubbleSeconds: number;
  readonly seconds: number;
  readonly budgetBytes: number;
  readonly fits: boolean;
  readonly moved: readonly string[];
}

/** The stages with their programs, for writing. */
export interface GraphStages {
  readonly pipeline: GraphPipeline;
  readonly staged: StagedGraph;
  /**
   * The request of each stage, with the pins that make it keep to what its neighbours send and
   * receive.
   */
  readonly requests: readonly PlanRequest[];
  /** The plan of each stage; its nodes have other names than those of the program. */
  readonly plans: readonly Plan[];
}

/** A part of the program that has no plan on the mesh of a stage. */
export interface InfeasiblePart {
  readonly infeasible: Infeasible;
  /** The part in words. */
  readonly part: string;
}

/** Ends the planning of the parts; it does not leave this file. */
class NoPlan extends Error {
  constructor(readonly found: InfeasiblePart) {
    super(found.part);
  }
}

/** A part of the program with the figures of its plan. */
interface PricedPart extends PartPrices {
  readonly ends: StageEnds;
  readonly plan: Plan;
  readonly text: string;
}

/**
 * @param request on the mesh of a stage; its budget is that of a device
 * @throws E_USAGE for more stages than the graph has cut points for, with the most that work, and
 *   for what the schedule does not admit
 */
export async function planGraphStages(
  graph: Graph,
  request: PlanRequest,
  asked: AskedStages,
  run: StagesRun,
): Promise<GraphStages | InfeasiblePart> {
  try {
    return await planned(graph, request, asked, run);
  } catch (error) {
    if (error instanceof NoPlan) return error.found;
    throw error;
  }
}

type AskedStages = Omit<PlanPipelineRequest, 'budgetBytes'>;

interface StagesRun {
  readonly table: OperatorTable;
  readonly deadline: Deadline;
}

async function planned(
  graph: Graph,
  request: PlanRequest,
  asked: AskedStages,
  { table, deadline }: StagesRun,
): Promise<GraphStages> {
  const { devices, schedule, microbatches, virtual } = asked;
  passOrder(schedule, { devices, microbatches, ...(virtual > 1 ? { chunks: virtual } : {}) });
  const { points, cut } = cuttable(graph, table);
  checkCount(graph, points, devices * virtual);
  checkPins(request.pins, graph);
  const budgetBytes = usableMemoryBytes(loadCluster(request.cluster), request);
  const planner = new PartPlanner(request, asked, table, deadline);
  const whole = { ...asked, budgetBytes };
  const parts = await planner.price(cut(points));
  const { bounds, moved } = cutUnits(planner.unitsOf(parts), whole);
  const cuts = bounds.slice(1, -1).map((first) => itemAt(points, first - 1));
  const staged = cut(cuts);
  const priced = await planner.agree(staged, whole);
  const played = playedStages(planner.unitsOf(priced), whole);
  return {
    staged,
    plans: priced.map(({ plan }) => plan),
    requests: staged.stages.map(({ graph: stage }, s) => ({
      ...ofMicrobatch(request, stage, microbatches),
      pins: [...pinsOfNodes(request, stage), ...writtenPins(staged, priced, s)],
    })),
    pipeline: {
      schedule,
      microbatches,
      virtual,
      ...played,
      stages: played.stages.map((stage, k) => ({
        ...stageOf(staged, priced, bounds, k, cuts[k - 1]?.before),
        ...stage,
      })),
      cutPoints: points.length,
      cuts: cuts.map(({ before }) => before),
      planned: planner.count,
      shared: staged.shared,
      carried: staged.carried,
      budgetBytes,
      moved,
    },
  };
}

/**
 * The pins with which stage `s` is planned again to be written: as it was priced, and with the
 * gradients that it receives as they were placed then.
 */
function writtenPins(staged: StagedGraph, priced: readonly PricedPart[], s: number): Pin[] {
  const ends = priced.slice(0, s + 1).map((part) => part.ends);
  const { receivedBack } = itemAt(ends, s);
  return [
    ...pinsOfStage(staged, s, ends.slice(0, s)),
    ...Array.from(receivedBack, ([node, spec]) => ({ node, spec })),
  ];
}

/** The request of a stage: its gradients are reduced once, after the last microbatch. */
function ofMicrobatch(request: PlanRequest, stage: Graph, microbatches: number): PlanRequest {
  return microbatches > 1 && hasGradients(stage)
    ? { ...request, accumulate: microbatches }
    : request;
}

function hasGradients({ outputs }: Graph): boolean {
  return outputs.some(({ role, value }) => role === 'grad' && value !== null);
}

/** The pins of the user that are about a stage. */
function pinsOfNodes({ pins }: PlanRequest, { nodes }: Graph): readonly Pin[] {
  const known = new Set(nodes.flatMap((node) => [node.name, roleName(node)]));
  return pins.filter(({ node }) => known.has(node));
}

/** @throws E_USAGE naming the most stages that work, and the loop that is not cut */
function checkCount(graph: Graph, points: readonly CutPoint[], stages: number): void {
  if (!hasGradients(graph))
    throw new ShardwrightError('E_USAGE', 'a pipeline runs a training step', {
      hint: 'give a graph with its backward pass; this one returns no gradients.',
    });
  if (points.length + 1 >= stages) return;
  const loop = graph.nodes.find(({ target }) => LOOPS.has(target));
  const why = loop === undefined ? '' : `; ${loop.name} (${loop.target}) is one call, never cut`;
  throw new ShardwrightError(
    'E_USAGE',
    `${countedText(points.length, 'cut point')} cannot make ${stages} pipeline stages${why}`,
    { hint: `use at most ${countedText(points.length + 1, 'stage')}, chunks counted.` },
  );
}

const LOOPS: ReadonlySet<string> = new Set(['scan', 'while_loop', 'map', 'map_impl', 'local_map']);

/** The first and the last forward call that is not made for the backward pass alone. */
function endsOf({ nodes }: Graph): [string, string] {
  const calls = nodes.filter(
    ({ kind, meta }) => kind === 'call' && meta.phase === 'forward' && meta.savedOnly !== true,
  );
  return [calls.at(0)?.name ?? '', calls.at(-1)?.name ?? ''];
}

/** The facts of stage `k` that its program has, whatever the schedule. */
function stageOf(
  { stages }: StagedGraph,
  priced: readonly PricedPart[],
  bounds: readonly number[],
  k: number,
  first: string | undefined,
): Omit<PlannedStage, 'peakBytes' | 'inFlight' | 'idleShare'> {
  const { graph } = itemAt(stages, k);
  const { plan, text, seconds, unit, sendBackBytes } = itemAt(priced, k);
  // What a stage makes for itself, such as a mask, may come before the call that it begins with.
  const [own, last] = endsOf(graph);
  const { status, bound, gap, solver } = plan.proof;
  return {
    calls: [first ?? own, last],
    parts: itemAt(bounds, k + 1) - itemAt(bounds, k),
    parameters: graph.nodes.filter(({ meta }) => meta.role === 'parameter').length,
    seconds: total(seconds),
    sendBytes: unit.boundaryBytes,
    sendBackBytes,
    proof: { status, bound, gap, solver },
    sameAs: priced.findIndex((other) => other.text === text),
  };
}

/** Plans the parts of a program on the mesh of a stage, equal ones once. */
class PartPlanner {
  private readonly known = new Map<string, PlannedResult>();

  constructor(
    private readonly request: PlanRequest,
    private readonly asked: Pick<AskedStages, 'devices' | 'microbatches'>,
    private readonly table: OperatorTable,
    private readonly deadline: Deadline,
  ) {}

  /** Programs that were planned. */
  get count(): number {
    return this.known.size;
  }

  /** Plans parts that follow each other; each keeps to the placements that the one in front has. */
  async price(staged: StagedGraph): Promise<PricedPart[]> {
    const priced: PricedPart[] = [];
    for (const s of staged.stages.keys()) {
      const pins = pinsOfStage(
        staged,
        s,
        priced.map(({ ends }) => ends),
      );
      priced.push(await this.priceOne(staged, s, pins));
    }
    return priced;
  }

  /**
   * The same for stages. What a stage sends leaves as it wants, or as the stage behind would have
   * it: whichever makes the shorter step, messages included.
   */
  async agree(staged: StagedGraph, request: PlanPipelineRequest): Promise<PricedPart[]> {
    const { stages } = staged;
    const free: PricedPart[] = [];
    for (const s of stages.keys()) free.push(await this.priceOne(staged, s, []));
    const priced: PricedPart[] = [];
    for (const [s, stage] of stages.entries()) {
      const before = priced.map(({ ends }) => ends);
      const pins = pinsOfStage(staged, s, before);
      const wanted = pinsOfSends(stage, free[s + 1]?.ends.received ?? new Map());
      const own = await this.priceOne(staged, s, pins);
      if (wanted.length === 0) {
        priced.push(own);
        continue;
      }
      const other = await this.priceOne(staged, s, [...pins, ...wanted]);
      const seconds = async (part: PricedPart): Promise<number> => {
        const then = pinsOfStage(staged, s + 1, [...before, part.ends]);
        const next = await this.priceOne(staged, s + 1, then);
        const row = [...priced, part, next, ...free.slice(s + 2)];
        return playedStages(this.unitsOf(row), request).seconds;
      };
      priced.push((await seconds(other)) < (await seconds(own)) ? other : own);
    }
    return priced;
  }

  private async priceOne(
    { stages, shared }: StagedGraph,
    s: number,
    agreed: readonly Pin[],
  ): Promise<PricedPart> {
    const stage = itemAt(stages, s);
    const anonymous = unnamed(stage.graph);
    const { roles } = anonymous;
    const pins = pinsWithin([...this.request.pins, ...agreed], stage.graph, anonymous);
    const text = `${anonymous.text}${pins.map(({ node, spec }) => `\n${node}=${spec}`).join('')}`;
    const known = this.known.get(text) ?? (await this.plan(anonymous, stage.graph, pins));
    this.known.set(text, known);
    const { sends, sendsBack } = stage;
    const nameOf = (parameter: string): string | undefined => roles.get(parameter);
    const part = { s, sends, sendsBack, shared, nameOf, devices: this.asked.devices };
    const { plan } = known;
    return {
      ...partPrices(known, part, this.table),
      ends: endsOfPlan(stage, anonymous, plan),
      plan,
      text,
    };
  }

  private async plan(
    { graph }: Unnamed,
    stage: Graph,
    pins: readonly Pin[],
  ): Promise<PlannedResult> {
    const { table, deadline } = this;
    const request = { ...ofMicrobatch(this.request, graph, this.asked.microbatches), pins };
    const result: LeastCostResult = await leastCostPlan(graph, request, { table, deadline });
    if (result.status === 'planned') return result;
    const [first, last] = endsOf(stage);
    throw new NoPlan({ infeasible: result, part: `the part from ${first} to ${last}` });
  }

  /** The parts with what a message between them takes. */
  unitsOf(parts: readonly PricedPart[]): PricedUnits {
    const { mesh, cluster } = this.request;
    const { cost } = itemAt(parts, 0).plan.request;
    return unitsOfParts(parts, { mesh, cluster, cost }, this.asked.devices);
  }
}
