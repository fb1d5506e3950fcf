/**
 * The entry `shardwright/trace`: the vocabulary of traced programs. It has the functions of
 * tensors, layers, control flow, random numbers, state, operators and derivatives of your own, and
 * captures that may end in several regions. Code of one device is in `shardwright/local-spmd`.
 *
 * @module shardwright/trace
 */
export { type CachedCapture, GraphCache, type GraphCacheOptions } from '../trace/capture/cache.ts';
export { type BlockSpec, branch, captureCfg, jump, leave } from '../trace/capture/control-cfg.ts';
export {
  captureRegions,
  type HostRead,
  type Region,
  type RegionCapture,
  type RegionOptions,
} from '../trace/capture/regions.ts';
export { associativeScan } from '../trace/control/associative-scan.ts';
export { checkpoint } from '../trace/control/checkpoint.ts';
export type { BodyTree } from '../trace/control/traced-values.ts';
export { cond, type CondOptions } from '../trace/control/cond.ts';
export {
  foriLoop,
  map,
  scan,
  type ScanOptions,
  whileLoop,
  type WhileOptions,
} from '../trace/control/loops.ts';
export type { Policy } from '../trace/control/policy.ts';
export { type CustomOp, customOp, type CustomOpSpec } from '../trace/custom/custom-op.ts';
export { customVjp } from '../trace/custom/custom-vjp.ts';
export { MultiHeadAttention } from '../trace/nn/attention.ts';
export { Conv2d } from '../trace/nn/conv.ts';
export { Dropout } from '../trace/nn/dropout.ts';
export { MLP, SwiGLU } from '../trace/nn/feed-forward.ts';
export { Embedding, Linear } from '../trace/nn/linear.ts';
export { MixtureOfExperts } from '../trace/nn/moe.ts';
export { LayerNorm, RMSNorm } from '../trace/nn/norm.ts';
export { GRUCell, LSTMCell } from '../trace/nn/recurrent.ts';
export { rotate, type Rotation, rotation } from '../trace/nn/rope.ts';
export { Transformer, TransformerBlock, type TransformerConfig } from '../trace/nn/transformer.ts';
export type { ControlFlow, ControlSite, Variables } from '../trace/record/control-interface.ts';
export { randomKey, TensorSpec } from '../trace/record/spec.ts';
export { type Size, sizes, Sym } from '../trace/sizes/sizes.ts';
export * as sourceHooks from '../trace/source/hooks.ts';
export { einsum } from '../trace/tensor/einsum.ts';
export {
  arange,
  cat,
  crossEntropy,
  dropout,
  embedding,
  matmul,
  mseLoss,
  scaledDotProductAttention,
  splitKey,
  stack,
  stopGradient,
  where,
  zeros,
} from '../trace/tensor/functional.ts';
export * as functional from '../trace/tensor/functional.ts';
export { recompute, save } from '../trace/tensor/retain.ts';
export { buffer, guardOn, isTraining, param, scope, withSharding } from '../trace/tensor/state.ts';
export { apply, applyTuple } from '../trace/tensor/tensor.ts';
export { type Capture, capture } from '../trace/trace.ts';
