/**
 * Reads a table of published training runs and gives each as dimensions, plan, machine and measured
 * values, or the reason why it cannot be predicted.
 */

import {
  modelFlops,
  type ParallelPlan,
  type RecomputeMode,
  type TrainingSystem,
  type TransformerShape,
} from '../cost/training/shape.ts';
import { editDistance, ShardwrightError } from '../errors.ts';
import { type Framework, type FrameworkName, FRAMEWORKS } from '../trainers/frameworks.ts';
import { type CsvRow, parseCsv } from './csv.ts';
import {
  recomputeModes,
  SOFTWARE_COLUMNS,
  softwareOf,
  statedFramework,
  zeroStage,
} from './software.ts';
import { runMachine } from './systems.ts';

/** One measured training run: dimensions, plan, machine, and what was measured. */
export interface MeasuredRun {
  readonly id: string;
  readonly line: number;
  readonly group: string;
  readonly source: string;
  readonly shape: TransformerShape;
  readonly plan: ParallelPlan;
  readonly system: TrainingSystem;
  /** Name or JSON text of the cluster. */
  readonly clusterText: string;
  readonly framework: FrameworkName;
  readonly devices: number;
  /** The facts that two rows must share to be compared: dimensions, batch, devices, dtype. */
  readonly comparable: string;
  /** Measured step time; undefined for rows that ran out of memory. */
  readonly stepSeconds?: number;
  readonly memoryBytes?: number;
  readonly outOfMemory: boolean;
  /** Recompute mode as the table has it; where it does not say, what may be, least first. */
  readonly recomputeModes: readonly RecomputeMode[];
  /**
   * Sizes of a microbatch above that of the plan, the smallest first, where the row states none:
   * the largest that fits is taken.
   */
  readonly largerMicrobatches: readonly number[];
  readonly assumptions: readonly string[];
}

/** A row that cannot be predicted, and why. */
export interface SkippedRun {
  readonly id: string;
  readonly line: number;
  readonly source: string;
  readonly reason: string;
}

const RUN_COLUMNS = [
  'id',
  'group',
  'source',
  'model',
  'layers',
  'hidden',
  'heads',
  'kv_heads',
  'ffn',
  'ffn_type',
  'vocab',
  'n_experts',
  'top_k',
  'moe_ffn',
  'seq',
  'gbs',
  'mbs',
  'gpus',
  'gpu_type',
  'dp',
  'fsdp',
  'zero_stage',
  'tp',
  'sp',
  'pp',
  'vp',
  'cp',
  'ep',
  'ac_mode',
  'dtype',
  'extras',
  'tokens_s_gpu',
  'step_time_s',
  'tflops_gpu',
  'tflops_convention',
  'mfu_pct',
  'mem',
  'mem_unit',
  'status',
] as const;
type Column = (typeof RUN_COLUMNS)[number] | (typeof SOFTWARE_COLUMNS)[number];

/**
 * Reads a table of measured runs.
 *
 * @throws E_CSV for text that is no such table; a cell that is no number is an error with its line
 */
export function parseRuns(text: string): {
  readonly runs: readonly MeasuredRun[];
  readonly skipped: readonly SkippedRun[];
} {
  const runs: MeasuredRun[] = [];
  const skipped: SkippedRun[] = [];
  const { columns, rows } = parseCsv(text, RUN_COLUMNS);
  checkColumns(columns);
  for (const row of rows) {
    const found = readRun(row);
    if ('reason' in found) skipped.push(found);
    else runs.push(found);
  }
  return { runs, skipped };
}

/**
 * Columns of notes are not read; one that is a slip away from a column that is missing would be
 * left out in silence. @throws E_CSV
 */
function checkColumns(columns: readonly string[]): void {
  const missing = SOFTWARE_COLUMNS.filter((name) => !columns.includes(name));
  for (const [i, column] of columns.entries()) {
    const meant = missing.find((name) => column.length > 4 && editDistance(column, name) <= 2);
    if (meant === undefined) continue;
    throw new ShardwrightError('E_CSV', `column ${i + 1} is '${column}', which is not read`, {
      position: { line: 1, column: 1 },
      hint: `did you mean '${meant}'?`,
    });
  }
}

