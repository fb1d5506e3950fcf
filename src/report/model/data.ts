/**
 * Takes a plan and its analysis and gives the `Report`: every number and text that the formats
 * print.
 */

import { checkKinds } from '../../arguments.ts';
import type { Cluster } from '../../cost/hardware/cluster.ts';
import type { Graph } from '../../graph/types.ts';
import { exampleShape } from '../../graph/value.ts';
import { circumstancesOf } from '../../plan/record/answer.ts';
import { termsOf } from '../../plan/record/diff.ts';
import type { Plan } from '../../plan/record/types.ts';
import { bytesText, percentText } from '../../units.ts';
import type { NextBest, NodeCandidates } from '../analysis/alternatives/candidates.ts';
import type { Compared, ComparedRecipe } from '../analysis/alternatives/recipes.ts';
import type { Sensitivity } from '../analysis/alternatives/sensitivity.ts';
import type { MemoryBounds, PriceStep } from '../analysis/alternatives/what-if.ts';
import type { FoldedGraph } from '../analysis/folded-graph.ts';
import type { Incumbents } from '../analysis/incumbents.ts';
import type { Roofline } from '../analysis/layers.ts';
import { type Trust, trustOf } from '../analysis/measured.ts';
import type { MemoryCurve } from '../analysis/memory.ts';
import type { Pipeline } from '../analysis/pipeline.ts';
import type { SolverTrace } from '../analysis/solver-trace.ts';
import type { Streams } from '../analysis/streams.ts';
import { answerOf } from './answer.ts';
import { planCommandLine } from './command.ts';
import { type Constant, constantsOf } from './constants.ts';
import { meshWarnings } from './mesh-warnings.ts';
import {
  collectivesOf,
  operatorsOf,
  type OperatorSum,
  parametersOf,
  type ReportCollective,
  type ReportParameter,
} from './sums.ts';

/**
 * The findings of an analysis of a plan; null where the graph and the request are not in its
 * folder, and `missing` says so.
 */
interface PlanFindings {
  /** The layout of data and weights as instructions, a sentence each. */
  readonly placementWords: readonly string[] | null;
  readonly roofline: Roofline | null;
  readonly streams: Streams | null;
  readonly memory: MemoryCurve | null;
  readonly nextBest: readonly NextBest[] | null;
  readonly sensitivity: readonly Sensitivity[] | null;
  /** The highest price of less memory, along the front. */
  readonly priceOfMemory: readonly PriceStep[] | null;
  /** Bounds that were solved again, where the user asked for that. */
  readonly memoryBounds: MemoryBounds | null;
  readonly graph: FoldedGraph | null;
  /** The strategies of each node of `graph`, in its order. */
  readonly explain: readonly NodeCandidates[] | null;
  /** Stages, where the plan has some. */
  readonly pipeline: Pipeline | null;
  /** Parts that are left out, and why. */
  readonly missing: readonly string[];
}

/**
 * The contents of a report, before it is HTML, Markdown, text, JSON or CSV: all print these numbers
 * and texts.
 */
export interface Report extends PlanFindings {
  readonly schema: 'shardwright.report/1';
  readonly versions: { readonly shardwright: string; readonly plan: number };
  /** False where the plan's seconds and its proof are only claims. */
  readonly isChecked: boolean;
  /** Makes the plan again from the folder's graph. */
  readonly command: string;
  readonly model: string;
  readonly mesh: Plan['mesh'];
  readonly cluster: Cluster;
  /** The answer, one line each. */
  readonly answer: readonly { readonly label: string; readonly text: string }[];
  /** The plan; its clock time is in `run`. */
  readonly plan: Plan;
  readonly parameters: readonly ReportParameter[];
  /** The step time by term, largest first; the terms sum to it. */
  readonly terms: readonly { readonly term: string; readonly seconds: number }[];
  readonly collectives: readonly ReportCollective[];
  readonly operators: readonly OperatorSum[];
  /** Tokens of one step; null where the program does not tell. */
  readonly tokens: number | null;
  /** The recipes on the same problem. */
  readonly zoo: readonly ComparedRecipe[] | null;
  readonly frontier: Compared['frontier'] | null;
  readonly solverTrace:
    | (SolverTrace & {
        readonly incumbents: Incumbents['steps'] | null;
        /**
         * `plan`: of the solve that made the plan; `again`: of one for this report, without
         * starting points.
         */
        readonly incumbentsFrom: 'plan' | 'again' | null;
      })
    | null;
  /** How far predictions of the same hardware are off. */
  readonly trust: Trust;
  readonly constants: readonly Constant[];
  readonly assumptions: readonly string[];
  readonly warnings: readonly string[];
  /** The only clock times. */
  readonly run: {
    readonly solveSeconds: number | null;
    /** The seconds of each step of `solverTrace.incumbents`. */
    readonly incumbentSeconds: readonly number[] | null;
  };
}

/** The findings about a plan, in addition to the plan itself. */
export interface Analysis extends PlanFindings {
  readonly known: Compared | null;
  readonly solverTrace: SolverTrace | null;
  readonly incumbents: Incumbents | null;
  readonly incumbentsFrom: 'plan' | 'again' | null;
}

/** The input of a report: a plan, its cluster, its graph and its analysis. */
export interface ReportInput {
  readonly plan: Plan;
  readonly cluster: Cluster;
  readonly graph?: Graph;
  /**
   * False where nothing held the plan to its graph, request and certificate (`checkPlan`): the
   * report then calls nothing proven. Default true, for a plan that was just made.
   */
  readonly isChecked?: boolean;
  readonly analysis: Analysis;
  readonly version: string;
}

/**
 * Gathers what a report says about a plan. @throws E_PLAN for placements that are none of the mesh
 */
