/**
 * Tells from the row of a measured run what its trainer did on its machine. A column of the row
 * decides; where it is empty, the defaults of the row's framework do (`trainers`). The name of the
 * source is never read.
 */
import type { Cluster } from '../cost/hardware/cluster.ts';
import { FP4_BYTES, inFp8 } from '../cost/kernels/fp8-recipes.ts';
import type { Fp8Recipe, MemoryHabits, StepSoftware } from '../cost/kernels/software.ts';
import type { ParallelPlan, RecomputeMode, TrainingSystem } from '../cost/training/shape.ts';
import { defined } from '../defined.ts';
import { ShardwrightError, suggestion } from '../errors.ts';
import type { Framework } from '../trainers/framework.ts';
import { FRAMEWORK_NAMES, type FrameworkName, FRAMEWORKS } from '../trainers/trainers.ts';
import { frameworkOf } from './framework-of.ts';

/**
 * Columns of software that a table may have; an empty cell, or no column, is the framework's
 * default.
 */
export const SOFTWARE_COLUMNS = [
  'framework',
  'framework_version',
  'head_dim',
  'grad_accum',
  'mtp',
  'dispatcher',
  'gradient_bytes',
  'optimizer_bytes',
  'blocking_launches',
] as const;
type SoftwareColumn = (typeof SOFTWARE_COLUMNS)[number];

/** Cells of a row that tell its software, and where it runs. */
export interface SoftwareText {
  readonly line: number;
  readonly model: string;
  readonly extras: string;
  readonly dtype: string;
  readonly zero: string;
  readonly recompute: string;
  readonly gpuType: string;
  readonly cluster: Cluster;
  /** The default of the jobs on the machine, where the row does not say. */
  readonly blockingLaunches?: boolean;
  readonly column: (name: SoftwareColumn) => string;
}

/** The trainer of a row, as its column names it or as its other columns give it away. */
export interface StatedFramework {
  readonly name: FrameworkName;
  /** Year and month of a release as a number, 26.06; 0 where none is stated. */
  readonly version: number;
  /** The assumption that had to be made. */
  readonly assumption?: string;
}

/** @throws E_CSV for a framework that is not known */
export function statedFramework(row: SoftwareText): StatedFramework {
  const text = row.column('framework');
  const version = Number(/^\d+(\.\d+)?/.exec(row.column('framework_version'))?.[0] ?? 0);
  if (text !== '') {
    const name = FRAMEWORK_NAMES.find((known) => known === text);
    if (name === undefined)
      throw new ShardwrightError('E_CSV', `column 'framework' holds '${text.slice(0, 40)}'`, {
        position: { line: row.line, column: 1 },
        hint: suggestion(text, FRAMEWORK_NAMES, 'frameworks'),
      });
    return { name, version };
  }
  const name = frameworkOf({ ...row, accelerator: row.gpuType });
  return {
    name,
    version,
    assumption: `framework not in the table: ${name}, by layout and software of the row`,
  };
}

export function softwareOf(
  row: SoftwareText,
  stated: StatedFramework,
  plan: Pick<ParallelPlan, 'chunks' | 'expert' | 'pipeline'>,
): Omit<TrainingSystem, 'cluster'> {
  const { extras, dtype, cluster } = row;
  const framework = FRAMEWORKS[stated.name];
  const { accelerator } = cluster;
  const { wholeGraphs } = framework;
  const graphs =
    wholeGraphs !== undefined &&
    stated.version >= wholeGraphs.since &&
    wholeGraphs.devices.test(accelerator);
  // Vendors' trainers are eager Python with few large kernels, unless a graph holds the whole step.
  const compiled = graphs || framework.compiled || /torch\.compile/.test(extras);
  const narrow = matmulUnit(row);
  return {
    matmulUnit: narrow,
    ...(narrow === 'fp8' ? { fp8Recipe: recipeOf(dtype, framework) } : {}),
    // Vendors' libraries scale by earlier steps' values; the others look at the present ones.
    narrowCastBytes: framework.vendorKernels ? 3 : 5,
    // Transformer Engine casts weights with the first microbatch (`is_first_microbatch`).
    castWeightsKept: framework.vendorKernels,
    flashAttention: framework.flashAttention,
    attentionShare: attentionShare(extras, framework.vendorKernels, accelerator),
    fusedPointwise: framework.fusedPointwise || compiled || /Liger/.test(extras),
    compiled,
    fusedProjections: framework.fusedProjections,
    recomputesWhole: framework.recomputesWhole,
    ...(blockingLaunches(row) ? { blockingLaunches: true } : {}),
    overlap: framework.overlap,
    tensorOverlap: tensorOverlap(framework, extras, narrow),
    savedOperandBytes: framework.savesNarrow ? savedOperandBytes(narrow) : 2,
    groupedExperts: graphs,
    expertTokensOnce: expertTokensOnce(row, stated),
    // `moe_a2a_overlap` is set in Bridge's recipes with whole graphs (with
    // `cutedsl_fused_grouped_mlp`), without stages too, and in those of interleaved pipelines whose
    // experts span hosts: the other microbatch is there.
    expertOverlap:
      framework.expertOverlap === true &&
      (graphs
        ? plan.pipeline === 1 || plan.chunks > 1
        : plan.chunks > 1 && plan.expert > cluster.devicesPerHost),
    offloadedOptimizer: /CPU AdamW offload/.test(row.zero),
    // MaxText's `minimal_offloaded` and its kin keep on the host what they keep.
    offloadedActivations:
      framework.offloadsActivations?.test(accelerator) === true || /offload/.test(row.recompute),
    dropout: framework.dropout,
    gradientBytes: framework.gradientBytes,
    ...defined({ bucket: framework.bucket }),
    memory: { ...framework.memory, ...lossOf(row, stated, compiled) },
    state: {
      parameter: framework.state.parameter,
      gradient: bytes(row, 'gradient_bytes') ?? framework.state.gradient,
      optimizer: bytes(row, 'optimizer_bytes') ?? framework.state.optimizer,
    },
  };
}

