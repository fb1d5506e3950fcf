/** Defines the config of a decoder of the Llama kind; the families differ in nothing else. */

import type { Activation } from '../../trace/nn/feed-forward.ts';

export interface LatentAttention {
  /** Null: queries are projected at once. */
  readonly queryRank: number | null;
  readonly keyValueRank: number;
  /** Channels of a query or key head without position. */
  readonly plainWidth: number;
  /** Channels that carry the position; keys share them over all heads. */
  readonly rotaryWidth: number;
  readonly valueWidth: number;
}

export interface ExpertsConfig {
  readonly experts: number;
  readonly active: number;
  /** Width inside one expert. */
  readonly hidden: number;
  /**
   * `softmax`: shares over all experts, then the best; `after`: the best, then shares; `sigmoid`:
   * independent shares.
   */
  readonly scoring: 'softmax' | 'after' | 'sigmoid';
  /** Shares of the chosen experts are made to sum to 1. */
  readonly normalised: boolean;
  readonly scaling: number;
  /**
   * Experts are chosen from the best groups only: by their best expert, or by the sum of their best
   * two.
   */
  readonly groups?: { readonly count: number; readonly kept: number; readonly by: 'max' | 'top2' };
  /** A buffer that is added to the scores for the choice, and not for the shares. */
  readonly correction: boolean;
  /** Name of the router, and whether it has a bias. */
  readonly router: { readonly name: string; readonly bias: boolean };
  /** Experts of gpt-oss: [in, out] weights with biases, gate and up interleaved, both clamped. */
  readonly clamp?: number;
  /**
   * Experts that every token sees, as one layer of this width; `gate`: scaled by a gate of its own.
   */
  readonly shared?: { readonly name: string; readonly hidden: number; readonly gate: boolean };
  /** Shares multiply what an expert reads, not what it gives. */
  readonly weighsInput?: true;
}

export interface DecoderConfig {
  readonly vocabulary: number;
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly headWidth: number;
  readonly hidden: number;
  readonly positions?: number;
  readonly eps: number;
  readonly tied: boolean;
  readonly activation: Activation;
  /** RMS norm with the weight as it is, or as its difference from 1. */
  readonly norm: 'plain' | 'offset';
  readonly queryBias: boolean;
  readonly outputBias: boolean;
  readonly mlpBias: boolean;
  /** RMS norm over each head of queries and keys. */
  readonly headNorm: boolean;
  /** Norms behind attention and feed-forward layer too. */
  readonly sandwich: boolean;
  /** One weight for q, k, v and one for gate, up. */
  readonly fused: boolean;
  /** The scale of the scores; 1 / sqrt(headWidth) by default. */
  readonly scale?: number;
  readonly embeddingScale?: number;
  readonly attentionCap?: number;
  readonly finalCap?: number;
  readonly sinks: boolean;
  /** Channels of a head that turn. */
  readonly rotaryWidth: number;
  /** Layers with a window have frequencies of their own. */
  readonly localRotation: boolean;
  /** Keys that a query of a windowed layer sees. */
  readonly window?: number;
  readonly windowed: (layer: number) => boolean;
  /** A window is the chunk of the query: the keys before it in chunks of that many. */
  readonly chunked?: true;
  /** Layers whose heads turn with their position; absent: all. */
  readonly rotates?: (layer: number) => boolean;
  /** Neighbouring channels turn together; absent: those of the two halves. */
  readonly turnsPairs?: true;
  /** Heads that turn are divided by their root mean square, without a weight. */
  readonly headRoot?: true;
  /** Queries that do not turn grow: by `scale * log(1 + n)` after `n` times `floor` tokens. */
  readonly temperature?: { readonly floor: number; readonly scale: number };
  /** The module of the feed-forward layer; absent: `mlp`. */
  readonly feedForward?: string;
  /** The sinks are an operand of the attention kernel (`ProgramOptions.attentionInOneCall`). */
  readonly sinksInKernel?: true;
  readonly latent?: LatentAttention;
  readonly experts?: ExpertsConfig;
  /** Tells whether the feed-forward layer of a layer is routed. */
  readonly routed: (layer: number) => boolean;
}
