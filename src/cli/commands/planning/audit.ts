/**
 * `audit`: takes a model and a plan or recipe, and prints the gap to the optimum with the edits
 * that reduce it.
 */

import { existsSync } from 'node:fs';

import { type Audit, auditChoice } from '../../../audit.ts';
import { ShardwrightError } from '../../../errors.ts';
import { forTrainer } from '../../../fidelity/trainer-step.ts';
import type { Graph } from '../../../graph/types.ts';
import { paddingText, type VocabularyPadding } from '../../../models/vocabulary.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import type { Infeasible } from '../../../plan/choice/result.ts';
import { choiceOfPlan } from '../../../plan/choice/transfer.ts';
import { leastCostPlanOf } from '../../../plan/least-cost-plan.ts';
import { prepare, withPins } from '../../../plan/prepare/prepare.ts';
import type { Prepared } from '../../../plan/prepare/prepared.ts';
import { changeRequest } from '../../../plan/questions/what-if.ts';
import type { PlanFolder } from '../../../plan/record/folder.ts';
import type { Deadline } from '../../../plan/request/deadline.ts';
import type { PlanRequest } from '../../../plan/request/request.ts';
import { auditedRequest } from '../../../recipes/audit.ts';
import { recipeChoice } from '../../../recipes/recipe-choice.ts';
import { isRecipeName } from '../../../recipes/registry.ts';
import { auditText } from '../../../report/text/audit.ts';
import { bytesText, percentText, secondsText } from '../../../units.ts';
import { clusterText } from '../../input/cluster-file.ts';
import { loadModel } from '../../input/load.ts';
import { ofMesh } from '../../input/load-config.ts';
import { loadPlan } from '../../input/plan-folder.ts';
import { reportInfeasible } from '../../output/infeasible.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import { paintScreen } from '../../output/paint.ts';
import type { RunControl } from '../../thread/run-control.ts';
import { missingError } from '../flags/usage-errors.ts';
import type { AuditOptions } from './flags.ts';
import { requestOf } from './plan-request.ts';

/** A recipe by name: `recipe:fsdp`. `zoo:` is its spelling of version 0.1. */
const RECIPE = /^(?:recipe|zoo):/;

/** `audit`: how far a plan is from the optimum of its problem, and which edits bring it nearer. */
export async function auditCommand(
  model: string,
  options: AuditOptions,
  io: CliIo,
  control: RunControl,
): Promise<number> {
  const { edits } = options;
  // The time limit includes the time to read the model.
  const deadline = control.deadline(options.timeLimit);
  const isNamed = options.plan === 'given' || RECIPE.test(options.plan);
  if (!isNamed) namedByMistake(options.plan);
  const written = isNamed ? undefined : loadPlan(options.plan);
  const mesh = options.mesh ?? written?.plan.request.mesh;
  const built = mesh === undefined ? {} : ofMesh(mesh);
  const { graph, table, padding, format } = await loadModel(model, { ...options, ...built });
  if (format === 'hf-config') samePadding(written?.plan.request.padVocabulary, padding, isNamed);
  const isNamedModel = format === 'hf-config';
  const named = await choiceOf({ graph, table, isNamedModel }, options, written, deadline);
  const json = options.json === true;
  if ('infeasible' in named) return reportInfeasible(named.infeasible, named.prepared, io, json);
  const { prepared, choice } = named;
  const pad = padding ?? written?.plan.request.padVocabulary;
  const notes = pad === undefined ? named.notes : [...named.notes, paddingText(pad)];
  const result = await auditChoice(prepared, choice, {
    edits,
    deadline,
    onPlan: control.answers,
    ...(options.quiet === true ? {} : { onProgress: io.progress }),
  });
  if ('conflict' in result) return reportInfeasible(result, prepared, io, json);
  io.stdout(
    json
      ? `${JSON.stringify({ ...result, notes })}\n`
      : `${auditText(options.plan, result, notes)}\n`,
    paintScreen,
  );
  return exitOf(result, prepared, options, io);
}

/** Says in which way the audit failed, and the exit code for it. */
function exitOf(
  result: Audit,
  prepared: Prepared,
  { maxRegret: allowed, json }: AuditOptions,
  io: CliIo,
): number {
  const { stopped, provenRegret } = result;
  const [regret, of] =
    result.best === undefined ? [result.regret, 'the sum'] : [result.best.regret, 'the step'];
  const { budgetBytes } = prepared.question;
  if (stopped !== undefined)
    io.stderr(
      `${stopped}: the bound is ${secondsText(result.bound)}, so the regret is at most ` +
        `${percentText(provenRegret)} of the sum; not all edits were tried\n`,
    );
  if (!result.fits) {
    if (json !== true)
      io.stderr(
        `the plan needs ${bytesText(budgetBytes + (result.overBytes ?? 0))}, the budget is ` +
          `${bytesText(budgetBytes)}\n`,
      );
    return EXIT.infeasible;
  }
  // A proof that was cut short leaves a gap, and the whole gap may be regret.
  const most = stopped === undefined ? regret : Math.max(regret, provenRegret);
  if (stopped !== undefined && (allowed === undefined || most > allowed)) return EXIT.gap;
  if (allowed === undefined || regret <= allowed) return EXIT.ok;
  if (json !== true)
    io.stderr(
      `regret ${percentText(regret)} of ${of}, allowed ${percentText(allowed)} (--max-regret)\n`,
    );
  return EXIT.gap;
}

