/**
 * Runs the analyses of a plan that its program and request admit, and names those that were left
 * out.
 */

import { ShardwrightError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { reopen, type Reopened } from '../../plan/questions/explain.ts';
import type { PlanFolder } from '../../plan/record/folder.ts';
import type { PlanPipeline } from '../../sweep/pipeline/plan.ts';
import { candidatesOf, nextBestOf, parameterNodes } from '../analysis/alternatives/candidates.ts';
import { compareRecipes } from '../analysis/alternatives/recipes.ts';
import { sensitivityOf } from '../analysis/alternatives/sensitivity.ts';
import { bestOnOtherLinks, memoryBounds, priceSteps } from '../analysis/alternatives/what-if.ts';
import { foldedGraphOf } from '../analysis/folded-graph.ts';
import { incumbentsOf, type WrittenProgress } from '../analysis/incumbents.ts';
import { rooflineOf } from '../analysis/layers.ts';
import { memoryCurveOf } from '../analysis/memory.ts';
import { pipelineAgain } from '../analysis/pipeline.ts';
import { solverTraceOf } from '../analysis/solver-trace.ts';
import { streamsOf } from '../analysis/streams.ts';
import type { Analysis } from './data.ts';

/** The parts of a report that are computed again. */
export interface GatherOptions {
  /** The plan made ready for questions, where somebody has done that already. */
  readonly opened?: Reopened;
  /** Prices the recipes again. */
  readonly recipes: boolean;
  /** The contents of `pipeline.json` in the plan folder. */
  readonly pipeline?: PlanPipeline;
  /** The contents of `progress.json` in the plan folder. */
  readonly progress?: WrittenProgress;
  /**
   * Solves again: as asked where there is no progress of the plan, without a memory budget, and on
   * other links.
   */
  readonly whatIf: boolean;
  /** Told of each part that cannot be had. */
  readonly onMissing?: (line: string) => void;
  readonly onProgress?: (line: string) => void;
}

const NOTHING: Omit<Analysis, 'missing'> = {
  roofline: null,
  streams: null,
  memory: null,
  known: null,
  nextBest: null,
  sensitivity: null,
  priceOfMemory: null,
  memoryBounds: null,
  graph: null,
  explain: null,
  pipeline: null,
  solverTrace: null,
  incumbents: null,
  incumbentsFrom: null,
};

/**
 * Analyses a plan with its program and request, for the facts that a plan file alone does not
 * state. Each part that the program or this version does not admit is left out and named; nothing
 * is assumed instead.
 */
export async function analyse(
  folder: PlanFolder,
  operators: OperatorTable,
  options: GatherOptions,
): Promise<Analysis> {
  const { plan, program, request } = folder;
  const missing: string[] = [];
  const leaveOut = (what: string, why: string): void => {
    missing.push(`${what}: ${why}.`);
    options.onMissing?.(`${what}: ${why}`);
  };
  if (program === undefined || request === undefined) {
    missing.push(
      'Roofline, timeline, memory timeline, recipes, sensitivity and strategies: the graph ' +
        'and the request are not beside the plan.',
    );
    return { ...NOTHING, missing };
  }
  const attempt = async <T>(what: string, make: () => T | Promise<T>): Promise<T | null> => {
    try {
      return await make();
    } catch (error) {
      // A plan that cannot be asked about can still be read; the report says what is missing from
      // it.
      if (!(error instanceof ShardwrightError) || error.code === 'E_INTERNAL') throw error;
      leaveOut(what, error.message);
      return null;
    }
  };
  const opened =
    options.opened ??
    (await attempt('Everything that is asked of the plan anew', () =>
      reopen(plan, program, request, operators),
    ));
  if (opened === null) return { ...NOTHING, missing };
  const { prepared } = opened;
  const known = options.recipes
    ? await attempt('Recipes', () => compareRecipes(prepared, plan))
    : null;
  if (!options.recipes) missing.push('Recipes: left out by --no-recipes.');
  const { pipeline: said } = options;
  const pipeline =
    said === undefined
      ? null
      : await attempt('Pipeline stages', () => pipelineAgain(opened, said, operators));
  const graph = await attempt('The folded graph', () => foldedGraphOf(opened));
  const explain =
    graph === null
      ? null
      : candidatesOf(
          opened,
          graph.nodes.map((node) => node.node),
        );
  const priced = await attempt('Sensitivity', () => sensitivityOf(prepared, plan));
  const fitting = (known?.plans ?? []).flatMap((p) =>
    p.seconds === null || p.overBytes !== undefined ? [] : [{ name: p.name, seconds: p.seconds }],
  );
  if (options.progress?.isOfPlan === false)
    leaveOut('The steps of the solver', 'progress.json is not that of the plan beside it');
  const solved = await whatIf(opened, program, operators, priced, options, attempt);
  if (!options.whatIf) {
    const steps =
      solved.incumbents === null ? ', and the steps of the solver: they are' : ': they are';
    missing.push(
      `The best plan without a memory budget and on other links${steps} solved for with --what-if.`,
    );
  } else if (solved.incumbents === null)
    missing.push(
      'The steps of the solver: a limit on peak memory takes many problems; no step of them ' +
        'belongs to the plan alone.',
    );
  return {
    roofline: await attempt('Roofline', () => rooflineOf(prepared, plan)),
    streams: await attempt('Timeline', () => streamsOf(program, prepared.model, plan, operators)),
    memory: await attempt('Memory timeline', () => memoryCurveOf(opened)),
    known,
    nextBest:
      explain === null
        ? null
        : nextBestOf(
            explain,
            candidatesOf(opened, parameterNodes(opened)),
            fitting,
            plan.objective.seconds,
          ),
    sensitivity: solved.sensitivity,
    priceOfMemory: known === null ? null : priceSteps(known.frontier),
    memoryBounds: solved.memoryBounds,
    graph,
    explain,
    pipeline,
    solverTrace: solverTraceOf(prepared),
    incumbents: solved.incumbents,
    incumbentsFrom: solved.incumbentsFrom,
    missing,
  };
}

type Attempt = <T>(what: string, make: () => T | Promise<T>) => Promise<T | null>;

async function whatIf(
  opened: Reopened,
  program: Graph,
  operators: OperatorTable,
  priced: Analysis['sensitivity'],
  options: GatherOptions,
  attempt: Attempt,
): Promise<Pick<Analysis, 'sensitivity' | 'memoryBounds' | 'incumbents' | 'incumbentsFrom'>> {
  const { progress, onProgress } = options;
  const written =
    progress?.isOfPlan === true ? { steps: progress.steps, seconds: progress.seconds } : null;
  if (!options.whatIf)
    return {
      sensitivity: priced,
      memoryBounds: null,
      incumbents: written,
      incumbentsFrom: written === null ? null : 'plan',
    };
  const again = async (): Promise<Analysis['incumbents']> => {
    onProgress?.('solving as asked, for the steps of the solver');
    const found = await attempt('The steps of the solver', () =>
      incumbentsOf(opened.plan, program, operators),
    );
    return found ?? null;
  };
  const incumbents = written ?? (await again());
  onProgress?.('solving without a memory budget');
  const memory = await attempt('The best plan without a memory budget', () => memoryBounds(opened));
  onProgress?.('solving on other links');
  const sensitivity =
    priced === null
      ? null
      : await attempt('The best plan on other links', () =>
          bestOnOtherLinks(opened, program, operators, priced),
        );
  return {
    sensitivity: sensitivity ?? priced,
    memoryBounds: memory,
    incumbents,
    incumbentsFrom: incumbents === null ? null : written === null ? 'again' : 'plan',
  };
}
