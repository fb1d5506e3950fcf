/**
 * Runs the analyses of a plan that its program and request admit, and names those that were left
 * out.
 */

import { checkKinds } from '../../arguments.ts';
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
import { placementWords } from './placement-words.ts';

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
  placementWords: null,
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

/** Runs the parts of a report, and keeps the reasons of those that cannot be had. */
class Parts {
  readonly missing: string[] = [];

  constructor(private readonly onMissing: GatherOptions['onMissing']) {}

  leaveOut(what: string, why: string): void {
    this.missing.push(`${what}: ${why}.`);
    this.onMissing?.(`${what}: ${why}`);
  }

  /**
   * Null where the part is refused: a plan that cannot be asked about can still be read, and the
   * report says what is missing from it.
   */
  async attempt<T>(what: string, make: () => T | Promise<T>): Promise<T | null> {
    try {
      return await make();
    } catch (error) {
      if (!(error instanceof ShardwrightError) || error.code === 'E_INTERNAL') throw error;
      this.leaveOut(what, error.message);
      return null;
    }
  }
}

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
  checkKinds('analyse', {
    folder: [folder, ['plan']],
    operators: [operators, 'operators'],
    options: [options, ['recipes', 'whatIf']],
  });
  const { plan, program, request } = folder;
  const parts = new Parts(options.onMissing);
  const { missing } = parts;
  if (program === undefined || request === undefined) {
    missing.push(
      'Roofline, timeline, memory timeline, recipes, sensitivity and strategies: the graph ' +
        'and the request are not next to the plan.',
    );
    return { ...NOTHING, missing };
  }
  const opened =
    options.opened ??
    (await parts.attempt('What is computed again from the plan', () =>
      reopen(plan, program, request, operators),
    ));
  return opened === null
    ? { ...NOTHING, missing }
    : analyseOpened(opened, program, operators, options, parts);
}

async function analyseOpened(
  opened: Reopened,
  program: Graph,
  operators: OperatorTable,
  options: GatherOptions,
  parts: Parts,
): Promise<Analysis> {
  const { prepared, plan } = opened;
  const { pipeline: said } = options;
  const known = options.recipes
    ? await parts.attempt('Recipes', () => compareRecipes(prepared, plan))
    : null;
  if (!options.recipes) parts.missing.push('Recipes: left out by --no-recipes.');
  const pipeline =
    said === undefined
      ? null
      : await parts.attempt('Pipeline stages', () => pipelineAgain(opened, said, operators));
  const graph = await parts.attempt('The folded graph', () => foldedGraphOf(opened));
  const nodes = graph?.nodes.map((node) => node.node);
  const explain = nodes === undefined ? null : candidatesOf(opened, nodes);
  const priced = await parts.attempt('Sensitivity', () => sensitivityOf(prepared, plan));
  if (options.progress?.isOfPlan === false)
    parts.leaveOut('The steps of the solver', 'progress.json is not that of the plan next to it');
  const solved = await whatIf(opened, program, operators, priced, options, parts);
  noteUnsolved(solved, options, parts);
  return {
    placementWords: await parts.attempt('What to do in words', () =>
      placementWords({ plan, model: prepared.model, choice: opened.choice }),
    ),
    roofline: await parts.attempt('Roofline', () => rooflineOf(prepared, plan)),
    streams: await parts.attempt('Timeline', () => streamsOf(program, plan, operators)),
    memory: await parts.attempt('Memory timeline', () => memoryCurveOf(opened)),
    known,
    nextBest: explain === null ? null : nextBest(opened, explain, known),
    sensitivity: solved.sensitivity,
    priceOfMemory: known === null ? null : priceSteps(known.frontier),
    memoryBounds: solved.memoryBounds,
    graph,
    explain,
    pipeline,
    solverTrace: solverTraceOf(prepared),
    incumbents: solved.incumbents,
    incumbentsFrom: solved.incumbentsFrom,
    missing: parts.missing,
  };
}

/** The next best choices, by the strategies of parameters and by recipes that fit. */
function nextBest(
  opened: Reopened,
  explain: NonNullable<Analysis['explain']>,
  known: Analysis['known'],
): Analysis['nextBest'] {
  const fitting = (known?.plans ?? []).flatMap((p) =>
    p.seconds === null || p.overBytes !== undefined ? [] : [{ name: p.name, seconds: p.seconds }],
  );
  const parameters = candidatesOf(opened, parameterNodes(opened));
  return nextBestOf(explain, parameters, fitting, opened.plan.objective.seconds);
}

type Solved = Pick<Analysis, 'sensitivity' | 'memoryBounds' | 'incumbents' | 'incumbentsFrom'>;

function noteUnsolved({ incumbents }: Solved, options: GatherOptions, { missing }: Parts): void {
  if (!options.whatIf) {
    const steps = incumbents === null ? ', and the steps of the solver: they are' : ': they are';
    missing.push(
      `The best plan without a memory budget and on other links${steps} solved for with --what-if.`,
    );
  } else if (incumbents === null)
    missing.push(
      'The steps of the solver: a limit on peak memory takes many problems; no step of them ' +
        'belongs to the plan alone.',
    );
}

async function whatIf(
  opened: Reopened,
  program: Graph,
  operators: OperatorTable,
  priced: Analysis['sensitivity'],
  options: GatherOptions,
  parts: Parts,
): Promise<Solved> {
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
    const found = await parts.attempt('The steps of the solver', () =>
      incumbentsOf(opened.plan, program, operators),
    );
    return found ?? null;
  };
  const incumbents = written ?? (await again());
  onProgress?.('solving without a memory budget');
  const memory = await parts.attempt('The best plan without a memory budget', () =>
    memoryBounds(opened),
  );
  onProgress?.('solving on other links');
  const sensitivity =
    priced === null
      ? null
      : await parts.attempt('The best plan on other links', () =>
          bestOnOtherLinks(opened, program, operators, priced),
        );
  return {
    sensitivity: sensitivity ?? priced,
    memoryBounds: memory,
    incumbents,
    incumbentsFrom: incumbents === null ? null : written === null ? 'again' : 'plan',
  };
}
