/**
 * Reads the layout of torchtitan: a TOML file (up to 0.2), or Python that makes its configuration
 * (0.3: `ParallelismConfig(...)`, `config.parallelism.tensor_parallel_degree = 8`). Sources:
 * `JobConfig` of torchtitan 0.2.1, `torchtitan.config` of 0.3.0. Of both languages it reads what
 * configurations are written in: sections or calls, and names with literals.
 */

import { ShardwrightError } from '../../errors.ts';
import type { LayoutDraft } from '../layout/layout-draft.ts';
import { namesOf } from '../layout/setting-names.ts';
import {
  count,
  type FileSetting,
  isOn,
  noPrice,
  placeOf,
  readSettings,
  type SettingsTable,
  type Take,
} from '../layout/settings-table.ts';
import { namedParts } from '../layout/stage-cuts.ts';
import type { ReadLayout } from '../trainer.ts';
import { configurationLines } from './python-configurations.ts';

const SCHEDULES: Readonly<Record<string, string>> = {
  gpipe: 'gpipe',
  '1f1b': '1f1b',
  interleaved1f1b: 'interleaved',
};

const narrow: Take = (value, draft) => {
  if (/(^|[ .])(quantize\.linear\.)?float8/i.test(value)) {
    draft.dtype = 'fp8';
    // The default of torchtitan 0.2 where no recipe is stated.
    draft.fp8Recipe ??= 'current';
  } else if (/nvfp4/i.test(value)) return 'products are priced in 16 bits';
  else if (/mx/i.test(value)) {
    draft.dtype = 'fp8';
    draft.fp8Recipe = 'mxfp8';
  }
  return undefined;
};
const RECIPES: Readonly<Record<string, 'current' | 'rowwise' | 'mxfp8'>> = {
  tensorwise: 'current',
  rowwise: 'rowwise',
  rowwise_with_gw_hp: 'rowwise',
};
/** Reads a key of a section about products in fp8. */
const fp8Recipe: Take = (value, draft, wrong) => {
  if (!Object.hasOwn(RECIPES, value)) throw wrong(Object.keys(RECIPES).join(', '));
  draft.fp8Recipe = RECIPES[value];
  return value === 'rowwise_with_gw_hp' ? 'gradients of weights are priced in fp8, too' : undefined;
};
/** Embedding and head count as a layer each where nothing is said. */
const stages = ({ cuts }: LayoutDraft): Extract<LayoutDraft['cuts'], { trainer: 'torchtitan' }> =>
  cuts?.trainer === 'torchtitan'
    ? cuts
    : { trainer: 'torchtitan', inputWeight: 1, outputWeight: 1 };
const weight =
  (end: 'inputWeight' | 'outputWeight'): Take =>
  (value, draft, wrong) => {
    const n = Number(value);
    if (!Number.isInteger(n) || n < 0) throw wrong('a whole number from 0 on');
    draft.cuts = { ...stages(draft), [end]: n };
    return undefined;
  };
const covered: Take = () => undefined;
const local = count('microbatch');

