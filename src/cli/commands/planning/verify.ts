/**
 * `verify`: plans a model or reads a plan, runs it on virtual devices and compares with one device.
 */

import { existsSync, statSync } from 'node:fs';
import { basename } from 'node:path';

import { defined } from '../../../defined.ts';
import { ShardwrightError } from '../../../errors.ts';
import { nodesByName } from '../../../graph/nodes.ts';
import type { Graph } from '../../../graph/types.ts';
import type { LowerablePlan } from '../../../lower/lower.ts';
import { parseMesh } from '../../../mesh/devices/mesh.ts';
import type { VocabularyPadding } from '../../../models/vocabulary.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import { plannable } from '../../../passes/plannable/plannable.ts';
import type { ShrinkOptions, Shrunk } from '../../../passes/sizes/shrink.ts';
import { transferPlan } from '../../../plan/choice/transfer.ts';
import { leastCostPlanOf } from '../../../plan/least-cost-plan.ts';
import { prepare } from '../../../plan/prepare/prepare.ts';
import { cutsOfPlan } from '../../../plan/questions/plan-cuts.ts';
import type { Deadline } from '../../../plan/request/deadline.ts';
import type { PlanRequest } from '../../../plan/request/request.ts';
import { readFileText } from '../../../platform/read-file.ts';
import {
  constantsAsInputs,
  reduced as reducedProgram,
  refuseUnevaluated,
  smallerHint,
} from '../../../simulate/reduced.ts';
import {
  type Verification,
  verify,
  type VerifyOptions as VerifyNumbers,
} from '../../../simulate/verify.ts';
import { tableText } from '../../../units.ts';
import { clusterText } from '../../input/cluster-file.ts';
import { longName } from '../../input/flags/flag.ts';
import { loadModel } from '../../input/load.ts';
import { ofMesh } from '../../input/load-config.ts';
import { operatorsWith } from '../../input/load-operators.ts';
import { checked, wholePlan } from '../../input/plan-folder.ts';
import { reportInfeasible } from '../../output/infeasible.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import { progressPrinter } from '../../output/progress.ts';
import type { RunControl } from '../../thread/run-control.ts';
import type { VerifyOptions } from './flags.ts';
import { padded, requestOf } from './plan-request.ts';

/** The record that `verify` prints; its keys are a contract. */
export interface VerifyReport extends Verification {
  readonly model: string;
  readonly mesh: string;
  /** Sizes that were reduced for the run. */
  readonly sizes: readonly { readonly from: number; readonly to: number }[];
  /** Calls whose sizes had to stay. */
  readonly kept: Shrunk['kept'];
  /** `full`: the placements of the plan at full size; `reduced`: a plan of the reduced model. */
  readonly planned: 'full' | 'reduced';
}

/** The program that is run with numbers, its plan, and the sizes that were reduced for it. */
interface Subject {
  readonly reduced: Shrunk;
  readonly plan: LowerablePlan;
  readonly model: string;
  readonly mesh: string;
  readonly planned: VerifyReport['planned'];
  readonly seed: number;
  readonly table: OperatorTable;
  /** The padding of the full-size model's vocabulary. */
  readonly padding?: VocabularyPadding | undefined;
}

/**
 * `verify`: plan a model, or take a written plan; reduce the sizes, lower, run on virtual devices,
 * compare with one device.
 *
 * @param given names of the options on the command line; the others have their defaults
 */
export async function verifyCommand(
  path: string,
  options: VerifyOptions,
  given: readonly string[],
  io: CliIo,
  control: RunControl,
): Promise<number> {
  const { tolerance } = options;
  const subject = isPlan(path)
    ? await writtenPlan(path, options, given, io)
    : await plannedModel(path, options, io, control);
  if (typeof subject === 'number') return subject;
  const { reduced, plan, table, seed, model, mesh, planned, padding } = subject;
  const report: VerifyReport = {
    ...verifyOrRefuse(
      reduced,
      plan,
      table,
      { seed, tolerance, ...realIds(padding, reduced.sizes) },
      options.shrink,
    ),
    model,
    mesh,
    sizes: reduced.sizes.filter(({ from, to }) => from !== to),
    kept: reduced.kept,
    planned,
  };
  answer(io, options, report, textOf);
  return report.mismatches.length === 0 ? EXIT.ok : EXIT.internal;
}

/** A folder, or a file that says of itself that it is a plan. */
function isPlan(path: string): boolean {
  const found = existsSync(path) ? statSync(path) : undefined;
  if (found === undefined) return basename(path) === 'plan.json';
  return found.isDirectory() || (path.endsWith('.json') && /"proof"\s*:/.test(readFileText(path)));
}