/** @throws E_USAGE where there is no such file, but a recipe of that name */
function namedByMistake(plan: string): void {
  if (existsSync(plan) || !isRecipeName(plan)) return;
  throw new ShardwrightError(
    'E_USAGE',
    `--plan ${plan}: there is no such file, but a recipe of that name`,
    {
      hint: `give --plan recipe:${plan}.`,
    },
  );
}

/**
 * A plan of a padded model says nothing of the model without padding, nor the other way round.
 * @throws E_PLAN
 */
function samePadding(
  planned: VocabularyPadding | undefined,
  padding: VocabularyPadding | undefined,
  isNamed: boolean,
): void {
  if (isNamed || planned?.rows === padding?.rows) return;
  const text = (p: VocabularyPadding | undefined): string =>
    p === undefined ? 'not padded' : `padded to ${p.rows}`;
  throw new ShardwrightError(
    'E_PLAN',
    `the vocabulary of the plan is ${text(planned)}, that of the model ${text(padding)}`,
    {
      hint:
        planned === undefined
          ? 'leave out --pad-vocab.'
          : `give --pad-vocab ${planned.multiple}, as the plan was made.`,
    },
  );
}

type Named = { readonly prepared: Prepared } & (
  | { readonly choice: Int32Array; readonly notes: readonly string[] }
  | { readonly infeasible: Infeasible }
);

/** The model that a plan is audited of. */
interface Audited {
  readonly graph: Graph;
  readonly table: OperatorTable;
  /** True if it is a model by name or config, which has a trainer by default. */
  readonly isNamedModel: boolean;
}

/** @param found the written plan, where the options name one */
async function choiceOf(
  audited: Audited,
  options: AuditOptions,
  found: PlanFolder | undefined,
  deadline: Deadline,
): Promise<Named> {
  const { plan } = options;
  if (found === undefined)
    return plan === 'given'
      ? givenChoice(audited, options, deadline)
      : namedChoice(audited, options, plan.replace(RECIPE, ''), deadline);
  if (options.mesh !== undefined || options.cluster !== undefined)
    throw new ShardwrightError('E_USAGE', '--mesh and --cluster are those of the plan file');
  if (options.for !== undefined)
    throw new ShardwrightError('E_USAGE', `--for ${options.for}: the trainer is that of the plan`, {
      hint: 'leave --for out, or audit a recipe by name.',
    });
  const { graph, table } = audited;
  // The optimum is over the whole problem, so the pins that the plan was made with are not in it.
  const request = auditedRequest(found.request ?? found.plan.request);
  const prepared = prepare(graph, request, table, deadline);
  return { prepared, choice: choiceOfPlan(found.plan, prepared.model), notes: [] };
}

async function namedChoice(
  { graph, table, isNamedModel }: Audited,
  options: AuditOptions,
  name: string,
  deadline: Deadline,
): Promise<Named> {
  const request = forTrainer(freeRequest(options, options.mesh), graph, isNamedModel);
  const prepared = prepare(graph, request, table, deadline);
  const { choice, notes } = await recipeChoice(prepared, name, deadline);
  return { prepared, choice, notes };
}

async function givenChoice(
  { graph, table, isNamedModel }: Audited,
  options: AuditOptions,
  deadline: Deadline,
): Promise<Named> {
  const mesh = options.mesh ?? graph.mesh;
  const request = forTrainer(freeRequest(options, mesh), graph, isNamedModel);
  const prepared = prepare(graph, request, table, deadline);
  const { pins, outputs, skipped } = prepared.question.given;
  if (pins.length + outputs.length === 0)
    throw new ShardwrightError(
      'E_USAGE',
      `no shardings came with the model${skipped.length > 0 ? `: ${skipped[0]}` : ''}`,
      {
        hint: 'give --plan FILE or --plan recipe:NAME.',
      },
    );
  const pinned = withPins(
    prepared,
    changeRequest(prepared.question.request, (draft) => void delete draft.shardings).request,
  );
  const result = await leastCostPlanOf(pinned, { deadline: deadline.part(1 / 2) });
  if (result.status === 'infeasible') return { prepared, infeasible: result };
  return {
    prepared,
    choice: result.choice,
    notes: [
      ...pinned.left.unpinned,
      'the source leaves some placements open; they are as cheap as it admits',
    ],
  };
}

function freeRequest(options: AuditOptions, mesh: string | undefined): PlanRequest {
  const { cluster } = options;
  if (mesh === undefined || cluster === undefined) {
    const missing = [
      ...(mesh === undefined ? ['--mesh'] : []),
      ...(cluster === undefined ? ['--cluster'] : []),
    ];
    throw missingError(
      `audit --plan ${options.plan}`,
      missing,
      `shardwright audit gpt2 --plan ${options.plan} --mesh dp=8 --cluster h100`,
    );
  }
  return requestOf({
    ...options,
    ignoreShardings: true,
    pin: [],
    mesh,
    cluster: clusterText(cluster, options),
  });
}