export function reportOf(input: ReportInput): Report {
  checkKinds('reportOf', { input: [input, ['plan', 'cluster', 'analysis']] });
  const { plan, cluster, graph, analysis, version, isChecked = true } = input;
  const { known, streams } = analysis;
  const tokens = graph === undefined ? null : tokensOf(graph);
  return {
    schema: 'shardwright.report/1',
    versions: { shardwright: version, plan: plan.version },
    command: planCommandLine(plan.request),
    model: plan.model,
    mesh: plan.mesh,
    cluster,
    isChecked,
    answer: answerOf({
      plan,
      isChecked,
      known: known?.plans ?? null,
      streams,
      roofline: analysis.roofline,
      tokens,
      pipeline: analysis.pipeline,
      placementWords: analysis.placementWords,
    }),
    plan: { ...plan, proof: { ...plan.proof, solveSeconds: null } },
    parameters: parametersOf(plan, graph),
    terms: sortedTerms(plan),
    collectives: collectivesOf(plan, cluster, streams),
    operators: operatorsOf(plan),
    tokens,
    roofline: analysis.roofline,
    streams,
    memory: analysis.memory,
    zoo: known?.plans ?? null,
    frontier: known?.frontier ?? null,
    nextBest: analysis.nextBest,
    sensitivity: analysis.sensitivity,
    priceOfMemory: analysis.priceOfMemory,
    memoryBounds: analysis.memoryBounds,
    graph: analysis.graph,
    explain: analysis.explain,
    pipeline: analysis.pipeline,
    placementWords: analysis.placementWords,
    solverTrace: solverTraceOf(analysis),
    trust: trustOf(circumstancesOf(plan, cluster)),
    constants: constantsOf(cluster),
    assumptions: plan.assumptions,
    warnings: [
      ...(isChecked ? [] : [NOT_CHECKED]),
      ...warningsOf(plan),
      ...meshWarnings(analysis.pipeline === null ? plan : ofStages(plan), cluster, graph),
    ],
    missing: missingOf(analysis, graph),
    run: {
      solveSeconds: plan.proof.solveSeconds,
      incumbentSeconds: analysis.incumbents?.seconds ?? null,
    },
  };
}

/** The trace of the solver, with the plans that it found on the way. */
function solverTraceOf({
  solverTrace,
  incumbents,
  incumbentsFrom,
}: Analysis): Report['solverTrace'] {
  if (solverTrace === null) return null;
  return { ...solverTrace, incumbents: incumbents?.steps ?? null, incumbentsFrom };
}

/** The terms of the step time, largest first. */
function sortedTerms(plan: Plan): Report['terms'] {
  return [...termsOf(plan)]
    .filter(([, seconds]) => seconds !== 0)
    .map(([term, seconds]) => ({ term, seconds }))
    .sort((a, b) => b.seconds - a.seconds || (a.term < b.term ? -1 : 1));
}

function missingOf({ missing, pipeline }: Analysis, graph: Graph | undefined): readonly string[] {
  return [
    ...missing,
    ...(pipeline === null
      ? ['Pipeline stages: the plan has none (plan MODEL --pp makes some).']
      : []),
    ...(graph === undefined ? ['The program: the graph is not next to the plan.'] : []),
  ];
}

/** Terms that people read: what rounding leaves is in the JSON, and below every printed digit. */
export function visibleTerms(report: Report): Report['terms'] {
  const { seconds } = report.plan.objective;
  return report.terms.filter((t) => Math.abs(t.seconds) > 1e-9 * seconds);
}

/** Sequences times positions of the first input that can be token numbers. */
function tokensOf(graph: Graph): number | null {
  for (const { kind, meta, type } of graph.nodes) {
    if (kind !== 'placeholder' || meta.role !== 'input' || type.kind !== 'tensor') continue;
    if (!/^[iu]\d+$/.test(type.dtype) || type.shape.length !== 2) continue;
    const [batch = NaN, positions = NaN] = exampleShape(type, NaN);
    return Number.isFinite(batch * positions) ? batch * positions : null;
  }
  return null;
}

const NOT_CHECKED =
  'The plan was not checked against its graph and its request: its seconds and its proof are ' +
  'only claims.';

/** The plan without its budget, which is that of the devices of all stages together. */
function ofStages({ mesh, nodes, request }: Plan): Pick<Plan, 'mesh' | 'nodes' | 'request'> {
  const { memoryBytes: _, ...own } = request;
  return { mesh, nodes, request: own };
}

function warningsOf({ memory, proof, request, cluster }: Plan): string[] {
  const out: string[] = [];
  const { timeline, budgetBytes } = memory;
  if (memory.peakBytes > budgetBytes)
    out.push(
      `The plan takes ${bytesText(memory.peakBytes)} per device, more than the budget of ` +
        `${bytesText(budgetBytes)}.`,
    );
  else if (timeline !== undefined && timeline.peakBytes > budgetBytes)
    out.push(
      `With activations the plan takes ${bytesText(timeline.peakBytes)} at ${timeline.node}, ` +
        `${bytesText(timeline.peakBytes - budgetBytes)} more than the budget, which limits ` +
        'states alone (--activations report).',
    );
  if (proof.status !== 'optimal')
    out.push(`The plan is not proven optimal: the gap to the bound is ${percentText(proof.gap)}.`);
  if (request.unknown === 'replicate')
    out.push(
      'Operators without rules were planned replicated (--unknown replicate); the ' +
        'assumptions name them.',
    );
  if (request.cluster.trimStart().startsWith('{'))
    out.push(`The cluster ${cluster} is the user's own; its figures were not checked.`);
  return out;
}
