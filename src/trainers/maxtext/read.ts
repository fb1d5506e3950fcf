/**
 * Reads the layout of a configuration of MaxText (YAML, `base_config: base.yml` or a whole one).
 * Source: `base.yml`, `pyconfig.py` and `max_utils.py` of MaxText: a mesh dim is `ici` within a
 * slice and `dcn` between slices, -1 is what the devices leave, and the rules of `base.yml` cut
 * weights over `fsdp`, `context` and `expert`.
 */
import { ShardwrightError, suggestion } from '../../errors.ts';
import type { LayoutDraft, LayoutSetting } from '../layout/layout-draft.ts';
import {
  count,
  type FileSetting,
  isOn,
  noPrice,
  placeOf,
  readSettings,
  settingsOf,
  type SettingsTable,
} from '../layout/settings-table.ts';
import type { ReadLayout } from '../trainer.ts';

/** Axes whose degrees a layout has; what is not stated is 1, but for `dcn_data` and `ici_fsdp`. */
const AXES = [
  'pipeline',
  'data',
  'fsdp',
  'expert',
  'context',
  'tensor',
  'tensor_sequence',
] as const;
type Axis = (typeof AXES)[number];
/** Axes of `base.yml` that no layout of ours has. */
const OTHER_AXES = [
  'diloco',
  'context_usp_ulysses',
  'fsdp_transpose',
  'sequence',
  'tensor_transpose',
  'autoregressive',
  'context_autoregressive',
];
const AXIS = /^(ici|dcn)_(\w+)_parallelism$/;

const POLICIES: Readonly<Record<string, string>> = {
  none: 'none',
  minimal: 'products',
  full: 'full',
};

const TABLE: SettingsTable = {
  max_target_length: count('sequence'),
  gradient_accumulation_steps: count('accumulation'),
  context_parallel_strategy: (value, draft, wrong) => {
    if (value !== 'all_gather' && value !== 'ring') throw wrong('all_gather or ring');
    draft.context = value === 'ring' ? 'ring' : 'cp';
    return undefined;
  },
  shard_optimizer_over_data: (value, draft) => void (isOn(value) ? (draft.zero = 1) : undefined),
  dtype: (value, draft, wrong) => {
    const dtype: Readonly<Record<string, string>> = { bfloat16: 'bf16', float32: 'f32' };
    if (!Object.hasOwn(dtype, value)) throw wrong('bfloat16 or float32');
    draft.dtype = dtype[value];
    return undefined;
  },
  weight_dtype: (value) =>
    value === 'float32' ? undefined : 'priced with weights in float32, as base.yml has them',
  num_pipeline_repeats: (value) =>
    Number(value) > 1 ? 'the circular pipeline is priced as one chunk a stage' : undefined,
  quantization: noPrice('products in narrow dtypes: ask --fp8'),
  optimizer_memory_host_offload: noPrice('nothing is moved to the host'),
  parameter_memory_host_offload: noPrice('nothing is moved to the host'),
};

/** Tells whether a text has the degrees of MaxText's mesh. */
export function isMaxtext(text: string): boolean {
  return /^\s*(ici|dcn)_\w+_parallelism\s*:/m.test(text);
}

/** @throws E_INPUT naming the key, with line and column */
export function readMaxtext(value: unknown, text: string, setting: LayoutSetting): ReadLayout {
  const { file, devices } = setting;
  const settings = settingsOf(value);
  const fail: Fail = (found, what, hint) =>
    new ShardwrightError('E_INPUT', what, { ...placeOf(found, { text, file }), hint });
  const degrees = degreesOf(settings, devices, fail);
  const rest = settings.filter(({ key }) => !AXIS.test(key) && !OWN.has(key));
  const { draft, notPriced } = readSettings(rest, TABLE, {
    text,
    file,
    changesNothing: ({ key }) => !/_parallelism$|offload|quant/.test(key),
  });
  sized(draft, degrees);
  batchOf(draft, settings, { devices, fail });
  const policy = settings.find(({ key }) => key === 'remat_policy');
  const name = policy?.value ?? 'full';
  draft.recompute = POLICIES[name] ?? 'products';
  const unknown =
    policy === undefined || Object.hasOwn(POLICIES, name)
      ? []
      : [{ key: 'remat_policy', value: name, why: 'priced as minimal: products are kept' }];
  return { draft, notPriced: [...notPriced, ...unknown] };
}

/** Settings that are read together with others. */
const OWN = new Set(['per_device_batch_size', 'num_pipeline_microbatches', 'remat_policy']);

type Fail = (setting: FileSetting, what: string, hint: string) => ShardwrightError;