function readRun(row: CsvRow): MeasuredRun | SkippedRun {
  const cell = (name: Column): string => (row.cells.get(name) ?? '').trim();
  const number = (name: Column, missing: number): number => {
    const text = cell(name);
    if (text === '') return missing;
    const value = Number(text);
    if (!Number.isFinite(value) || value < 0 || value > 1e12)
      throw new ShardwrightError(
        'E_CSV',
        `column '${name}' holds '${text.slice(0, 40)}', a number of 0 or more is expected`,
        {
          position: { line: row.line, column: 1 },
        },
      );
    return value;
  };
  const id = cell('id');
  const source = cell('source');
  const skip = (reason: string): SkippedRun => ({ id, line: row.line, source, reason });
  const assumptions: string[] = [];

  const machine = runMachine(cell('gpu_type'));
  if (machine === undefined) return skip(`no hardware figures for '${cell('gpu_type')}'`);
  if (machine.assumption !== undefined) assumptions.push(machine.assumption);
  const text = {
    line: row.line,
    model: cell('model'),
    extras: cell('extras'),
    dtype: cell('dtype'),
    zero: cell('zero_stage'),
    recompute: cell('ac_mode'),
    gpuType: cell('gpu_type'),
    cluster: machine.cluster,
    ...(machine.blockingLaunches === true && { blockingLaunches: true }),
    column: cell,
  };
  const framework = statedFramework(text);
  if (framework.assumption !== undefined) assumptions.push(framework.assumption);
  const layers = number('layers', 0);
  const hidden = number('hidden', 0);
  const heads = number('heads', 0);
  const sequence = number('seq', 0);
  const globalBatch = number('gbs', 0);
  const devices = number('gpus', 0);
  const missing = [
    ['layers', layers],
    ['hidden', hidden],
    ['heads', heads],
    ['seq', sequence],
    ['gbs', globalBatch],
    ['gpus', devices],
  ]
    .filter(([, v]) => v === 0)
    .map(([k]) => k);
  if (missing.length > 0) return skip(`no ${missing.join(', ')}`);
  const degrees = {
    replicas: number('dp', 1),
    shards: number('fsdp', 1),
    tensor: number('tp', 1),
    pipeline: number('pp', 1),
    context: number('cp', 1),
  };
  const product =
    degrees.replicas * degrees.shards * degrees.tensor * degrees.pipeline * degrees.context;
  if (product !== devices)
    return skip(`the degrees multiply to ${product}, not to ${devices} devices`);

  const latent = cell('kv_heads') === 'MLA';
  const kvHeads = latent ? heads : number('kv_heads', heads);
  const headDim = latent ? 128 : number('head_dim', hidden / heads);
  if (latent) assumptions.push('latent attention with the widths of DeepSeek-V3');
  const ffnType = cell('ffn_type');
  const gated = ffnType.includes('swiglu');
  const expertCount = number('n_experts', 0);
  const expertFfn = number('moe_ffn', 0);
  const sparse = expertCount > 1;
  if (sparse && expertFfn === 0) return skip('experts without moe_ffn');
  const shape: TransformerShape = {
    layers,
    hidden,
    heads,
    kvHeads,
    headDim: Math.round(headDim),
    ffn: number('ffn', sparse ? expertFfn * number('top_k', 1) : 4 * hidden),
    gated,
    vocab: number('vocab', 50_000),
    sequence,
    // Further tokens that are predicted (arXiv:2412.19437, section 2.2).
    ...(number('mtp', 0) > 0 && { furtherTokens: number('mtp', 0) }),
    ...(latent && { latent: { query: 1536, keyValue: 512, rotary: 64 } }),
    ...(sparse && {
      experts: {
        count: expertCount,
        topK: number('top_k', 1),
        ffn: expertFfn,
        shared: /\+1 shared/.test(ffnType) ? 1 : 0,
        denseLayers: Number(/first (\d+) dense/.exec(ffnType)?.[1] ?? 0),
      },
    }),
  };

  const perReplica = globalBatch / (degrees.replicas * degrees.shards);
  const published = Number(cell('mbs')) > 0;
  const profile: Framework = FRAMEWORKS[framework.name];
  const onePass = profile.onePass === true;
  const { until = 0 } = profile.microbatchOfEachStage ?? {};
  const ofStages = degrees.pipeline > 1 && framework.version >= 2000 && framework.version < until;
  const passes = number(
    'grad_accum',
    onePass ? 1 : ofStages && perReplica % degrees.pipeline === 0 ? degrees.pipeline : 0,
  );
  const microbatch =
    published && !onePass ? Number(cell('mbs')) : passes > 0 ? perReplica / passes : 1;
  const modes = recomputeModes(framework.name, cell('ac_mode'));
  if (modes.length > 1) assumptions.push('recomputation not in the table: the least that fits');
  let chunks = Math.max(1, number('vp', 1));
  if (cell('vp') === '' && degrees.pipeline > 1 && /Interleaved/i.test(cell('extras'))) {
    chunks = 2;
    assumptions.push('chunks of an interleaved schedule not published: 2');
  }
  const plan: ParallelPlan = {
    ...degrees,
    // MaxText cuts activations between layers over the tensor axis, too (`activation_embed` in its
    // base.yml).
    sequenceParallel:
      (cell('sp').startsWith('yes') || framework.name === 'maxtext') && degrees.tensor > 1,
    chunks,
    // A DeepEP row without a degree: all devices of FSDP, as in every row that states it.
    expert: Math.max(1, number('ep', /DeepEP/.test(cell('extras')) ? degrees.shards : 1)),
    microbatch: Math.min(microbatch, Math.max(1, perReplica)),
    globalBatch,
    recompute: modes[0],
    zeroStage: zeroStage(`${text.zero} ${text.extras}`, degrees.shards * degrees.context),
  };
  const software = softwareOf(text, framework, plan);
  const system: TrainingSystem = { cluster: machine.cluster, ...software };
  if (!published && ofStages)
    assumptions.push(
      `microbatches not published: as many as stages, as ${framework.name} did before ${until}`,
    );
  const larger: number[] = [];
  if (!published && microbatch === 1) {
    // Splitting a batch frees memory and fills pipelines; without a pipeline it costs only, so that
    // the largest is taken that fits.
    if (degrees.pipeline === 1)
      for (let next = 2; perReplica % next === 0; next *= 2) larger.push(next);
    assumptions.push('microbatch not published: 1 in a pipeline, else the largest that fits');
  }
  const unit = cell('mem_unit') === 'GB' ? 1e9 : 2 ** 30;
  const memory = number('mem', 0);
  const run: MeasuredRun = {
    id,
    line: row.line,
    group: cell('group'),
    source,
    shape,
    plan,
    system,
    clusterText: machine.text,
    framework: framework.name,
    devices,
    comparable: [
      layers,
      hidden,
      heads,
      sequence,
      globalBatch,
      devices,
      cell('gpu_type'),
      cell('dtype'),
    ].join('|'),
    outOfMemory: cell('status') === 'OOM',
    recomputeModes: modes,
    largerMicrobatches: larger,
    assumptions,
    ...(memory > 0 && { memoryBytes: memory * unit }),
  };
  const seconds = measuredSeconds(run, cell, number);
  if (seconds === undefined && !run.outOfMemory)
    return skip('no step time, tokens/s, TFLOPS or MFU');
  return run.outOfMemory || seconds === undefined ? run : { ...run, stepSeconds: seconds };
}

/**
 * Step time from what the row states, in this order: time, tokens per second, TFLOPS or MFU by
 * their convention.
 */
function measuredSeconds(
  run: MeasuredRun,
  cell: (name: Column) => string,
  number: (name: Column, missing: number) => number,
): number | undefined {
  const step = number('step_time_s', 0);
  if (step > 0) return step;
  const rate = number('tokens_s_gpu', 0);
  const { sequence } = run.shape;
  if (rate > 0) return (sequence * run.plan.globalBatch) / (rate * run.devices);
  const convention = cell('tflops_convention');
  const flops =
    modelFlops(run.shape, run.plan.globalBatch, convention.includes('causal')) *
    (convention.includes('hardware') ? 4 / 3 : 1);
  const tera = number('tflops_gpu', 0);
  if (tera > 0) return flops / (tera * 1e12 * run.devices);
  const share = number('mfu_pct', 0);
  const peak = run.system.cluster.peakFlopsPerSecond.bf16;
  return share > 0 && peak > 0 ? flops / ((share / 100) * peak * run.devices) : undefined;
}
