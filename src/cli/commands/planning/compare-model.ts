/**
 * One comparison of a model by name or config: reads what the flags say of it, asks it, adds the
 * run and the stated layout.
 */

import { existsSync } from 'node:fs';
import { basename } from 'node:path';

import { loadCluster } from '../../../cost/hardware/load-cluster.ts';
import type { Price } from '../../../cost/hardware/operation.ts';
import { defaultCostPreset } from '../../../cost/presets/presets.ts';
import { defined } from '../../../defined.ts';
import { ShardwrightError } from '../../../errors.ts';
import {
  type AskedModel,
  checkedLayout,
  type LayoutAsked,
  layoutOfText,
  layoutSource,
  questionAsked,
} from '../../../fidelity/asked-question.ts';
import { refitOn } from '../../../fidelity/refit.ts';
import { ADAPTERS, looksLikeConfig, parseModelConfig } from '../../../models/families.ts';
import type { JsonRecord } from '../../../models/read-config.ts';
import { isModelName, modelEntry } from '../../../models/registry.ts';
import { builtinOperators } from '../../../ops/builtin.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import type { Deadline } from '../../../plan/request/deadline.ts';
import { readFileText } from '../../../platform/read-file.ts';
import type { Comparison } from '../../../recipes/compare/comparison.ts';
import { withRefit } from '../../../recipes/compare/with-refit.ts';
import { compareModel } from '../../../sweep/compare-model.ts';
import { compareLayout } from '../../../sweep/layout/compare-layout.ts';
import { type AskedRun, withRun } from '../../../sweep/planning/run-question.ts';
import { withRunsTable } from '../../input/runs-table.ts';
import type { CompareOptions } from './flags.ts';

/** Tells whether a model is stdin, a file or a name; the loader of models refuses all else. */
export function isKnown(model: string): boolean {
  return model === '-' || existsSync(model) || isModelName(model);
}

/**
 * The config of a model by name or of a config file, with adapters where they are asked for;
 * undefined for anything else.
 */
export function configOf(model: string, lora?: JsonRecord): AskedModel | undefined {
  const found = plainConfigOf(model);
  if (found === undefined || isNoStack(found)) return undefined;
  if (lora === undefined) return found;
  const record = JSON.parse(found.text) as JsonRecord;
  return { ...found, text: JSON.stringify({ ...record, [ADAPTERS]: lora }) };
}

/** Tells whether a model is known, and planned as a graph: its layers are not a stack. */
function isNoStack({ text }: AskedModel): boolean {
  return (
    /"unet2d_condition"|"UNet2DConditionModel"/.test(text) &&
    parseModelConfig(text).architecture.isNoStack === true
  );
}

function plainConfigOf(model: string): AskedModel | undefined {
  const isStdin = model === '-';
  if (!isStdin && !existsSync(model))
    return isModelName(model)
      ? { name: modelEntry(model).name, text: JSON.stringify(modelEntry(model).config) }
      : undefined;
  if (!isStdin && !model.endsWith('.json')) return undefined;
  const text = readFileText(model);
  try {
    const json: unknown = JSON.parse(text);
    if (typeof json !== 'object' || json === null || !looksLikeConfig(json as JsonRecord))
      return undefined;
  } catch {
    // The loader of graphs reports a broken file, because it knows the place of the fault.
    return undefined;
  }
  return { name: isStdin ? 'stdin' : basename(model, '.json'), text };
}

/** One comparison of a model by its config. */
interface AskedPoint {
  readonly devices: number;
  /** Node design, or the text of a cluster file. */
  readonly cluster: string;
  readonly sequence?: number | undefined;
  readonly globalBatch?: number | undefined;
  readonly price?: Price | undefined;
}

/** The flags of a comparison that a model by its config takes. */
type ConfigOptions = Pick<
  CompareOptions,
  | 'cost'
  | 'for'
  | 'framework'
  | 'compiled'
  | 'fp8'
  | 'like'
  | 'dtype'
  | 'padVocab'
  | 'memory'
  | 'headroom'
  | 'risk'
  | 'optimizer'
  | 'gradients'
  | 'carbon'
  | 'tokens'
  | 'layout'
  | 'plans'
  | 'slice'
  | 'threads'
  | 'resume'