/** The bytes that are kept for each logit, where the row or the release says so. */
function lossOf(
  { extras }: SoftwareText,
  { name, version }: StatedFramework,
  compiled: boolean,
): Pick<MemoryHabits, 'logitBytes'> {
  // Its loss makes logits a few rows at a time, inside the product with the head.
  if (/Liger/.test(extras)) return { logitBytes: 0 };
  const { compiledLoss }: Framework = FRAMEWORKS[name];
  if (!compiled || compiledLoss === undefined) return {};
  return version === 0 || version >= compiledLoss.since
    ? { logitBytes: compiledLoss.logitBytes }
    : {};
}

/** The dtype of the large products; bf16 where the row states none. @throws E_CSV */
function matmulUnit({ dtype, line }: SoftwareText): 'fp4' | 'fp8' | 'fp16' | 'bf16' {
  if (/fp4/i.test(dtype)) return 'fp4';
  if (/fp8|float8/i.test(dtype)) return 'fp8';
  if (dtype === '' || /bf16|bfloat16/i.test(dtype)) return 'bf16';
  if (/fp16|float16/i.test(dtype)) return 'fp16';
  throw new ShardwrightError(
    'E_CSV',
    `column 'dtype' holds '${dtype.slice(0, 40)}', bf16, fp16, fp8 or fp4 is expected`,
    { position: { line, column: 1 } },
  );
}

/** The facts about the software of a run that the prices of a step depend on. */
export function stepSoftware(system: TrainingSystem): StepSoftware {
  const { matmulUnit, overlap, gradientBytes, bucket, state } = system;
  const {
    flashAttention,
    attentionShare,
    fusedPointwise,
    compiled,
    fusedProjections,
    recomputesWhole,
  } = system;
  const {
    dropout,
    tensorOverlap,
    narrowCastBytes,
    castWeightsKept,
    groupedExperts,
    expertTokensOnce,
  } = system;
  const software: StepSoftware = {
    ...{
      flashAttention,
      attentionShare,
      fusedPointwise,
      compiled,
      fusedProjections,
      recomputesWhole,
    },
    ...{
      dropout,
      overlap,
      tensorOverlap,
      narrowCastBytes,
      castWeightsKept,
      groupedExperts,
      expertTokensOnce,
    },
    ...(matmulUnit === 'fp8' || matmulUnit === 'fp4' ? { narrowUnit: matmulUnit } : {}),
    ...(system.savedOperandBytes < 2 ? { savedOperandBytes: system.savedOperandBytes } : {}),
    gradientBytes: overlap ? gradientBytes : 2,
    ...defined({ bucket }),
    memory: system.memory,
    ...(system.blockingLaunches === true ? { blockingLaunches: true } : {}),
    state,
  };
  if (system.fp8Recipe === undefined) return software;
  const { savedOperandBytes, ...narrow } = inFp8(
    software,
    system.fp8Recipe,
    system.cluster.accelerator,
  );
  return system.savedOperandBytes === 2 || savedOperandBytes === undefined
    ? narrow
    : { ...narrow, savedOperandBytes };
}

