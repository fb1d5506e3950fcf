/** The question how a model is served, and the software that is assumed to serve it. */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import type { Price } from '../../cost/hardware/operation.ts';
import type { StepSystem } from '../../cost/kernels/call.ts';
import { FITTED } from '../../cost/kernels/fitted.ts';
import { DEFAULT_SOFTWARE, type StepSoftware } from '../../cost/kernels/software.ts';
import { ShardwrightError } from '../../errors.ts';

/** Formats of the weights of layers, with their bytes. */
export const WEIGHT_FORMATS = ['bf16', 'fp8', 'int4'] as const;
type WeightFormat = (typeof WEIGHT_FORMATS)[number];
/** Formats of keys and values. */
export const CACHE_FORMATS = ['bf16', 'fp8'] as const;
type CacheFormat = (typeof CACHE_FORMATS)[number];

/** Devices of a layout. */
export interface ServingSizes {
  /** Replicas, or ranks that share experts. */
  readonly dp: number;
  readonly pp: number;
  readonly tp: number;
  /** Devices that the experts of a layer lie on; 1 for dense models. */
  readonly ep: number;
}

export interface InferenceQuestion {
  readonly model: string;
  /** Its Hugging Face config, JSON. */
  readonly config: string;
  readonly devices: number;
  /** Node design, or the JSON text of a cluster. */
  readonly cluster: string;
  /** Tokens of a prompt, and tokens that are generated after it. */
  readonly prompt: number;
  readonly generated: number;
  readonly weights: WeightFormat;
  readonly cache: CacheFormat;
  /** Requests at once on all devices; absent: the most that fit and keep the limits. */
  readonly requests?: number;
  /** The longest times that are accepted, seconds. */
  readonly firstTokenSeconds?: number;
  readonly outputTokenSeconds?: number;
  /** The only layout that is priced; absent: all. */
  readonly layout?: Partial<ServingSizes>;
  readonly memoryBytes?: number;
  readonly headroom?: number;
  /** The price of one device for one hour. */
  readonly price?: Price;
}

/**
 * Idle time between two kernels that a CUDA graph launches: they take 3.4 µs each where one alone
 * takes 2.9 µs (A. Gray, "Getting Started with CUDA Graphs", NVIDIA, 2019).
 */
const GRAPH_GAP_SECONDS = 0.5e-6;

/** 4-bit weights in groups of 128 with a scale of 16 bits and a zero of 4 (AWQ, GPTQ). */
const INT4_BYTES = 0.5 + 2.5 / 128;

/**
 * The software of an inference engine (vLLM, SGLang, TensorRT-LLM): fused kernels, one product for
 * projections that read the same tensor, passes launched as CUDA graphs.
 */
const ENGINE: StepSoftware = {
  ...DEFAULT_SOFTWARE,
  compiled: true,
  fusedProjections: true,
  splitsProducts: true,
};

/** Share of the heads of keys that a device holds of those that its ranks cannot cut evenly. */
export function cacheShare(keyHeads: number, tp: number): number {
  return keyHeads % tp === 0 ? 1 : Math.ceil(keyHeads / tp) / keyHeads;
}

/**
 * The machine with the software that serves. A pass over single tokens waits for memory, at which
 * clocks do not fall as in the long products of training and of prompts.
 *
 * @throws E_USAGE for products in fp8 on a device without such a unit
 */
export function servingSystem(
  cluster: Cluster,
  { weights, cache }: Pick<InferenceQuestion, 'weights' | 'cache'>,
  { isDecode, cacheShare = 1 }: { readonly isDecode: boolean; readonly cacheShare?: number },
): StepSystem {
  if (weights === 'fp8' && cluster.peakFlopsPerSecond.fp8 === undefined)
    throw new ShardwrightError('E_USAGE', `--weights fp8 on ${cluster.id}`, {
      hint: 'it has no unit for products in fp8: take bf16 or int4.',
    });
  const software: StepSoftware = {
    ...ENGINE,
    ...(weights === 'fp8' ? { narrowUnit: 'fp8' as const, weightBytes: 1 } : {}),
    ...(weights === 'int4' ? { weightBytes: INT4_BYTES } : {}),
    ...(cache === 'fp8' ? { cacheBytes: 1 } : {}),
    cacheShare,
  };
  const { hotMatmulTime } = FITTED;
  const constants = {
    ...FITTED,
    kernelGapSeconds: GRAPH_GAP_SECONDS,
    hotMatmulTime: isDecode ? 1 : hotMatmulTime,
  };
  return { cluster, software, constants };
}
