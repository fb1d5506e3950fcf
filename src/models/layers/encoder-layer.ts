/**
 * Attention and feed-forward layer of the models from before Llama: LayerNorm, biases, two-layer
 * feed-forward.
 */

import type { DType } from '../../graph/types.ts';
import { activate, type Activation } from '../../trace/nn/feed-forward.ts';
import { Linear } from '../../trace/nn/linear.ts';
import { LayerNorm } from '../../trace/nn/norm.ts';
import { scope } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';
import { fusedAttention, joinHeads, splitHeads } from './attention-core.ts';

interface AttentionNames {
  readonly query: string;
  readonly key: string;
  readonly value: string;
  readonly output: string;
}

interface BiasedAttention {
  readonly width: number;
  readonly heads: number;
  readonly names: AttentionNames;
  /** Biases of query, key and value; all of them by default. */
  readonly biases?: { readonly query?: boolean; readonly key?: boolean; readonly value?: boolean };
  readonly causal: boolean;
  readonly dtype: DType;
}

/** Attention of `x` over `memory` (over itself by default); both [batch, length, width]. */
export function biasedAttention(x: Tensor, options: BiasedAttention, memory: Tensor = x): Tensor {
  const { width, heads, names, biases = {}, causal, dtype } = options;
  const one = (name: string, y: Tensor, bias = true): Tensor =>
    new Linear(name, width, width, { bias, dtype }).forward(y);
  const q = splitHeads(one(names.query, x, biases.query), width / heads);
  const k = splitHeads(one(names.key, memory, biases.key), width / heads);
  const v = splitHeads(one(names.value, memory, biases.value), width / heads);
  return one(names.output, joinHeads(fusedAttention(q, k, v, { causal })));
}

interface TwoLayers {
  readonly width: number;
  readonly hidden: number;
  /** Module names of the two layers. */
  readonly names: readonly [string, string];
  readonly activation: Activation;
  readonly dtype: DType;
}

export function twoLayers(
  x: Tensor,
  { width, hidden, names, activation, dtype }: TwoLayers,
): Tensor {
  const inner = activate(new Linear(names[0], width, hidden, { dtype }).forward(x), activation);
  return new Linear(names[1], hidden, width, { dtype }).forward(inner);
}

export function layerNorm(
  name: string,
  x: Tensor,
  width: number,
  eps: number,
  dtype: DType,
): Tensor {
  return new LayerNorm(name, width, { eps, dtype }).forward(x);
}

/** Runs layers 0 to count - 1 below `<path>.<number>`. */
export function layersBelow(
  path: string,
  count: number,
  x: Tensor,
  layer: (x: Tensor) => Tensor,
): Tensor {
  let out = x;
  for (let i = 0; i < count; i++) out = scope(`${path}.${i}`, () => layer(out));
  return out;
}