/** The recipe of a row: as its dtype says, or the default of its software. */
function recipeOf(dtype: string, { fp8Recipe = 'current' }: Framework): Fp8Recipe {
  if (/mx/i.test(dtype)) return 'mxfp8';
  if (/rowwise/.test(dtype)) return 'rowwise';
  return fp8Recipe;
}

/** Software of a trainer as it comes, on a cluster; `compiled`: under a compiler. */
export function frameworkSoftware(
  name: FrameworkName,
  cluster: Cluster,
  compiled = false,
): StepSoftware {
  const none = {
    line: 0,
    model: '',
    extras: compiled ? 'torch.compile' : '',
    dtype: 'bf16',
    zero: '',
    recompute: '',
    gpuType: '',
  };
  const system = softwareOf(
    { ...none, cluster, column: () => '' },
    { name, version: 0 },
    { chunks: 1, expert: 1, pipeline: 1 },
  );
  return stepSoftware({ ...system, cluster });
}

function bytes(row: SoftwareText, name: SoftwareColumn): number | undefined {
  const text = row.column(name);
  if (text === '') return undefined;
  const value = Number(text);
  if (Number.isFinite(value) && value >= 0 && value <= 64) return value;
  throw new ShardwrightError(
    'E_CSV',
    `column '${name}' holds '${text.slice(0, 40)}', bytes from 0 to 64 are expected`,
    {
      position: { line: row.line, column: 1 },
    },
  );
}

/**
 * Tells whether the host waits for each kernel: as the row says, else as jobs on its machine do.
 */
function blockingLaunches(row: SoftwareText): boolean {
  const text = row.column('blocking_launches');
  if (text === '') return row.blockingLaunches === true;
  if (text === 'yes' || text === 'no') return text === 'yes';
  throw new ShardwrightError(
    'E_CSV',
    `column 'blocking_launches' holds '${text.slice(0, 40)}', yes or no is expected`,
    {
      position: { line: row.line, column: 1 },
    },
  );
}

/**
 * Transformer Engine saves the cast operand for the backward pass; 4-bit ones have a scale of 8
 * bits for 16 elements.
 */
function savedOperandBytes(unit: string): number {
  return unit === 'fp8' ? 1 : unit === 'fp4' ? FP4_BYTES : 2;
}

function tensorOverlap(
  { tensorOverlap: byDefault, savesNarrow }: Framework,
  extras: string,
  unit: string,
): number {
  // Bridge turns it off for 4-bit products (`tp_comm_overlap = False if precision == "nvfp4"`).
  if (byDefault > 0) return savesNarrow && unit === 'fp4' ? 0 : byDefault;
  if (/tp-comm-overlap/.test(extras)) return 1;
  // Async TP leaves out the scatter after the backward pass of separate projections, whose results
  // are added before it.
  return /async TP/.test(extras) ? 0.75 : 0;
}

/**
 * Tells whether tokens cross to a host once for all its experts (DeepEP, HybridEP), by
 * default as its release does or its extras say.
 */
function expertTokensOnce(row: SoftwareText, { name, version }: StatedFramework): boolean {
  const stated = row.column('dispatcher').toLowerCase();
  if (stated !== '') return stated !== 'alltoall';
  return (
    /DeepEP/.test(row.extras) || version >= (FRAMEWORKS[name].expertTokensOnceSince ?? Infinity)
  );
}

/**
 * Attention kernels by generation: made for the device (vendor's, FA3, FA4), or for the one before.
 */
function attentionShare(extras: string, vendor: boolean, accelerator: string): number {
  if (vendor || /FA3|FA4/.test(extras)) return 0.55;
  return /^(A100|V100|TPU)/.test(accelerator) ? 0.4 : 0.25;
}

/** The mode that a row states, or those it may have had, least first. */
export function recomputeModes(framework: FrameworkName, text: string): readonly RecomputeMode[] {
  if (/per recipe|not stated/.test(text) || text === '')
    return FRAMEWORKS[framework].silentRecompute;
  // MaxText's `minimal` keeps every product with weights (checkpoint_dots_with_no_batch_dims).
  if (/minimal/.test(text)) return ['products'];
  if (/full/.test(text)) return ['full'];
  if (/attn core/.test(text)) return ['core'];
  return [/selective/.test(text) ? 'selective' : 'none'];
}

export function zeroStage(text: string, shards: number): 0 | 1 | 2 | 3 {
  if (/SHARD_GRAD_OP|ZeRO-2|no reshard/.test(text)) return 2;
  if (shards > 1 && /FSDP|ZeRO-3|fsdp/.test(text)) return 3;
  if (/Megatron-FSDP/.test(text)) return 3;
  if (/^1( |$)|ZeRO-1|distributed optimizer|overlap-param-gather/.test(text)) return 1;
  return 0;
}
