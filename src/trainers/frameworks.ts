/**
 * The defaults of the trainers of published runs, as a profile for the `framework` of a row (or,
 * where the table has none, for the facts of the row that give the trainer away). The list of
 * features follows the frameworks' documentation.
 */
import type { StepSoftware } from '../cost/kernels/software.ts';
import type { StateBytes } from '../cost/memory/state-bytes.ts';
import type { RecomputeMode } from '../cost/training/shape.ts';

/** Defaults of one trainer; columns of a row go before them. */
export interface Framework {
  /**
   * Transformer Engine or the vendor's own kernels: delayed scaling, cast weights kept, attention
   * made for the device.
   */
  readonly vendorKernels: boolean;
  /** One attention kernel that never stores the scores. */
  readonly flashAttention: boolean;
  /** Bias, activation, dropout and residual in few hand-written kernels. */
  readonly fusedPointwise: boolean;
  /** A compiler takes the whole step whatever the row says. */
  readonly compiled: boolean;
  /** One product for queries, keys and values, and for gate and up. */
  readonly fusedProjections: boolean;
  /**
   * Checkpoints run a layer again to its end (reentrant); others stop at the last value that is
   * missing.
   */
  readonly recomputesWhole: boolean;
  /** Gradient and parameter collectives overlap with compute. */
  readonly overlap: boolean;
  readonly dropout: boolean;
  /** Narrow operands are saved for the backward pass as they were cast. */
  readonly savesNarrow: boolean;
  /**
   * The share of tensor-parallel collectives that overlap with products where the row does not say;
   * TE overlaps none of its 4-bit products.
   */
  readonly tensorOverlap: number;
  /** Bytes per element of gradients as data ranks sum them. */
  readonly gradientBytes: number;
  /**
   * Elements that data ranks sum in one collective; absent: those of a layer, as FSDP moves them.
   */
  readonly bucket?: NonNullable<StepSoftware['bucket']>;
  /**
   * No gradients are added up over microbatches: a step is one pass, and a batch is stated by
   * device.
   */
  readonly onePass?: boolean;
  /**
   * Releases of these years cut a batch into as many microbatches as there are stages where nothing
   * is stated (torchtitan's `pipeline_parallel_microbatches`, which
   * `pipeline_parallel_microbatch_size` of 1 followed in 2025).
   */
  readonly microbatchOfEachStage?: { readonly until: number };
  /** Bytes per parameter element. */
  readonly state: StateBytes;
  /** The recomputations that are possible where the row does not say, least first. */
  readonly silentRecompute: readonly RecomputeMode[];
}

const EAGER: Framework = {
  vendorKernels: false,
  flashAttention: true,
  fusedPointwise: false,
  compiled: false,
  fusedProjections: false,
  recomputesWhole: false,
  overlap: true,
  dropout: false,
  savesNarrow: false,
  tensorOverlap: 0,
  gradientBytes: 4,
  // Float32 parameters, cast for the products.
  state: { parameter: 4, gradient: 4, optimizer: 8 },
  silentRecompute: ['none', 'selective', 'full'],
};
/**
 * Weights in 16 bits with a float32 master copy; gradients are added up in float32
 * (`--accumulate-allreduce-grads-in-fp32`).
 */
const MASTER: StateBytes = { parameter: 2, gradient: 4, optimizer: 12 };
/** DistributedDataParallelConfig of Megatron-Core: max(40e6, 1e6 x ranks) elements. */
const MEGATRON_BUCKET = { elements: 40e6, perRank: 1e6 };
/** Megatron-LM before FlashAttention, and what was built on it. */
const MEGATRON_2022: Framework = {
  ...EAGER,
  flashAttention: false,
  fusedPointwise: true,
  fusedProjections: true,
  recomputesWhole: true,
  overlap: false,
  dropout: true,
  gradientBytes: 4,
  // One buffer of all gradients, summed behind the backward pass.
  bucket: { elements: Infinity, perRank: 0 },
  state: MASTER,
};
const MEGATRON_CORE: Framework = {
  ...EAGER,
  vendorKernels: true,
  fusedPointwise: true,
  fusedProjections: true,
  recomputesWhole: true,
  savesNarrow: true,
  gradientBytes: 4,
  bucket: MEGATRON_BUCKET,
  state: MASTER,
};
const NEMO: Framework = { ...MEGATRON_CORE, tensorOverlap: 1 };