const TABLE: SettingsTable = {
  data_parallel_replicate_degree: count('replicas'),
  data_parallel_shard_degree: count('shards'),
  tensor_parallel_degree: count('tp'),
  pipeline_parallel_degree: count('pp'),
  context_parallel_degree: count('cp'),
  expert_parallel_degree: count('ep'),
  expert_tensor_parallel_degree: count('etp'),
  enable_sequence_parallel: (value, draft) => void (draft.sequenceParallel = isOn(value)),
  fsdp_reshard_after_forward: (value, draft, wrong) => {
    if (!['default', 'always', 'never'].includes(value)) throw wrong('default, always or never');
    if (value !== 'default') draft.reshards = value === 'always';
    return undefined;
  },
  pipeline_parallel_schedule: (value, draft) => {
    const found = SCHEDULES[value.toLowerCase()] as string | undefined;
    if (found === undefined) return 'priced as 1F1B';
    draft.schedule = found;
    return undefined;
  },
  pipeline_parallel_layers_per_stage: count('chunkLayers'),
  pipeline_parallel_microbatch_size: count('accumulation'),
  pipeline_parallel_first_stage_less_layers: weight('inputWeight'),
  pipeline_parallel_last_stage_less_layers: weight('outputWeight'),
  pipeline_parallel_schedule_csv: noPrice('priced as 1F1B'),
  pipeline_parallel_split_points: noPrice('layers lie in equal parts'),
  module_fqns_per_model_part: (value, draft) => {
    const parts = namedParts(value);
    if (parts === undefined) return 'layers lie in equal parts';
    draft.cuts = { ...stages(draft), parts };
    return undefined;
  },
  pipeline_parallel_expert_parallel_overlap: covered,
  context_parallel_rotate_method: (value, draft) =>
    void (draft.context = value === 'allgather' ? 'cp' : 'ring'),
  context_parallel_load_balancer: covered,
  context_parallel_ptrr_mask_key: covered,
  enable_async_tensor_parallel: noPrice('tensor-parallel collectives are exposed'),
  disable_loss_parallel: noPrice('the loss is cut over tensor ranks'),
  enable_fsdp_symm_mem: covered,
  spmd_backend: covered,
  expert_parallel_comm_backend: covered,
  enable_compiled_autograd: covered,
  local_batch_size: local,
  batch_size: local,
  global_batch_size: count('globalBatch'),
  seq_len: count('sequence'),
  enable_cpu_offload: noPrice('nothing is moved to the host'),
  // Read together, by `takeDtypes`.
  dtype: covered,
  mixed_precision_param: covered,
  mixed_precision_reduce: covered,
  'optimizer.implementation': covered,
  'optimizer.name': (value) =>
    /^adamw?$/i.test(value) ? undefined : 'priced with the states of Adam in their place',
  mode: (value, draft, wrong) => {
    if (!['none', 'full', 'selective', 'memory_budget'].includes(value))
      throw wrong('none, full or selective');
    if (value === 'memory_budget') return 'priced without recomputation';
    // Without an option torchtitan 0.2 recomputes every second layer.
    draft.recompute = value === 'selective' ? 'full' : value;
    return undefined;
  },
  selective_ac_option: (value, draft) => {
    if (draft.recompute !== 'full') return undefined;
    if (value !== 'op') return 'every layer is recomputed, not every n-th';
    draft.recompute = 'operators';
    return undefined;
  },
  recipe_name: fp8Recipe,
  converters: narrow,
  enable: noPrice('--for torchtitan --compiled prices it'),
  compile: noPrice('--for torchtitan --compiled prices it'),
};

/** Sections whose settings the table reads; `parallelism` must hold nothing else. */
const SECTIONS = /^(parallelism|training|activation_checkpoint|compile)\./;
/** Settings of the data, the optimizer's rates, checkpoints, logs and the length of the run. */
const NOTHING = namesOf(`
  job.* model.* profiling.* metrics.* checkpoint.* comm.* lr_scheduler.* validation.* debug.*
  fault_tolerance.* training.dataset training.dataset_path training.max_norm training.steps
  training.seed training.deterministic training.gc_freq training.gc_debug training.warmup_steps
  optimizer.lr optimizer.eps optimizer.beta1 optimizer.beta2 optimizer.weight_decay
  optimizer.early_step_in_backward compile.components compile.backend
  activation_checkpoint.early_stop activation_checkpoint.determinism_check
  activation_checkpoint.debug activation_checkpoint.preserve_rng_state
  activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns
`);
const FP8_RECIPE = /^((quantize\.linear\.)?float8)\.recipe_name$/;

