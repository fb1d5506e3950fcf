/**
 * The software of a trainer as it comes: kernels, overlap, dtypes of gradients and states. A row of
 * measured runs is priced with the profile of its `framework`, and `--for` asks for one. The
 * list of features follows the documentation of the trainers.
 */
import type { Fp8Recipe, MemoryHabits, StepSoftware } from '../cost/kernels/software.ts';
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
  /** The recipe of products in fp8 where the row does not say; absent: scales of present values. */
  readonly fp8Recipe?: Fp8Recipe;
  /**
   * Releases from this one on record whole steps as one graph, experts in one kernel, on devices of
   * these names.
   */
  readonly wholeGraphs?: { readonly since: number; readonly devices: RegExp };
  /** Tokens cross to a host once for all its experts in releases from this one on. */
  readonly expertTokensOnceSince?: number;
  /** Exchanges with experts overlap with another microbatch where the pipeline has one. */
  readonly expertOverlap?: boolean;
  /** Devices whose hosts keep activations for the backward pass. */
  readonly offloadsActivations?: RegExp;
  /** Tensors that it keeps in memory otherwise than the program of a step says. */
  readonly memory?: MemoryHabits;
  /** Bytes for each logit while a compiled loss is taken, in releases from this year on. */
  readonly compiledLoss?: { readonly since: number; readonly logitBytes: number };
  /** Bytes per parameter element. */
  readonly state: StateBytes;
  /** The recomputations that are possible where the row does not say, least first. */
  readonly silentRecompute: readonly RecomputeMode[];
}

/**
 * Bytes that a process of PyTorch holds for a byte of activations and temporary values: blocks that
 * the allocator cannot fill, workspaces, context and communicators. Fitted on the readings of
 * TorchTitan, BLOOM, nanotron and DeepSpeed; 1.25 to 1.32 without any one of them
 * (docs/fidelity.md).
 */
const HELD_BY_PYTORCH = 1.25;

/** Eager PyTorch with FSDP2. */
export const EAGER: Framework = {
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
  memory: { heldShare: HELD_BY_PYTORCH },
  // Float32 parameters, cast for the products.
  state: { parameter: 4, gradient: 4, optimizer: 8 },
  silentRecompute: ['none', 'selective', 'full'],
};
/**
 * Weights in 16 bits with a float32 master copy; gradients are added up in float32
 * (`--accumulate-allreduce-grads-in-fp32`).
 */
export const MASTER: StateBytes = { parameter: 2, gradient: 4, optimizer: 12 };
