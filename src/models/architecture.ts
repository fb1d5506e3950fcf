/**
 * The interface of a model family: from a config it makes sizes for people, and a program for each
 * batch, length and form.
 */

import type { DType } from '../graph/types.ts';
import type { TensorSpec } from '../trace/record/spec.ts';
import type { Tensor } from '../trace/tensor/tensor.ts';
import type { ConfigReader } from './read-config.ts';

export interface ModelShape {
  /** Layers of the model, or of its encoder where a decoder follows. */
  readonly layers: number;
  /** Layers of a decoder that reads what the layers before it give; absent without one. */
  readonly decoderLayers?: number;
  readonly width: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly headWidth: number;
  /** Width inside the dense feed-forward layer. */
  readonly hidden: number;
  /** 0 for a model without a vocabulary. */
  readonly vocabulary: number;
  /** True if a cache holds one narrow vector a token for all heads (latent attention). */
  readonly latentCache?: true;
  /** Longest sequence that the config states. */
  readonly positions?: number;
}

/** Routed experts: all parameters below a module named `experts`. */
export interface RoutedExperts {
  readonly experts: number;
  /** Experts that see each token. */
  readonly active: number;
  /** Width inside an expert. */
  readonly hidden: number;
  /**
   * Node-limited routing: experts are in `count` equal groups in their order, and a token meets
   * experts of `kept` of them.
   */
  readonly groups?: { readonly count: number; readonly kept: number };
}

export interface ProgramOptions {
  readonly batch: number;
  /** Tokens of a sequence; of the decoder where the encoder does not read text. */
  readonly seq: number;
  readonly dtype: DType;
  /** With the loss instead of the logits, where the class has a loss. */
  readonly training: boolean;
  readonly layers: number;
  /**
   * Rows of the tables of the vocabulary, where they are padded; those of the config by default.
   */
  readonly vocabulary?: number;
  /**
   * For prices: self-attention of a decoder is one causal call, also where its scores are capped,
   * windowed or have sinks, because kernels do that on scores that they never store. The numbers of
   * such a program are not those of the model.
   */
  readonly attentionInOneCall?: true;
  /**
   * For inference with a cache (`Architecture.caches`): the tokens of each sequence that were read
   * before. The program reads `seq` new ones and gives the logits of the last one and the new rows
   * of the cache. 0: a prompt, which reads no cache. Else there is one new token; its rows go into
   * the last places of the buffers `past_key` and `past_value`, which attention reads.
   */
  readonly held?: number;
}

/** A program to trace: its inputs, and what it makes of them. */
export interface ModelProgram {
  readonly inputs: Readonly<Record<string, TensorSpec>>;
  readonly run: (given: Readonly<Record<string, Tensor>>) => Readonly<Record<string, Tensor>>;
}

export interface Architecture {
  readonly shape: ModelShape;
  readonly program: (options: ProgramOptions) => ModelProgram;
  readonly routed?: RoutedExperts;
  /**
   * Parameters of one row of the vocabulary, in all its tables; absent for a model without a
   * vocabulary.
   */
  readonly rowParameters?: number;
  /** Parameters that are stored and never trained. */
  readonly frozen?: readonly string[];
  /** True if positions are a table: a longer sequence is then refused. */
  readonly learnedPositions?: boolean;
  /** True if no run of its kind was measured (diffusion): its steps have no range. */
  readonly isUnmeasured?: true;
  /** True if its layers are not one after another: it is planned as a graph, not by layers. */
  readonly isNoStack?: true;
  /** True if there is a program of inference with a cache (`ProgramOptions.held`). */
  readonly caches?: true;
  /** Omissions and assumptions, for the notes of the graph. */
  readonly notes?: readonly string[];
}

export interface Family {
  /** `model_type` of the configs. */
  readonly types: readonly string[];
  /** Beginnings of the class names in `architectures`, for configs without a `model_type`. */
  readonly classes: readonly string[];
  /** @throws E_SYNTAX, E_TYPE, E_UNSUPPORTED with the JSON path */
  readonly read: (
    config: ConfigReader,
    type: string,
    className: string | undefined,
  ) => Architecture;
}