/** The degree of each axis, within and between slices. @throws E_INPUT */
function degreesOf(
  settings: readonly FileSetting[],
  devices: number,
  fail: Fail,
): Readonly<Record<Axis, number>> {
  const degree = new Map<string, number>([
    ['ici_fsdp', -1],
    ['dcn_data', -1],
  ]);
  let last: FileSetting | undefined;
  for (const setting of settings) {
    const [, where, axis] = AXIS.exec(setting.key) ?? [];
    if (where === undefined || axis === undefined) continue;
    const n = Number(setting.value);
    if (!Number.isInteger(n) || (n < 1 && n !== -1))
      throw fail(
        setting,
        `${setting.key}: found '${setting.value}', wanted a whole number from 1 on, or -1`,
        '-1 takes the devices that the other axes leave.',
      );
    if (!(AXES as readonly string[]).includes(axis)) {
      const hint = OTHER_AXES.includes(axis)
        ? 'layouts have no such axis: write the layout out, --layout tp=8,dp=8.'
        : suggestion(axis, AXES, 'axes');
      if (n !== 1) throw fail(setting, `${setting.key}: found ${n}, wanted 1`, hint);
      continue;
    }
    degree.set(`${where}_${axis}`, n);
    last = setting;
  }
  settleRest(degree, devices, (what) =>
    fail(last ?? { path: '', key: '', value: '' }, what, 'change --devices, or the axes.'),
  );
  const of = (axis: Axis): number =>
    (degree.get(`ici_${axis}`) ?? 1) * (degree.get(`dcn_${axis}`) ?? 1);
  return Object.fromEntries(AXES.map((axis) => [axis, of(axis)])) as Record<Axis, number>;
}

/**
 * Gives an axis of -1 the devices that are left; where both kinds have one, all devices are one
 * slice. @throws E_INPUT where the axes do not make up the devices
 */
function settleRest(
  degree: Map<string, number>,
  devices: number,
  fail: (what: string) => ShardwrightError,
): void {
  const open = [...degree].filter(([, n]) => n === -1).map(([axis]) => axis);
  const inner = open.filter((axis) => axis.startsWith('ici_'));
  const outer = open.filter((axis) => axis.startsWith('dcn_'));
  if (inner.length > 1 || outer.length > 1)
    throw fail(`${(inner.length > 1 ? inner : outer).join(' and ')} are -1; one of them may be`);
  const [first, second] = [inner[0] ?? outer[0], inner[0] === undefined ? undefined : outer[0]];
  if (second !== undefined) degree.set(second, 1);
  const product = [...degree].reduce((all, [, n]) => (n === -1 ? all : all * n), 1);
  if (first !== undefined) degree.set(first, devices / product);
  const whole = first === undefined ? product === devices : Number.isInteger(devices / product);
  if (!whole) throw fail(`the axes make ${product} devices, and --devices is ${devices}`);
}

/** Puts the degrees into the draft. */
function sized(draft: LayoutDraft, degree: Readonly<Record<Axis, number>>): void {
  draft.pp = degree.pipeline;
  draft.cp = degree.context;
  draft.tp = degree.tensor * degree.tensor_sequence;
  draft.ep = degree.expert;
  draft.sequenceParallel = degree.tensor_sequence > 1;
  // Its default, where the file does not say.
  draft.context ??= 'cp';
  if (degree.pipeline > 1) draft.schedule = 'gpipe';
  const shards = degree.fsdp * degree.expert;
  // Dims of weights lie over `context` and `expert`, too.
  if (shards * degree.context === 1) draft.zero ??= 0;
  else {
    draft.zero = 3;
    draft.reshards = true;
    draft.shards = shards;
    draft.replicas = degree.data;
  }
}

/**
 * Microbatch and batch: a batch is stated by device, whatever the device is for. @throws E_INPUT
 */
function batchOf(
  draft: LayoutDraft,
  settings: readonly FileSetting[],
  { devices, fail }: { readonly devices: number; readonly fail: Fail },
): void {
  const stated = settings.find(({ key }) => key === 'per_device_batch_size');
  const { pp = 1, cp = 1, tp = 1, accumulation = 1 } = draft;
  const split = settings.find(({ key }) => key === 'num_pipeline_microbatches')?.value;
  const pieces = pp === 1 ? 1 : Number(split ?? -1) === -1 ? pp : Number(split);
  draft.accumulation = accumulation * pieces;
  if (stated === undefined) return;
  const each = Number(stated.value);
  const microbatch = (each * pp * cp * tp) / pieces;
  if (!(each > 0) || !isWhole(microbatch) || !isWhole(each * devices))
    throw fail(
      stated,
      `per_device_batch_size: found '${stated.value}', which gives a data rank ${microbatch} ` +
        `sequences at a time on pp x cp x tp = ${pp * cp * tp} devices`,
      'a microbatch is a whole number of sequences.',
    );
  draft.microbatch = Math.round(microbatch);
  draft.globalBatch = Math.round(each * devices) * accumulation;
}

/** Shares of devices in a batch are written as decimal fractions. */
function isWhole(n: number): boolean {
  return Math.abs(n - Math.round(n)) < 1e-6 && Math.round(n) > 0;
}