>;

/** Compares the plans of a model by its config. */
export async function compareByConfig(
  config: AskedModel,
  point: AskedPoint,
  options: ConfigOptions,
  control: {
    readonly deadline: Deadline;
    readonly onPlan: () => void;
    readonly onProgress?: (line: string) => void;
    readonly whatIf?: boolean;
    /** True if only layouts are asked for whose passes run one after another. */
    readonly serialPasses?: true;
  },
): Promise<Comparison> {
  const { serialPasses } = control;
  const asked =
    options.layout === undefined
      ? undefined
      : layoutAsked(options.layout, config.text, point.devices);
  const cost = options.cost ?? defaultCostPreset(loadCluster(point.cluster));
  const table = builtinOperators();
  const fitted =
    options.like === undefined
      ? undefined
      : await refitAsked(options.like, cost, point.cluster, table, control.onProgress);
  const question = {
    ...questionAsked(config, point, options, { asked, cost, fitted }),
    ...defined({ serialPasses }),
  };
  const run = runAsked(options, point.price);
  const layout = asked === undefined ? undefined : checkedLayout(asked, question);
  const found = await compareModel(question, {
    table,
    ...control,
    ...defined({
      plans: options.plans,
      slice: options.slice,
      threads: options.threads,
      resume: options.resume,
    }),
  });
  const compared = fitted === undefined ? found : withRefit(found, fitted.refit);
  const costed = withRun(compared, question, run);
  if (layout === undefined || asked === undefined) return costed;
  const best = compared.plans.find((plan) => plan.name === compared.best);
  return {
    ...costed,
    layout: await compareLayout(
      question,
      {
        text: asked.text,
        layout,
        bestSeconds: best?.seconds,
        run,
        from: layoutSource(asked, question),
        certainty: compared.certainty,
      },
      table,
    ),
  };
}

/**
 * The constants that `--like` asks for. @throws E_USAGE, E_IO, E_CSV with the line, E_INPUT for a
 * table with too few runs
 */
async function refitAsked(
  path: string,
  cost: string,
  cluster: string,
  table: OperatorTable,
  onProgress?: (line: string) => void,
): ReturnType<typeof refitOn> {
  if (cost !== 'nccl')
    throw new ShardwrightError('E_USAGE', `--like goes with --cost nccl, not ${cost}`, {
      hint: 'other presets have no constants that are fitted.',
    });
  return withRunsTable(path, (text) => refitOn(text, cluster, table, onProgress));
}

/**
 * Reads the value of `--layout`: settings, or a file of a trainer that states them. @throws
 * E_INPUT, E_IO
 */
export function layoutAsked(layout: string, config: string, devices: number): LayoutAsked {
  if (/^[a-z_]+\s*=/.test(layout) || !(existsSync(layout) || /[./]/.test(layout)))
    return { text: layout };
  // A Python file of several configurations has one behind a colon.
  const [, path = layout, configuration] = existsSync(layout)
    ? []
    : (/^(.+\.py):(\w+)$/.exec(layout) ?? []);
  const text = readFileText(path, {
    what: 'layout',
    hint: 'give settings such as tp=8,pp=4,dp=8, or a configuration of a trainer.',
  });
  const read = layoutOfText(text, { file: path, devices, ...defined({ configuration }) }, config);
  return { ...read, from: { ...read.from, file: basename(layout) } };
}

/** Reads the values of `--tokens`, `--price` and `--carbon`. */
function runAsked(
  { tokens, carbon }: Pick<CompareOptions, 'tokens' | 'carbon'>,
  price: Price | undefined,
): AskedRun | undefined {
  if (tokens !== undefined) return { tokens, ...defined({ price, carbon }) };
  if (price !== undefined)
    throw new ShardwrightError('E_USAGE', '--price needs --tokens: a price is of a whole run', {
      hint: '--tokens 15T --price 2.5USD',
    });
  if (carbon !== undefined)
    throw new ShardwrightError('E_USAGE', '--carbon needs --tokens: it is of a whole run', {
      hint: '--tokens 15T --carbon 350',
    });
  return undefined;
}
