/**
 * Writes the tables of docs/costs.md that say how far prices are off the calls that
 * `bench/calibrate.py` measured on an H100 (data/calibration/h100-sxm-80gb.json): as the node
 * design has them, and with `--calibration`. Run: npx tsx scripts/kernel-errors.ts
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { format } from 'prettier';

import { calibratedClusterText } from '../src/cost/hardware/calibrated-text.ts';
import { type MeasuredCall, parseCalibration } from '../src/cost/hardware/calibration.ts';
import type { Cluster } from '../src/cost/hardware/cluster.ts';
import { loadCluster } from '../src/cost/hardware/load-cluster.ts';
import { presetComputeCost } from '../src/cost/presets/presets.ts';
import { median } from '../src/fidelity/metrics.ts';
import type { Arg, DType } from '../src/graph/types.ts';
import { builtinOperators } from '../src/ops/builtin.ts';
import { bindCall, withOutputs } from '../src/ops/record/context.ts';
import type { TensorMeta } from '../src/ops/record/record.ts';

const FILE = fileURLToPath(new URL('../docs/costs.md', import.meta.url));
const TABLE = new URL('../data/calibration/h100-sxm-80gb.json', import.meta.url);
const [START, END] = ['<!-- kernel-errors -->', '<!-- /kernel-errors -->'];
const NODE = 'dgx-h100';

/** Rows of the table, in its order: the calls that they stand for. */
const KINDS: readonly (readonly [string, RegExp])[] = [
  ['products, 1024 rows', /^aten\.mm\..* 1024 /],
  ['products, 8192 rows', /^aten\.mm\..* 8192 /],
  ['grouped products of experts', /^aten\._grouped_mm/],
  ['attention, FlashAttention-2', /flash_attention\.default/],
  ['its backward', /flash_attention_backward/],
  ['attention, cuDNN', /cudnn_attention\.default/],
  ['its backward', /cudnn_attention_backward/],
  ['norms', /rms_norm|layer_norm\.default/],
  ['backward of a norm', /layer_norm_backward/],
  [
    'pointwise: one dtype',
    /\.(add|mul|silu|silu_backward|gelu|gelu_backward|neg|pow|clone|cat|native_dropout)\./,
  ],
  ['casts to 32 bits', /_to_copy.*f32$/],
  ['casts to 16 bits', /_to_copy.*bf16$/],
  ['sums and means', /\.(sum|mean)\./],
  ['softmax, log softmax', /softmax\.default/],
  ['their backward', /softmax_backward/],
  ['loss by classes', /nll_loss/],
  ['largest of a row', /topk/],
  ['rows of a table', /aten\.embedding\.default/],
  ['gradient of a table', /embedding_dense_backward/],
  ['AdamW, fused', /_fused_adamw/],
];

interface Row {
  readonly kind: string;
  readonly count: number;
  /** Predicted over measured less 1. */
  readonly plain: readonly number[];
  readonly calibrated: readonly number[];
}

const table = builtinOperators();
const calibration = parseCalibration(readFileSync(TABLE, 'utf8'));

/** Seconds of a measured call by its operator's record; undefined of operators without one. */
function priced({ op, args, kwargs }: MeasuredCall, cluster: Cluster): number | undefined {
  const metas = new Map<string, TensorMeta>();
  const turned: boolean[] = [];
  const argument = (value: MeasuredCall['args'][number]): Arg => {
    if (Array.isArray(value)) return value.map(argument);
    if (value === null || typeof value !== 'object') return value;
    if ('name' in value) return { kind: 'dtype', dtype: value.name as DType };
    const name = `x${metas.size}`;
    metas.set(name, { dtype: value.dtype as DType, shape: value.shape });
    turned.push(value.turned);
    return { kind: 'value', name };
  };
  const given = args.map(argument);
  const named = Object.fromEntries(
    Object.entries(kwargs).map(([key, value]) => [key, argument(value)]),
  );
  if (op === 'aten._fused_adamw_.default') {
    // Reads weight, gradient and two moments, writes all but the gradient.
    const [weight] = metas.values();
    const bytes = 7 * 4 * weight.shape.reduce((a, b) => a * b, 1);
    return bytes / (cluster.memoryBytesPerSecond * cluster.memoryEfficiency);
  }
  const record = table.get(op);
  if (record === undefined) return undefined;
  const call = bindCall(record, given, named, (name) => metas.get(name) as TensorMeta);
  return presetComputeCost('nccl', record, withOutputs(call, record.infer(call)), cluster, {
    turned,
  }).seconds;
}

/** Errors of both clusters by kind of call. */
export function kernelErrors(): Row[] {
  const plain = loadCluster(NODE);
  const calibrated = loadCluster(calibratedClusterText(NODE, calibration));
  const rows = KINDS.map(([kind]) => ({
    kind,
    count: 0,
    plain: [] as number[],
    calibrated: [] as number[],
  }));
  for (const call of calibration.kernels) {
    const tensors = call.args.flatMap((a) =>
      a !== null && typeof a === 'object' && 'shape' in a ? [a] : [],
    );
    const least = Math.min(
      ...tensors.slice(0, 2).flatMap(({ shape }) => shape.filter((n) => n === 1024 || n === 8192)),
    );
    const to = call.kwargs.dtype;
    const text = (
      `${call.op} ${least} ` +
      `${to !== null && typeof to === 'object' && 'name' in to ? to.name : ''}`
    ).trimEnd();
    const at = KINDS.findIndex(([, pattern]) => pattern.test(`${text} `) || pattern.test(text));
    const seconds = [plain, calibrated].map((cluster) => priced(call, cluster));
    if (at < 0 || seconds.some((s) => s === undefined))
      throw new Error(`no row or no price for ${call.op}`);
    rows[at].count++;
    rows[at].plain.push((seconds[0] as number) / call.seconds - 1);
    rows[at].calibrated.push((seconds[1] as number) / call.seconds - 1);
  }
  return rows;
}

/** The table, in the form that the docs have. */
export function kernelErrorTable(): string {
  const percent = (x: number): string => `${x < 0 ? '−' : ''}${Math.abs(100 * x).toFixed(0)} %`;
  const cell = (errors: readonly number[]): string =>
    `${percent(median(errors) ?? 0)} (${percent(Math.min(...errors))} to ` +
    `${percent(Math.max(...errors))})`;
  const rows = kernelErrors().map(
    ({ kind, count, plain, calibrated }) =>
      `| ${kind} | ${count} | ${cell(plain)} | ${cell(calibrated)} |`,
  );
  return [
    '| calls | number | as the node design has it | with `--calibration` |',
    '| --- | --- | --- | --- |',
    ...rows,
  ].join('\n');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const text = readFileSync(FILE, 'utf8');
  const [from, to] = [text.indexOf(START), text.indexOf(END)];
  if (from < 0 || to < 0) throw new Error(`${FILE} has no ${START} ... ${END}`);
  const made = `${text.slice(0, from)}${START}\n\n${kernelErrorTable()}\n\n${text.slice(to)}`;
  writeFileSync(FILE, await format(made, { parser: 'markdown', printWidth: 140 }));
}
