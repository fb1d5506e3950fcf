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
import { defined } from '../defined.ts';
import { editDistance, ShardwrightError } from '../errors.ts';
import { parseModelConfig } from '../models/families.ts';
import { modelEntry } from '../models/registry.ts';
import type { Framework } from '../trainers/framework.ts';
import { type FrameworkName, FRAMEWORKS } from '../trainers/trainers.ts';
import { type CsvRow, parseCsv } from './csv.ts';
import {
  recomputeModes,
  SOFTWARE_COLUMNS,
  softwareOf,
  type SoftwareText,
  type StatedFramework,
  statedFramework,
  zeroStage,
} from './software.ts';
import { type RunMachine, runMachine } from './systems.ts';

/** One measured training run: dimensions, plan, machine, and what was measured. */
export interface MeasuredRun {
  readonly id: string;
  readonly line: number;
  readonly group: string;
  readonly source: string;
  readonly shape: TransformerShape;
  /**
   * The config of the model that the row names (`hf_id`); absent: a model of the row's dimensions
   * takes its place.
   */
  readonly config?: Readonly<Record<string, unknown>>;
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

/** The columns that a table of runs has to have. */
export const RUN_COLUMNS = [
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
/** Columns that a table need not have. */
const FURTHER_COLUMNS = [...SOFTWARE_COLUMNS, 'hf_id'] as const;
type Column = (typeof RUN_COLUMNS)[number] | (typeof FURTHER_COLUMNS)[number];

/** The rows of a table of measured runs. */
interface RunTable {
  readonly runs: readonly MeasuredRun[];
  readonly skipped: readonly SkippedRun[];
  /** Errors of the skipped rows that are malformed, with their lines. */
  readonly faults: readonly ShardwrightError[];
}

/**
 * Reads a table of measured runs. A malformed row is skipped with its fault as the reason.
 *
 * @throws E_CSV for text that is no such table
 */
export function parseRuns(text: string): RunTable {
  const runs: MeasuredRun[] = [];
  const skipped: SkippedRun[] = [];
  const faults: ShardwrightError[] = [];
  const { columns, rows } = parseCsv(text, RUN_COLUMNS);
  checkColumns(columns);
  for (const csv of rows) {
    const row = new RunRow(csv);
    try {
      row.checkLength(columns.length);
      const found = readRun(row);
      if ('reason' in found) skipped.push(found);
      else runs.push(found);
    } catch (error) {
      if (!(error instanceof ShardwrightError) || error.code !== 'E_CSV') throw error;
      faults.push(error);
      skipped.push(row.skipped(error.headline));
    }
  }
  return { runs, skipped, faults };
}

/**
 * Columns of notes are not read; one that is a slip away from a column that is missing would be
 * left out in silence. @throws E_CSV
 */
function checkColumns(columns: readonly string[]): void {
  const missing = FURTHER_COLUMNS.filter((name) => !columns.includes(name));
  for (const [i, column] of columns.entries()) {
    const meant = missing.find((name) => column.length > 4 && editDistance(column, name) <= 2);
    if (meant === undefined) continue;
    throw new ShardwrightError('E_CSV', `column ${i + 1} is '${column}', which is not read`, {
      position: { line: 1, column: 1 },
      hint: `did you mean '${meant}'?`,
    });
  }
}

/** Columns without which a step has no size. */
const REQUIRED_SIZES = ['layers', 'hidden', 'heads', 'seq', 'gbs', 'gpus'] as const;

/** A row of the table as text and numbers, and the assumptions that its empty cells ask for. */
class RunRow {
  readonly assumptions: string[] = [];

  constructor(private readonly row: CsvRow) {}

  get line(): number {
    return this.row.line;
  }

  readonly cell = (name: Column): string => (this.row.cells.get(name) ?? '').trim();

  /** @throws E_CSV for a cell that is not a number */
  number(name: Column, missing: number): number {
    const text = this.cell(name);
    if (text === '') return missing;
    const value = Number(text);
    if (!Number.isFinite(value) || value < 0 || value > 1e12)
      throw new ShardwrightError(
        'E_CSV',
        `column '${name}' holds '${text.slice(0, 40)}', a number of 0 or more is expected`,
        {
          position: { line: this.line, column: 1 },
        },
      );
    return value;
  }

  /** @throws E_CSV for a row with more or fewer cells than the header */
  checkLength(columns: number): void {
    const { line, oddCells } = this.row;
    if (oddCells === undefined) return;
    throw new ShardwrightError('E_CSV', `row with ${oddCells} cells; the header has ${columns}`, {
      position: { line, column: 1 },
    });
  }

  /** A cell that has one of a few values, or is empty. @throws E_CSV for any other */
  oneOf(name: Column, values: readonly string[]): string {
    const text = this.cell(name);
    if (text === '' || values.includes(text)) return text;
    throw new ShardwrightError(
      'E_CSV',
      `column '${name}' holds '${text.slice(0, 40)}', ${values.join(' or ')} is expected`,
      { position: { line: this.line, column: 1 } },
    );
  }

  assume(assumption: string | undefined): void {
    if (assumption !== undefined) this.assumptions.push(assumption);
  }

  skipped(reason: string): SkippedRun {
    return { id: this.cell('id'), line: this.line, source: this.cell('source'), reason };
  }
}

function readRun(row: RunRow): MeasuredRun | SkippedRun {
  const machine = runMachine(row.cell('gpu_type'));
  if (machine === undefined)
    return row.skipped(`no hardware figures for '${row.cell('gpu_type')}'`);
  row.assume(machine.assumption);
  const text = softwareText(row, machine);
  const framework = statedFramework(text);
  row.assume(framework.assumption);
  const missing = REQUIRED_SIZES.filter((name) => row.number(name, 0) === 0);
  if (missing.length > 0) return row.skipped(`no ${missing.join(', ')}`);
  const devices = row.number('gpus', 0);
  const degrees = readDegrees(row);
  const product =
    degrees.replicas * degrees.shards * degrees.tensor * degrees.pipeline * degrees.context;
  if (product !== devices)
    return row.skipped(`the degrees multiply to ${product}, not to ${devices} devices`);
  const shape = readShape(row);
  if (shape === undefined) return row.skipped('experts without moe_ffn');
  if (!Number.isInteger(shape.headDim))
    return row.skipped(`hidden ${shape.hidden} is not a multiple of ${shape.heads} heads`);
  const batch = readBatch(row, framework, degrees);
  const modes = recomputeModes(framework.name, row.cell('ac_mode'));
  if (modes.length > 1) row.assume('recomputation not in the table: the least that fits');
  const plan = readPlan(row, degrees, { framework, batch, modes });
  const software = softwareOf(text, framework, plan);
  assumeMicrobatch(row, framework, batch);
  const memory = row.number('mem', 0);
  const run: MeasuredRun = {
    id: row.cell('id'),
    line: row.line,
    group: row.cell('group'),
    source: row.cell('source'),
    shape,
    ...defined({ config: namedConfig(row, shape) }),
    plan,
    system: { cluster: machine.cluster, ...software },
    clusterText: machine.text,
    framework: framework.name,
    devices,
    comparable: [
      ...REQUIRED_SIZES.map((name) => row.number(name, 0)),
      row.cell('gpu_type'),
      row.cell('dtype'),
    ].join('|'),
    outOfMemory: row.oneOf('status', ['ok', 'OOM']) === 'OOM',
    recomputeModes: modes,
    largerMicrobatches: largerMicrobatches(batch, degrees.pipeline),
    assumptions: row.assumptions,
    ...(memory > 0 && {
      memoryBytes: memory * (row.oneOf('mem_unit', ['GB', 'GiB']) === 'GB' ? 1e9 : 2 ** 30),
    }),
  };
  const seconds = measuredSeconds(run, row);
  if (seconds === undefined && !run.outOfMemory)
    return row.skipped('no step time, tokens/s, TFLOPS or MFU');
  return run.outOfMemory || seconds === undefined ? run : { ...run, stepSeconds: seconds };
}

/** The cells that tell the software of a run. */
function softwareText(row: RunRow, machine: RunMachine): SoftwareText {
  return {
    line: row.line,
    model: row.cell('model'),
    extras: row.cell('extras'),
    dtype: row.cell('dtype'),
    zero: row.cell('zero_stage'),
    recompute: row.cell('ac_mode'),
    gpuType: row.cell('gpu_type'),
    cluster: machine.cluster,
    ...(machine.blockingLaunches === true && { blockingLaunches: true }),
    column: row.cell,
  };
}

type Degrees = Pick<ParallelPlan, 'replicas' | 'shards' | 'tensor' | 'pipeline' | 'context'>;

/** Devices of each axis of the plan. */
function readDegrees(row: RunRow): Degrees {
  return {
    replicas: row.number('dp', 1),
    shards: row.number('fsdp', 1),
    tensor: row.number('tp', 1),
    pipeline: row.number('pp', 1),
    context: row.number('cp', 1),
  };
}

/** The dimensions of the model; undefined where it has experts of unknown width. */
function readShape(row: RunRow): TransformerShape | undefined {
  const hidden = row.number('hidden', 0);
  const heads = row.number('heads', 0);
  const latent = row.cell('kv_heads') === 'MLA';
  const kvHeads = latent ? heads : row.number('kv_heads', heads);
  const headDim = latent ? 128 : row.number('head_dim', hidden / heads);
  if (latent) row.assume('latent attention with the widths of DeepSeek-V3');
  const ffnType = row.cell('ffn_type');
  const expertCount = row.number('n_experts', 0);
  const expertFfn = row.number('moe_ffn', 0);
  const sparse = expertCount > 1;
  if (sparse && expertFfn === 0) return undefined;
  return {
    layers: row.number('layers', 0),
    hidden,
    heads,
    kvHeads,
    headDim,
    ffn: row.number('ffn', sparse ? expertFfn * row.number('top_k', 1) : 4 * hidden),
    gated: ffnType.includes('swiglu'),
    vocab: row.number('vocab', 50_000),
    sequence: row.number('seq', 0),
    // Further tokens that are predicted (arXiv:2412.19437, section 2.2).
    ...(row.number('mtp', 0) > 0 && { furtherTokens: row.number('mtp', 0) }),
    ...(latent && { latent: { query: 1536, keyValue: 512, rotary: 64 } }),
    ...(sparse && {
      experts: {
        count: expertCount,
        topK: row.number('top_k', 1),
        ffn: expertFfn,
        shared: /\+1 shared/.test(ffnType) ? 1 : 0,
        denseLayers: Number(/first (\d+) dense/.exec(ffnType)?.[1] ?? 0),
      },
    }),
  };
}

/**
 * The config of the model that a row names; undefined where it names none.
 *
 * @throws E_CSV for a name that is not known, and where the row states other dimensions
 */
function namedConfig(
  row: RunRow,
  { layers, hidden, heads }: TransformerShape,
): Readonly<Record<string, unknown>> | undefined {
  const name = row.cell('hf_id');
  if (name === '') return undefined;
  const refused = (why: string, hint?: string): ShardwrightError =>
    new ShardwrightError('E_CSV', `column 'hf_id' holds '${name.slice(0, 80)}': ${why}`, {
      position: { line: row.line, column: 1 },
      ...defined({ hint }),
    });
  const entry = knownModel(name);
  if (entry === undefined)
    throw refused('no model of that name is known', 'leave it empty: the dimensions are priced.');
  const { shape } = parseModelConfig(JSON.stringify(entry.config)).architecture;
  const own = [shape.layers, shape.width, shape.heads];
  if (own.join() !== [layers, hidden, heads].join())
    throw refused(
      `it has ${own.join(', ')} layers, hidden and heads, the row ${layers}, ${hidden}, ${heads}`,
    );
  return entry.config;
}

function knownModel(name: string): ReturnType<typeof modelEntry> | undefined {
  try {
    return modelEntry(name);
  } catch (error) {
    if (error instanceof ShardwrightError && error.code === 'E_REF') return undefined;
    throw error;
  }
}

/** How the global batch is cut. */
interface RunBatch {
  /** Sequences of a data rank in a step. */
  readonly perReplica: number;
  readonly microbatch: number;
  /** True if the row states its microbatch. */
  readonly published: boolean;
  /** The version until which the framework cut a batch into as many microbatches as stages. */
  readonly ofStagesUntil?: number;
}

/** The microbatch as the row states it, or as its framework cuts a batch. */
function readBatch(row: RunRow, framework: StatedFramework, degrees: Degrees): RunBatch {
  const { replicas, shards, pipeline } = degrees;
  const perReplica = row.number('gbs', 0) / (replicas * shards);
  const stated = Number(row.cell('mbs'));
  const published = stated > 0;
  const profile: Framework = FRAMEWORKS[framework.name];
  const onePass = profile.onePass === true;
  const { until = 0 } = profile.microbatchOfEachStage ?? {};
  const ofStages = pipeline > 1 && framework.version >= 2000 && framework.version < until;
  const passes = row.number(
    'grad_accum',
    onePass ? 1 : ofStages && perReplica % pipeline === 0 ? pipeline : 0,
  );
  const microbatch = published && !onePass ? stated : passes > 0 ? perReplica / passes : 1;
  return { perReplica, microbatch, published, ...(ofStages && { ofStagesUntil: until }) };
}

/** Says what was assumed of a microbatch that the row does not state. */
function assumeMicrobatch(row: RunRow, { name }: StatedFramework, batch: RunBatch): void {
  const { ofStagesUntil: until } = batch;
  if (batch.published) return;
  if (until !== undefined)
    row.assume(`microbatches not published: as many as stages, as ${name} did before ${until}`);
  if (batch.microbatch === 1)
    row.assume('microbatch not published: 1 in a pipeline, else the largest that fits');
}

/**
 * Sizes that the microbatch may have, where the row does not state it. Splitting a batch frees
 * memory and fills pipelines; without a pipeline it costs only, so that the largest is taken that
 * fits.
 */
function largerMicrobatches(batch: RunBatch, pipeline: number): number[] {
  const larger: number[] = [];
  if (batch.published || batch.microbatch !== 1 || pipeline !== 1) return larger;
  for (let next = 2; batch.perReplica % next === 0; next *= 2) larger.push(next);
  return larger;
}

/** The plan of a row, with what its framework does where cells are empty. */
function readPlan(
  row: RunRow,
  degrees: Degrees,
  {
    framework,
    batch,
    modes,
  }: {
    readonly framework: StatedFramework;
    readonly batch: RunBatch;
    readonly modes: readonly RecomputeMode[];
  },
): ParallelPlan {
  const extras = row.cell('extras');
  let chunks = Math.max(1, row.number('vp', 1));
  if (row.cell('vp') === '' && degrees.pipeline > 1 && /Interleaved/i.test(extras)) {
    chunks = 2;
    row.assume('chunks of an interleaved schedule not published: 2');
  }
  return {
    ...degrees,
    // MaxText cuts activations between layers over the tensor axis, too (`activation_embed` in its
    // base.yml).
    sequenceParallel:
      (row.cell('sp').startsWith('yes') || framework.name === 'maxtext') && degrees.tensor > 1,
    chunks,
    // A DeepEP row without a degree: all devices of FSDP, as in every row that states it.
    expert: Math.max(1, row.number('ep', /DeepEP/.test(extras) ? degrees.shards : 1)),
    microbatch: Math.min(batch.microbatch, Math.max(1, batch.perReplica)),
    globalBatch: row.number('gbs', 0),
    recompute: modes[0],
    zeroStage: zeroStage(`${row.cell('zero_stage')} ${extras}`, degrees.shards * degrees.context),
  };
}

/**
 * Step time from what the row states, in this order: time, tokens per second, TFLOPS or MFU by
 * their convention.
 */
function measuredSeconds(run: MeasuredRun, row: RunRow): number | undefined {
  const step = row.number('step_time_s', 0);
  if (step > 0) return step;
  const rate = row.number('tokens_s_gpu', 0);
  const { sequence } = run.shape;
  if (rate > 0) return (sequence * run.plan.globalBatch) / (rate * run.devices);
  const convention = row.cell('tflops_convention');
  const flops =
    modelFlops(run.shape, run.plan.globalBatch, convention.includes('causal')) *
    (convention.includes('hardware') ? 4 / 3 : 1);
  const tera = row.number('tflops_gpu', 0);
  if (tera > 0) return flops / (tera * 1e12 * run.devices);
  const share = row.number('mfu_pct', 0);
  const peak = run.system.cluster.peakFlopsPerSecond.bf16;
  return share > 0 && peak > 0 ? flops / ((share / 100) * peak * run.devices) : undefined;
}