/** Flags that mean something where the plan is there already. */
const OF_PLANS: ReadonlySet<string> = new Set([
  'json',
  'quiet',
  'tolerance',
  'shrink',
  'seed',
  'ops',
]);

/** The placements of a written plan, at reduced sizes unless told otherwise. */
async function writtenPlan(
  path: string,
  options: VerifyOptions,
  given: readonly string[],
  io: CliIo,
): Promise<Subject> {
  const other = given.find((name) => !OF_PLANS.has(name));
  if (other !== undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `${longName(other)} is for a model that is planned here, ${path} is a plan`,
      {
        hint: 'drop it; what was asked for is in the request.json of the plan.',
      },
    );
  const folder = wholePlan(path);
  const { plan: whole, program: planned } = folder;
  const table = await operatorsWith(options.ops);
  checked(folder, path, table, io);
  refuseUnevaluated(planned, table, whole.request.unknown);
  const program = constantsAsInputs(planned);
  // Constants that became inputs come after the others; the nodes of bodies keep their order.
  const inputs = program.nodes.filter(({ kind }) => kind === 'placeholder').map(({ name }) => name);
  const byName = nodesByName(whole);
  const plan = {
    ...whole,
    nodes: [
      ...inputs.flatMap((name) => byName.get(name) ?? []),
      ...whole.nodes.filter(({ name }) => !inputs.includes(name)),
    ],
  };
  const padding = plan.request.padVocabulary;
  const common = {
    model: plan.model,
    mesh: plan.request.mesh,
    table,
    planned: 'full',
    padding,
  } as const;
  const seed = given.includes('seed') ? options.seed : plan.request.seed;
  if (!options.shrink)
    return { ...common, seed, reduced: { graph: program, sizes: [], kept: [] }, plan };
  return { ...common, seed, ...placedAtSmallSizes(plan, program, table, plan.request, seed) };
}

/** Numbers on all devices together above which sizes that differ may coincide, to be smaller. */
const NUMBERS_OF_DEVICES = 2 ** 25;

/**
 * A planned program at sizes that run in seconds, placed as planned. What the plan cuts stays
 * divisible; where a placement does not exist at such sizes, whatever the mesh could cut does.
 *
 * @param request of the plan, as it was settled
 */
function placedAtSmallSizes(
  plan: LowerablePlan,
  program: Graph,
  table: OperatorTable,
  request: PlanRequest,
  seed: number,
): Pick<Subject, 'reduced' | 'plan'> {
  const { sizes: meshSizes, size } = parseMesh(request.mesh);
  const { unknown } = request;
  const large = NUMBERS_OF_DEVICES / size;
  const cuts = cutsOfPlan(plan, program, table);
  const placed = (even: ShrinkOptions): Pick<Subject, 'reduced' | 'plan'> => {
    const given = { ...even, ...defined({ cuts }), large, seed, unknown };
    const reduced = reducedProgram(program, table, given);
    return { reduced, plan: transferPlan(plan, prepare(reduced.graph, request, table)) };
  };
  if (cuts === undefined) return placed({ meshSizes });
  try {
    return placed({});
  } catch (error) {
    if (!(error instanceof ShardwrightError) || error.code !== 'E_PLAN') throw error;
    return placed({ meshSizes });
  }
}

/** Part of the time left that the plan may take; the rest is for running it. */
const PLANNING = 1 / 2;

/**
 * Plans a model, and places it at reduced sizes as that plan says; an exit code where there is no
 * plan.
 */
async function plannedModel(
  path: string,
  options: VerifyOptions,
  io: CliIo,
  control: RunControl,
): Promise<Subject | number> {
  const { mesh } = options;
  if (mesh === undefined)
    throw new ShardwrightError('E_USAGE', 'verify plans a model on a mesh, and --mesh is missing', {
      hint:
        'add --mesh dp=2,tp=2, or give a plan folder, as `shardwright plan ... -o DIR` writes ' +
        'it.',
    });
  const deadline = control.deadline(options.timeLimit);
  const asked = requestOf({ ...options, mesh, cluster: clusterText(options.cluster, options) });
  const loaded = await loadModel(path, { ...options, ...ofMesh(asked.mesh) });
  const { table, padding } = loaded;
  const request = padded(asked, padding);
  try {
    const graph = constantsAsInputs(plannable(loaded.graph, table));
    refuseUnevaluated(graph, table, request.unknown);
    const placed = await placedSmall(graph, table, request, options, { deadline, io });
    if (typeof placed === 'number') return placed;
    return { ...placed, mesh: request.mesh, seed: request.seed, table, padding };
  } catch (error) {
    if (error instanceof ShardwrightError && error.details.position !== undefined)
      throw error.with({ file: path });
    throw error;
  }
}

/**
 * The program at the sizes that are run, with its placements: those of the plan of the whole
 * program, or with `--replan` those of a plan of the reduced one.
 */
