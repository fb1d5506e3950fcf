/**
 * `export` writes a plan as the files of one engine, into a folder or to stdout where there is one
 * file. Losses and notes go to stderr.
 */
import { dirname, join } from 'node:path';

import { type ExportFile, exportSource, ownTarget } from '../../../backend/target.ts';
import { loadCluster } from '../../../cost/hardware/load-cluster.ts';
import { type ErrorDetails, ShardwrightError } from '../../../errors.ts';
import { exportFiles } from '../../../export/export.ts';
import { jobOf, launcherFile, LAUNCHERS } from '../../../export/launchers.ts';
import { EXPORT_TARGETS, exportTarget } from '../../../export/targets.ts';
import { stepOfRecipe } from '../../../fidelity/trainer-step.ts';
import { itemAt } from '../../../item-at.ts';
import { meshSize } from '../../../mesh/devices/mesh.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import { Deadline } from '../../../plan/request/deadline.ts';
import { bytesText, secondsText } from '../../../units.ts';
import { operatorsWith } from '../../input/load-operators.ts';
import { pipelineOf } from '../../input/pipeline-file.ts';
import { checked, type WholePlan, wholePlan } from '../../input/plan-folder.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import { tryFolder, writeFolder } from '../../output/write-file.ts';
import { missingError } from '../flags/usage-errors.ts';
import type { ExportOptions } from './flags.ts';
import { orderOf } from './order.ts';

/** `export PLAN --target NAME -o DIR`; without a target: the list of them. */
export async function exportCommand(
  path: string | undefined,
  options: ExportOptions,
  io: CliIo,
): Promise<number> {
  if (path === undefined || options.target === undefined) return list(path, options, io);
  const { target } = options;
  exportTarget(target);
  if (options.output !== undefined) tryFolder(options.output, [], 'export');
  const table = await operatorsWith(options.ops);
  const folder = wholePlan(path);
  checked(folder, path, table, io);
  const {
    files: ofTarget,
    losses,
    notes = [],
  } = await written(folder, path, table, () =>
    exportFiles(exportSource(folder, table), target, {
      allowLossy: options.allowLossy === true,
      check: options.check === true,
      ...orderOf(options),
    }),
  );
  const files = [...ofTarget, ...launcherFiles(folder, options)];
  for (const { item, planned, instead } of losses)
    io.stderr(`lost: ${item}: planned ${planned}; ${instead}\n`);
  for (const note of notes) io.stderr(`note  ${note}\n`);
  const names = files.map(({ name }) => name);
  if (options.output !== undefined) {
    write(options.output, files);
    io.stderr(`wrote ${names.map((name) => join(options.output ?? '', name)).join(', ')}\n`);
    if (options.json === true)
      io.stdout(
        `${JSON.stringify({ target, folder: options.output, files: names, losses, notes })}\n`,
      );
    return EXIT.ok;
  }
  if (options.json === true) {
    const texts = Object.fromEntries(files.map(({ name, text }) => [name, text]));
    io.stdout(`${JSON.stringify({ target, files: texts, losses, notes })}\n`);
  } else if (files.length === 1) io.stdout(itemAt(files, 0).text);
  else
    throw new ShardwrightError(
      'E_USAGE',
      `--target ${target} writes ${files.length} files: ${names.join(', ')}`,
      {
        hint: 'give -o DIR.',
      },
    );
  return EXIT.ok;
}

/** The file that starts the ranks, where one is asked for. @throws E_USAGE, E_LAUNCHER */
function launcherFiles(folder: WholePlan, { launcher, script }: ExportOptions): ExportFile[] {
  if (launcher === undefined) {
    if (script === undefined) return [];
    throw new ShardwrightError('E_USAGE', '--script is for --launcher', {
      hint: `give --launcher ${LAUNCHERS.join('|')} too.`,
    });
  }
  const { plan } = folder;
  if (pipelineOf(folder) !== undefined)
    throw new ShardwrightError('E_LAUNCHER', 'each stage of a pipeline has a mesh of its own', {
      hint: 'start the stages with the trainer that runs the pipeline.',
    });
  const devices = meshSize(plan.mesh);
  const job = jobOf({ model: plan.model, devices }, loadCluster(plan.request.cluster), {
    script: script ?? 'train.py',
    head: [`${plan.model}: ${devices} devices of ${plan.cluster}, written by Shardwright`],
  });
  return [launcherFile(launcher, job)];
}

/** Seconds that the price of a plan in place of a refused one may take. */
const PRICING_SECONDS = 60;

/** The files, or the refusal with the price of the plan that can be written and its command. */
async function written<Files>(
  folder: WholePlan,
  path: string,
  table: OperatorTable,
  write: () => Files,
): Promise<Files> {
  try {
    return write();
  } catch (error) {
    if (!(error instanceof ShardwrightError) || error.details.nearest === undefined) throw error;
    const hint = await pricedHint(error.details.nearest, folder, path, table);
    throw new ShardwrightError(error.code, error.message, { ...error.details, hint });
  }
}

/**
 * The nearest plan that can be written, with its price, or why it is not a plan of this program.
 */
async function pricedHint(
  { mesh, recipe }: NonNullable<ErrorDetails['nearest']>,
  { plan, program }: WholePlan,
  path: string,
  table: OperatorTable,
): Promise<string> {
  const asked = { ...plan.request, mesh, recipe, pins: [] };
  try {
    const step = await stepOfRecipe(program, asked, table, new Deadline(PRICING_SECONDS));
    const graph = join(path.endsWith('.json') ? dirname(path) : path, 'graph.swg');
    const { trainer } = plan.request;
    const asks = trainer === undefined ? '' : ` --for ${trainer}`;
    return (
      'no flag writes it. The nearest plan that can be written takes ' +
      `${secondsText(step.stepSeconds)} a step and ${bytesText(step.peakBytes)}: shardwright ` +
      `plan ${graph} --mesh ${mesh} --recipe ${recipe} --cluster ${plan.cluster}${asks} ` +
      `-o plan; or export with --target ${ownTarget(program)}.`
    );
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    return (
      `no flag writes it. The nearest known plan is ${recipe} on ${mesh}, of which there is none ` +
      `here (${error.message}); export with --target ${ownTarget(program)}.`
    );
  }
}

/** Files of each sub-folder together. */
function write(folder: string, files: readonly ExportFile[]): void {
  const folders = new Map<string, [string, string][]>();
  for (const { name, text } of files) {
    const at = join(folder, dirname(name));
    folders.set(at, [...(folders.get(at) ?? []), [name.split('/').at(-1) ?? name, text]]);
  }
  for (const [at, list] of folders) writeFolder(at, list, 'export');
}

function list(path: string | undefined, { json, target }: ExportOptions, io: CliIo): number {
  if (target !== undefined) {
    exportTarget(target);
    throw missingError('export', ['<plan>'], `shardwright export plan --target ${target} -o out`);
  }
  if (path !== undefined)
    throw new ShardwrightError('E_USAGE', 'no target is given', {
      hint: `give --target ${EXPORT_TARGETS.map(({ name }) => name).join('|')}.`,
    });
  const targets = EXPORT_TARGETS.map(({ name, summary, triedWith }) => ({
    name,
    summary,
    triedWith,
  }));
  if (json === true) io.stdout(`${JSON.stringify({ targets })}\n`);
  else
    for (const { name, summary, triedWith } of targets)
      io.stdout(
        `${name.padEnd(14)}${summary}${triedWith.length > 0 ? ` (${triedWith.join(', ')})` : ''}\n`,
      );
  return EXIT.ok;
}
