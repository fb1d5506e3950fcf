import { type CallText, parseCall } from '../../../src/ops/samples/call-text.ts';
import type { Call, Operand } from './spmd-questions.ts';

/**
 * The operators of `spmd-questions.ts` as calls of this library. A number with a type (`nV`) is a
 * tensor without dims here, as an axis index is.
 */

const M = 'x[4,4]';
const B = 'x[2,4,4]';

const UNARY: Readonly<Record<string, string>> = {
  neg: `neg(${M})`,
  clone: `clone(${M})`,
  sum: `sum(${M})`,
  'sum.dim': `sum.dim_IntList(${M}, [0])`,
  'mean.dim': `mean.dim(${M}, [0])`,
  cumsum: `cumsum(${M}, 0)`,
  reshape: `view(${M}, [16])`,
  view: `view(${M}, [2, 8])`,
  transpose: `transpose.int(${M}, 0, 1)`,
  t: `t(${M})`,
  permute: `permute(${M}, [1, 0])`,
  unsqueeze: `unsqueeze(${M}, 0)`,
  squeeze: `squeeze.dim(${M}, 0)`,
  expand: 'expand(x[1,4], [4, 4])',
  select: `select.int(${M}, 0, 1)`,
  narrow: `slice.Tensor(${M}, 0, 1, 3)`,
  split: `split.Tensor(${M}, 2)`,
  chunk: `split.Tensor(${M}, 2)`,
  unbind: `unbind.int(${M}, 0)`,
  flip: `flip(${M}, [0])`,
  roll: `roll(${M}, [1], [0])`,
  contiguous: `clone(${M})`,
  slice: `slice.Tensor(${M}, 0, 1, 3)`,
  relu: `relu(${M})`,
  exp: `exp(${M})`,
  log: `log(${M})`,
  tanh: `tanh(${M})`,
  sigmoid: `sigmoid(${M})`,
  silu: `silu(${M})`,
  gelu: `gelu(${M})`,
  cos: `cos(${M})`,
  abs: `abs(${M})`,
  sqrt: `sqrt(${M})`,
  rsqrt: `rsqrt(${M})`,
  square: `pow.Tensor_Scalar(${M}, 2)`,
  'pow.number': `pow.Tensor_Scalar(${M}, 3)`,
  reciprocal: `reciprocal(${M})`,
  softmax: `_softmax(${M}, 1, False)`,
  log_softmax: `_log_softmax(${M}, 1, False)`,
  amax: `amax(${M}, [0])`,
  layer_norm: `native_layer_norm(${M}, [4], None, None, 1e-05)`,
  clamp: `clamp(${M}, 0.0, 1.0)`,
};

const BINARY: Readonly<Record<string, (x: string, y: string) => string>> = {
  add: (x, y) => `add.Tensor(${x}, ${y})`,
  sub: (x, y) => `sub.Tensor(${x}, ${y})`,
  mul: (x, y) => `mul.Tensor(${x}, ${y})`,
  div: (x, y) => `div.Tensor(${x}, ${y})`,
  add_: (x, y) => `add_.Tensor(${x}, ${y})`,
  sub_: (x, y) => `sub_.Tensor(${x}, ${y})`,
  mul_: (x, y) => `mul_.Tensor(${x}, ${y})`,
  div_: (x, y) => `div_.Tensor(${x}, ${y})`,
};

const FIXED: Readonly<Record<string, string>> = {
  maximum: `maximum(${M}, ${M})`,
  pow: `pow.Tensor_Tensor(${M}, ${M})`,
  mm: `mm(${M}, ${M})`,
  matmul: `matmul(${M}, ${M})`,
  bmm: `bmm(${B}, ${B})`,
  einsum: `einsum('ij,jk->ik', [${M}, ${M}])`,
  dot: 'dot(x[4], x[4])',
  mv: `mv(${M}, x[4])`,
  linear: `linear(${M}, ${M})`,
  cat: `cat([${M}, ${M}])`,
  stack: `stack([${M}, ${M}])`,
  addmm: `addmm(${M}, ${M}, ${M})`,
  addmv: `addmv(x[4], ${M}, x[4])`,
  addbmm: `addbmm(${M}, ${B}, ${B})`,
  baddbmm: `baddbmm(${B}, ${B}, ${B})`,
  addr: `addr(${M}, x[4], x[4])`,
  'linear.bias': `linear(${M}, ${M}, x[4])`,
  where: `where.self(bits[4,4], ${M}, ${M})`,
  'einsum.3': `einsum('ij,jk,kl->il', [${M}, ${M}, ${M}])`,
};

/** The number on the left: `2 - x`, and `2 / x` as a multiple of the reciprocal. */
const NUMBER_FIRST: Readonly<Record<string, string>> = {
  add: `add.Tensor(${M}, 2.0)`,
  sub: `rsub.Scalar(${M}, 2.0)`,
  mul: `mul.Tensor(${M}, 2.0)`,
  div: `reciprocal(${M})`,
};

/**
 * The call, and for each of its tensors the position of the operand; undefined for one that this
 * library has no such call for.
 */
export function ourCall({
  op,
  operands,
}: Call): { readonly call: CallText; readonly of: readonly number[] } | undefined {
  const word = (o: Operand): string => (o === 'n' ? '2.0' : o.startsWith('n') ? 'x[]' : M);
  const tensors = operands.flatMap((o, i) => (o === 'n' ? [] : [i]));
  if (operands[0] === 'n') return { call: parseCall(NUMBER_FIRST[op]), of: [1] };
  const text = UNARY[op] ?? FIXED[op] ?? BINARY[op]?.(word(operands[0]), word(operands[1]));
  return text === undefined ? undefined : { call: parseCall(text), of: tensors };
}