async function placedSmall(
  graph: Graph,
  table: OperatorTable,
  request: PlanRequest,
  options: VerifyOptions,
  { deadline, io }: { readonly deadline: Deadline; readonly io: CliIo },
): Promise<Pick<Subject, 'reduced' | 'plan' | 'model' | 'planned'> | number> {
  const { sizes: meshSizes } = parseMesh(request.mesh);
  const { seed, unknown } = request;
  const replan = options.replan === true || !options.shrink;
  const before: Shrunk =
    options.shrink && replan
      ? reducedProgram(graph, table, { meshSizes, seed, unknown })
      : { graph, sizes: [], kept: [] };
  const prepared = prepare(replan ? before.graph : graph, request, table, deadline);
  const result = await leastCostPlanOf(prepared, {
    deadline: deadline.part(PLANNING),
    onProgress: progressPrinter(io, options.quiet === true),
  });
  if (result.status === 'infeasible')
    return reportInfeasible(result, prepared, io, options.json === true);
  const { plan } = result;
  const { program, request: settled } = result.prepared.question;
  const { model } = plan;
  // Recomputed nodes of a checkpointed plan are part of the program that it was made for.
  if (replan) return { reduced: { ...before, graph: program }, plan, model, planned: 'reduced' };
  return { ...placedAtSmallSizes(plan, program, table, settled, seed), model, planned: 'full' };
}

/**
 * Token ids stay below the real vocabulary, or below the same share of the rows where sizes were
 * reduced.
 */
function realIds(
  padding: VocabularyPadding | undefined,
  sizes: Shrunk['sizes'],
): Pick<VerifyNumbers, 'vocabulary'> {
  if (padding === undefined) return {};
  const rows = sizes.find(({ from }) => from === padding.rows)?.to ?? padding.rows;
  const stated = Math.max(1, Math.floor((rows * padding.vocabulary) / padding.rows));
  return { vocabulary: { rows, stated } };
}

/** Runs it; what is too large for numbers is refused with what can be done about it. */
function verifyOrRefuse(
  reduced: Shrunk,
  plan: LowerablePlan,
  table: OperatorTable,
  options: VerifyNumbers,
  shrunk: boolean,
): Verification {
  try {
    return verify(reduced.graph, plan, { ...options, table });
  } catch (error) {
    if (!(error instanceof ShardwrightError) || error.code !== 'E_LIMIT') throw error;
    const hint = shrunk
      ? smallerHint(reduced)
      : 'drop --no-shrink: the placements are then verified at reduced sizes.';
    throw new ShardwrightError('E_LIMIT', error.message, { ...error.details, hint });
  }
}

/** Mismatches that are printed. */
const SHOWN = 10;

function textOf(report: VerifyReport): string {
  const { mismatches, sizes } = report;
  const ran = Object.entries(report.collectives).map(([kind, n]) => `${n} ${kind}`);
  const lines = tableText([
    ['devices', `${report.devices} virtual (${report.mesh})`],
    [
      'sizes',
      sizes.length === 0
        ? 'those of the model'
        : sizes.map(({ from, to }) => `${from} as ${to}`).join(', '),
    ],
    [
      'tensors',
      `${report.nodesCompared} compared, ${report.outputsCompared} outputs and gradients ` +
        'among them',
    ],
    ['error', `${report.maxRelativeError.toExponential(1)} at most, relative, in float64`],
    ...(report.standIns.length === 0
      ? []
      : [
          [
            'stand-ins',
            `${report.standIns.join(', ')}: unknown operators: each device ran a stand-in ` +
              'function of all operands, whole',
          ],
        ]),
    ...(report.notCompared.length === 0
      ? []
      : [
          [
            'left out',
            `elements of ${report.notCompared.slice(0, SHOWN).join(', ')}: infinite addends of ` +
              'both signs have no sum, so they are not compared',
          ],
        ]),
    ['collectives', ran.length === 0 ? 'none' : ran.join(', ')],
  ]);
  const kept = report.kept.map((k) => `  sizes of ${k.node} (${k.target}) stay: ${k.reason}`);
  const wrong = mismatches
    .slice(0, SHOWN)
    .map(
      (m) =>
        `  ${m.where}${m.target === undefined ? '' : ` (${m.target}, ${m.sharding ?? ''})`}: ` +
        `${m.message}`,
    );
  if (mismatches.length > SHOWN) wrong.push(`  and ${mismatches.length - SHOWN} more`);
  const verdict =
    mismatches.length === 0
      ? 'the sharded program gives the numbers of the unsharded one, with the collectives of ' +
        'the plan'
      : `${mismatches.length} mismatches; the first is nearest to the fault:`;
  return [lines, ...kept, verdict, ...wrong].join('\n');
}
