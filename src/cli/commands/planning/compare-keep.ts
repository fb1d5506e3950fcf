/**
 * `compare -o DIR --keep NAME`: keeps a row of a comparison as a plan folder, as `plan --recipe`
 * writes it, with the configuration of its trainer.
 */
import { defined } from '../../../defined.ts';
import { ShardwrightError, suggestion } from '../../../errors.ts';
import { itemAt } from '../../../item-at.ts';
import { parseMesh } from '../../../mesh/devices/mesh.ts';
import { bestPlan, isSafe } from '../../../recipes/compare/best-plan.ts';
import type { ComparedPlan, Comparison } from '../../../recipes/compare/comparison.ts';
import { expertRecipeName } from '../../../recipes/recipes.ts';
import { isRecipeName } from '../../../recipes/registry.ts';
import { launchFiles } from '../../../trainers/launch-files.ts';
import { STAGES_FILE } from '../../input/stages-folder.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import { writeFolder } from '../../output/write-file.ts';
import type { RunControl } from '../../thread/run-control.ts';
import type { CompareOptions, PlanOptions } from './flags.ts';
import { planCommand } from './plan.ts';
import { meshOfPlan } from './plan-mesh.ts';

/** A row to keep, and how it was asked for. */
interface KeptRow {
  readonly model: string;
  readonly folder: string;
  readonly cluster: string;
  readonly options: CompareOptions;
}

/**
 * Writes the folder of the row that `--keep` names, without it of the best that a folder has.
 *
 * @throws E_USAGE for a row that there is not, and one that neither a plan nor a configuration
 *   states
 */
export async function keepRow(
  comparison: Comparison,
  { model, folder, cluster, options }: KeptRow,
  io: CliIo,
  control: RunControl,
): Promise<void> {
  const row =
    options.keep === undefined ? bestKept(comparison) : rowNamed(comparison, options.keep);
  const files = launchFiles(row, comparison);
  const lacks = noPlan(row);
  if (lacks !== undefined && files.length === 0)
    throw new ShardwrightError('E_USAGE', `--keep ${row.name}: no plan folder has ${lacks}`, {
      hint: `name one that a folder has: ${comparison.plans
        .filter((plan) => noPlan(plan) === undefined)
        .slice(0, 3)
        .map(({ name }) => `'${name}'`)
        .join(' or ')}.`,
    });
  if (lacks === undefined) {
    const asked = planOptions(row, comparison, folder, { ...options, cluster: [cluster] });
    const code = await planCommand(model, asked, { ...io, stdout: () => undefined }, control);
    if (code !== EXIT.ok && code !== EXIT.gap)
      throw new ShardwrightError('E_PLAN', `--keep ${row.name}: plan found none (exit ${code})`, {
        hint: 'the whole program may not fit where its priced layers do; keep another row.',
      });
  }
  const layout = `${JSON.stringify({ ...row, question: comparison.question }, null, 2)}\n`;
  const written = [
    ...files.map(({ file, text }) => [file, text] as const),
    ...(row.layout === undefined ? [] : [['layout.json', layout] as const]),
  ];
  if (written.length > 0) writeFolder(folder, written, 'layout');
  const names = [
    ...(lacks === undefined ? [row.pipeline === undefined ? 'plan.json' : STAGES_FILE] : []),
    ...written.map(([name]) => name),
  ];
  const why = lacks === undefined ? '' : `; a plan of a graph has no ${lacks}`;
  const faster = fasterThan(row, comparison, options.keep);
  io.stderr(`kept ${row.plan} on ${row.mesh} in ${folder}: ${names.join(', ')}${why}${faster}\n`);
}

/** Tells that the best is another row, which no folder has, where nobody named one to keep. */
function fasterThan(row: ComparedPlan, comparison: Comparison, named: string | undefined): string {
  const best = bestPlan(comparison);
  if (named !== undefined || best === undefined || best === row) return '';
  const lacks = noPlan(best) ?? 'it';
  return `; the best is ${best.plan} on ${best.mesh}, and no plan folder has ${lacks}`;
}

/**
 * The best row that a plan folder or the configuration of a trainer states; where there is none,
 * the best.
 *
 * @throws E_USAGE for a comparison without plans
 */