export const FRAMEWORKS = {
  torchtitan: { ...EAGER, microbatchOfEachStage: { until: 2025 } },
  /**
   * Stage 3 keeps 16-bit weights in addition to the master copy, and scatters gradients in 16 bits
   * (`communication_data_type`).
   */
  deepspeed: {
    ...EAGER,
    recomputesWhole: true,
    gradientBytes: 2,
    state: { ...MASTER, gradient: 2 },
  },
  alpa: { ...EAGER, fusedProjections: true },
  /** Its loss is fused. */
  'llm-foundry': { ...EAGER, fusedProjections: true, gradientBytes: 2 },
  nanotron: { ...EAGER, fusedProjections: true, gradientBytes: 4, state: MASTER },
  'megatron-lm': MEGATRON_2022,
  /** DeepSpeed's stage 0 and 1 sum gradients in 16 bits. */
  'megatron-deepspeed': {
    ...MEGATRON_2022,
    gradientBytes: 2,
    // `reduce_bucket_size` and `allgather_bucket_size`.
    bucket: { elements: 5e8, perRank: 0 },
    state: { ...MASTER, gradient: 2 },
  },
  'megatron-core': MEGATRON_CORE,
  nemo: NEMO,
  /**
   * Its recipes load weights in 16 bits and run Adam on them, moments in 16 bits too; FSDP2
   * scatters gradients in float32.
   */
  'nemo-automodel': { ...NEMO, state: { parameter: 2, gradient: 2, optimizer: 4 } },
  /**
   * All of its performance recipes sum gradients in 16 bits (`grad_reduce_in_fp32 = False`); none
   * for the measured models recomputes layers: cheap modules, or nothing (published_runs.json).
   */
  'megatron-bridge': {
    ...NEMO,
    gradientBytes: 2,
    state: { ...MASTER, gradient: 2 },
    silentRecompute: ['none', 'modules'],
  },
  /** The trainer of the Llama 3 report (arXiv:2407.21783, section 3.3). */
  'llama3-herd': { ...EAGER, vendorKernels: true, fusedPointwise: true },
  /**
   * Its launch scripts fuse collectives into products (xla_tpu_enable_async_collective_fusion,
   * overlap_compute_collective_tc).
   */
  maxtext: {
    ...EAGER,
    vendorKernels: true,
    fusedPointwise: true,
    compiled: true,
    tensorOverlap: 1,
    // `per_device_batch_size` at the commit of its table, and no accumulation of gradients: a
    // tensor group has the batch of its devices.
    onePass: true,
    // The gradient of a cast weight is scattered before it is widened.
    gradientBytes: 2,
  },
} as const satisfies Readonly<Record<string, Framework>>;
export type FrameworkName = keyof typeof FRAMEWORKS;
export const FRAMEWORK_NAMES = Object.keys(FRAMEWORKS) as FrameworkName[];

/** Facts of a row that tell its trainer. */
interface FrameworkFacts {
  readonly zero: string;
  readonly extras: string;
  readonly recompute: string;
  readonly dtype: string;
  readonly accelerator: string;
}

/**
 * The trainer of a row that does not name it, by its layout and its software; PyTorch's FSDP2 as
 * TorchTitan runs it else.
 */
export function frameworkOf({
  zero,
  extras,
  recompute,
  dtype,
  accelerator,
}: FrameworkFacts): FrameworkName {
  if (/Megatron-DeepSpeed/i.test(extras) || /fp32 grad accumulation/.test(dtype))
    return 'megatron-deepspeed';
  if (/DeepSpeed/i.test(extras)) return 'deepspeed';
  if (/TPU/.test(accelerator)) return 'maxtext';
  if (/DeepEP|\bTE\b/.test(extras) && /FSDP2/.test(zero)) return 'nemo-automodel';
  if (/FULL_SHARD|SHARD_GRAD_OP/.test(zero) || /mixed_precision=/.test(extras))
    return 'llm-foundry';
  if (/no reshard/.test(zero)) return 'llama3-herd';
  if (/distributed optimizer|Megatron-FSDP/i.test(zero))
    return /per recipe/.test(recompute) ? 'megatron-bridge' : 'megatron-core';
  if (/overlap-grad-reduce|tp-comm-overlap/.test(extras)) return 'megatron-core';
  if (/^[01]( |$)/.test(zero)) return /^(A100|V100)/.test(accelerator) ? 'megatron-lm' : 'nanotron';
  return 'torchtitan';
}