/** Sections of TOML. @throws E_INPUT with the line */
export function readTorchtitanToml(text: string, file: string): ReadLayout {
  let section = '';
  const settings: FileSetting[] = [];
  let open: { readonly key: string; readonly from: number; value: string } | undefined;
  let next = 0;
  text.split('\n').forEach((raw, i) => {
    const offset = next;
    next += raw.length + 1;
    const line = raw.replace(/^((?:[^#"']|"[^"]*"|'[^']*')*)#.*$/, '$1').trim();
    if (line === '') return;
    if (open !== undefined) open.value += ` ${line}`;
    const header = open === undefined ? /^\[\s*([\w.\s"'-]+?)\s*\]$/.exec(line) : null;
    if (header !== null) {
      section = namesOfKey(header[1]).join('.');
      return;
    }
    const pair = open === undefined ? TOML_PAIR.exec(line) : [line, open.key, open.value];
    if (pair === null)
      throw new ShardwrightError('E_INPUT', `found '${line}', wanted a section or NAME = VALUE`, {
        file,
        position: { line: i + 1, column: 1 },
        hint: 'a torchtitan TOML file is read, and Python that makes a configuration.',
      });
    const [, key, value] = pair;
    if (isOpen(value)) {
      open ??= { key, from: i + 1, value };
      return;
    }
    open = undefined;
    const names = [...(section === '' ? [] : [section]), ...namesOfKey(key)];
    settings.push(...tomlSettings(names, value, offset + raw.search(/\S/)));
  });
  if (open !== undefined)
    throw new ShardwrightError('E_INPUT', `a list or a text of several lines is not closed`, {
      file,
      position: { line: (open as { from: number }).from, column: 1 },
      hint: 'close it with ] or with three quotes.',
    });
  return finished(
    settings,
    { text, file },
    {
      recompute: 'selective',
      option: '2',
      alwaysMixed: false,
    },
  );
}

/** A key of TOML, whose names may be quoted, and its value. */
const TOML_PAIR =
  /^((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=\s*(.+)$/;

function namesOfKey(key: string): readonly string[] {
  return (key.match(/"[^"]*"|'[^']*'|[\w-]+/g) ?? []).map((name) => name.replace(/["']/g, ''));
}

/** The setting of a key, or those of the table that it is in one line. */
function tomlSettings(names: readonly string[], value: string, at: number): FileSetting[] {
  if (/^\{.*\}$/.test(value))
    return keywordsFrom(value.slice(1)).flatMap(([key, inner]) =>
      tomlSettings([...names, ...namesOfKey(key)], inner, at),
    );
  const key = names[names.length - 1];
  const path = names.join('.');
  return [{ path, key, value: key === NAMED_PARTS ? value : literal(value), at }];
}

/**
 * Names with values in calls of configurations and assignments to their fields. A value is a
 * literal, or a name that the file sets to one.
 *
 * @throws E_INPUT where a setting of the layout is something else
 */
export function readTorchtitanPython(
  text: string,
  file: string,
  configuration?: string,
): ReadLayout {
  const settings: FileSetting[] = [];
  const whole = text.replace(/("""[\s\S]*?"""|'''[\s\S]*?''')/g, '').replace(/#.*$/gm, '');
  const bare = configurationLines(whole, file, configuration);
  const names = new Map(
    [...whole.matchAll(/^(\w+)(?:\s*:\s*\w+)?\s*=\s*(\S+)\s*$/gm)].map(
      ([, name, value]) => [name, value] as const,
    ),
  );
  const take = (section: string, key: string, stated: string): void => {
    const given = names.get(stated) ?? stated;
    const path = `${section}.${key}`;
    if (LITERAL.test(given)) settings.push({ path, key, value: literal(given) });
    else if (!Object.hasOwn(TABLE, key)) settings.push({ path, key, value: given });
    else if (given.startsWith('['))
      settings.push({ path, key, value: key === NAMED_PARTS ? given : 'a list' });
    else
      throw new ShardwrightError(
        'E_INPUT',
        `${path}: found '${given}', wanted a number, a text or True`,
        { file, hint: 'write the value, or a name that the file sets to one.' },
      );
  };
  for (const call of bare.matchAll(/\b(ParallelismConfig|TrainingConfig|CompileConfig)\s*\(/g))
    for (const [key, value] of keywordsFrom(bare.slice(call.index + call[0].length)))
      take(CALLS[call[1]], key, value);
  for (const [, section, key, value] of bare.matchAll(
    /\.(parallelism|training|compile)\.(\w+)\s*=(?!=)\s*(.+?)\s*$/gm,
  ))
    take(section, key, value);
  const quantized = /\b(Float8|MXFP8|NVFP4)LinearConverter\b/.exec(bare)?.[1].toLowerCase();
  if (quantized === 'float8') {
    const recipe =
      /\bFloat8LinearConverter\.Config\s*\([^)]*\brecipe_name\s*=\s*["'](\w+)["']/.exec(bare)?.[1];
    settings.push({ path: 'float8.recipe_name', key: 'recipe_name', value: recipe ?? 'rowwise' });
  }
  if (quantized !== undefined)
    settings.push({ path: 'converters', key: 'converters', value: quantized });
  const recompute = /\bFullAC\b/.test(bare)
    ? 'full'
    : /\bSelectiveAC\b/.test(bare)
      ? 'selective'
      : 'none';
  if (/\bfused_opt_states_bf16\b/.test(whole))
    settings.push({
      path: 'optimizer.implementation',
      key: 'implementation',
      value: 'fused_opt_states_bf16',
    });
  // `fully_shard` of 0.3 has its precision on one data rank, too.
  return finished(settings, { text, file }, { recompute, option: 'op', alwaysMixed: true });
}

/** Keywords of a call, from behind its bracket to the one that closes it. */
function keywordsFrom(text: string): (readonly [key: string, value: string])[] {
  const parts = [''];
  let depth = 0;
  for (const [token] of text.matchAll(/"[^"]*"|'[^']*'|[\s\S]/g)) {
    if (/^[([{]$/.test(token)) depth++;
    else if (/^[)\]}]$/.test(token) && --depth < 0) break;
    if (token === ',' && depth === 0) parts.push('');
    else parts[parts.length - 1] += token;
  }
  return parts.flatMap((part) => {
    const [, key, value] = /^\s*([\w."'-]+)\s*=(?!=)\s*([\s\S]*?)\s*$/.exec(part) ?? [];
    return key === undefined ? [] : [[key, value] as const];
  });
}

/** Tells whether a list, or a text of several lines, goes on in the next line. */
function isOpen(value: string): boolean {
  const [, quotes] = /^("{3}|'{3})/.exec(value) ?? [];
  if (quotes !== undefined) return !value.slice(3).includes(quotes);
  const bare = value.replace(/"[^"]*"|'[^']*'/g, '');
  return value.startsWith('[') && bare.split('[').length > bare.split(']').length;
}

/** The setting that names the modules of every stage. */
const NAMED_PARTS = 'module_fqns_per_model_part';

const LITERAL = /^("[^"]*"|'[^']*'|-?\d[\d_.]*|True|False|None)$/;
const CALLS: Readonly<Record<string, string>> = {
  ParallelismConfig: 'parallelism',
  TrainingConfig: 'training',
  CompileConfig: 'compile',
};

function literal(text: string): string {
  const value = text.trim();
  if (/^\[.*\]$/.test(value))
    return value
      .slice(1, -1)
      .split(',')
      .map(literal)
      .filter((v) => v !== '')
      .join(' ');
  const [, , long] = /^("{3}|'{3})\s*([\s\S]*)\1$/.exec(value) ?? [];
  if (long !== undefined) return long;
  const quoted = /^"([^"]*)"|^'([^']*)'/.exec(value);
  return quoted === null ? value.replaceAll('_', '') : (quoted[1] ?? quoted[2]);
}

function finished(
  settings: readonly FileSetting[],
  source: { readonly text: string; readonly file: string },
  defaults: {
    readonly recompute: string;
    readonly option: string;
    readonly alwaysMixed: boolean;
  },
): ReadLayout {
  // Sections have keys of the same name: those of the layout have the names of the table.
  const own = settings.map((s) =>
    SECTIONS.test(s.path) || FP8_RECIPE.test(s.path) || s.key === 'converters'
      ? s
      : { ...s, key: s.path },
  );
  const { draft, notPriced } = readSettings(withCheckpointing(own, defaults), TABLE, {
    ...source,
    closed: ({ path }) => path.startsWith('parallelism.'),
    changesNothing: ({ path }) => NOTHING.test(path),
  });
  takeDefaults(draft);
  takeDtypes(draft, settings, source, defaults.alwaysMixed);
  // Names of other modules than the layers, and points, have no price: layers lie in equal parts
  // then.
  const isNamed = own.some(
    ({ key }) => key === NAMED_PARTS || key === 'pipeline_parallel_split_points',
  );
  if (!isNamed) draft.cuts = stages(draft);
  else if (draft.cuts?.trainer !== 'torchtitan' || draft.cuts.parts === undefined)
    delete draft.cuts;
  // Schedules with several stages a rank have two of them, where the layers of a stage are not
  // stated.
  if ((draft.pp ?? 1) > 1 && draft.schedule === 'interleaved' && draft.chunkLayers === undefined)
    draft.chunks = 2;
  return { draft, notPriced };
}

/** The settings with the mode of checkpointing, and the option of a selective one. */
function withCheckpointing(
  own: readonly FileSetting[],
  defaults: { readonly recompute: string; readonly option: string },
): FileSetting[] {
  const given: FileSetting[] = [
    // An option has its meaning together with its mode.
    ...own.filter(({ key }) => key !== 'selective_ac_option'),
    ...(own.some(({ key }) => key === 'mode')
      ? []
      : [
          {
            path: 'activation_checkpoint.mode',
            key: 'mode',
            value: defaults.recompute === 'none' ? 'off' : defaults.recompute,
          },
        ]),
  ].filter(({ key, value }) => key !== 'mode' || value !== 'off');
  const option = own.find(({ key }) => key === 'selective_ac_option') ?? {
    path: 'activation_checkpoint.selective_ac_option',
    key: 'selective_ac_option',
    value: defaults.option,
  };
  const selective = given.some(({ key, value }) => key === 'mode' && value === 'selective');
  return [...given, ...(selective ? [option] : [])];
}

/** Fills in what torchtitan does where nothing is stated. */
function takeDefaults(draft: LayoutDraft): void {
  const pieces = draft.accumulation ?? 1;
  delete draft.accumulation;
  const localBatch = draft.microbatch ?? 8;
  const pp = draft.pp ?? 1;
  draft.replicas ??= 1;
  draft.shards ??= -1;
  // 0.3 has no such setting: PyTorch gathers keys and values.
  draft.context ??= 'cp';
  // All ranks of a shard degree of 1 have whole parameters.
  draft.zero = draft.shards === 1 && (draft.cp ?? 1) === 1 ? 0 : 3;
  draft.sequenceParallel ??= true;
  draft.sequence ??= 2048;
  draft.microbatch = pp > 1 ? pieces : localBatch;
  if (draft.globalBatch === undefined) draft.accumulation = pp > 1 ? localBatch / pieces : 1;
}

/**
 * The dtypes of a run: all states are in `training.dtype`; computation and sums have those of mixed
 * precision, where FSDP or autocast brings it (`maybe_enable_amp`: without FSDP only where no other
 * dim cuts the model).
 */
function takeDtypes(
  draft: LayoutDraft,
  settings: readonly FileSetting[],
  source: { readonly text: string; readonly file: string },
  alwaysMixed: boolean,
): void {
  const stated = (path: string, otherwise: 'float32' | 'bfloat16'): 'fp32' | 'bf16' => {
    const setting = settings.findLast((s) => s.path === path);
    const value = setting?.value ?? otherwise;
    if (value !== 'float32' && value !== 'bfloat16')
      throw new ShardwrightError(
        'E_INPUT',
        `${path}: found '${value}', wanted float32 or bfloat16`,
        {
          ...placeOf(setting ?? { path }, source),
          hint: 'change the file.',
        },
      );
    return value === 'float32' ? 'fp32' : 'bf16';
  };
  const own = stated('training.dtype', 'float32');
  const products = stated('training.mixed_precision_param', 'bfloat16');
  const sums = stated('training.mixed_precision_reduce', 'float32');
  const { pp = 1, cp = 1, tp = 1, ep = 1, shards = 1 } = draft;
  const isCut = alwaysMixed || shards !== 1 || cp > 1;
  const isMixed = isCut || pp * tp * ep === 1;
  draft.dtype ??= (isMixed ? products : own) === 'fp32' ? 'f32' : 'bf16';
  draft.gradients = isCut ? sums : own;
  const narrowMoments = settings.some(
    ({ path, value }) => path === 'optimizer.implementation' && value === 'fused_opt_states_bf16',
  );
  draft.states = narrowMoments && own === 'fp32' ? 'fp32:bf16' : own;
}