function bestKept(comparison: Comparison): ComparedPlan {
  const best = bestPlan(comparison) ?? comparison.plans.at(0);
  if (best === undefined)
    throw new ShardwrightError('E_USAGE', '-o keeps a plan, and the comparison has none');
  const isKept = (row: ComparedPlan): boolean =>
    noPlan(row) === undefined || launchFiles(row, comparison).length > 0;
  if (isKept(best)) return best;
  return comparison.plans.find((row) => isSafe(row, comparison) && isKept(row)) ?? best;
}

/** The row of a name, or the fastest of a kind of plan. @throws E_USAGE */
function rowNamed({ plans }: Comparison, name: string): ComparedPlan {
  const found =
    plans.find((row) => row.name === name || `${row.plan} on ${row.mesh}` === name) ??
    plans.find((row) => row.plan === name);
  if (found !== undefined) return found;
  throw new ShardwrightError('E_USAGE', `--keep ${name}: the comparison has no such plan`, {
    hint: suggestion(name, [...new Set(plans.map(({ plan }) => plan))], 'plans'),
  });
}

/** The options that ask for the plan of a row; undefined where no plan is the same. */
function askedPlan({
  plan,
  mesh,
  pipeline,
}: ComparedPlan): Pick<PlanOptions, 'mesh' | 'recipe' | 'microbatches'> | undefined {
  if (pipeline !== undefined) return { mesh, microbatches: pipeline.microbatches };
  const own = meshOfPlan(mesh);
  if (own === undefined) return undefined;
  if (plan === 'optimum') return { mesh: own };
  if (own === mesh) return isRecipeName(plan) ? { mesh, recipe: plan } : undefined;
  const recipe = expertRecipe(plan, parseMesh(own).names);
  return recipe === undefined ? undefined : { mesh: own, recipe };
}

/** The recipe of a plan with a mesh of experts; undefined where none has its parts. */
function expertRecipe(plan: string, names: readonly string[]): string | undefined {
  const parts = plan.split('+').filter((part) => part !== 'ep' && part !== 'etp');
  // Megatron's tensor ranks of a mixture cut the stream between their regions.
  const tensor = names.includes('tp') ? ['tp', 'sp'] : [];
  const [mode, ...others] = parts;
  if (others.join() !== tensor.join() || !names.includes('ep')) return undefined;
  if (mode === 'dp') return expertRecipeName(names, 'data');
  return mode === 'fsdp' ? expertRecipeName(names, 'fsdp') : undefined;
}

/** The part of a row that a plan of the whole graph cannot state; undefined if it states all. */
function noPlan(row: ComparedPlan): string | undefined {
  const { plan, mesh, choice, layout } = row;
  if (!choice) return `states cut apart from their parameters (${plan})`;
  if (askedPlan(row) === undefined) return `the parts of ${plan} on ${mesh}`;
  if (layout === undefined) return undefined;
  if (layout.microbatches > 1) return `${layout.microbatches} microbatches`;
  return layout.checkpoint === 'none' ? undefined : 'recomputed layers';
}

/** The options of `plan` that ask for the plan of a row. */
function planOptions(
  row: ComparedPlan,
  { question, devices }: Comparison,
  output: string,
  options: CompareOptions,
): PlanOptions {
  const { cluster, seq, devices: _, risk: __, accumulate, ...shared } = options;
  const { plan, layout } = row;
  const isOptimum = plan === 'optimum' || row.pipeline !== undefined;
  const asked = askedPlan(row) ?? { mesh: row.mesh };
  return {
    ...shared,
    cluster: cluster[0] ?? '',
    ...asked,
    output,
    // The devices of stages are those of their mesh.
    ...(row.pipeline === undefined ? { devices, ...defined({ accumulate }) } : {}),
    pin: [],
    cut: [],
    inputs: 'free',
    outputs: 'free',
    objective: 'time',
    solver: 'auto',
    seed: 0,
    uneven: 'allow',
    sharing: true,
    quiet: true,
    recipes: !isOptimum,
    ...(layout === undefined ? { ignoreShardings: true } : {}),
    ...(question === undefined
      ? seq === undefined
        ? {}
        : { seq: itemAt(seq, 0) }
      : { seq: question.sequence, batch: question.globalBatch }),
    ...(question?.trainer === undefined || question.trainerAssumed === true
      ? {}
      : { for: question.trainer }),
  };
}
