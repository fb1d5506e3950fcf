/**
 * What the checks against PyTorch cannot run or find different, with the reason, so that it cannot
 * grow in silence.
 */

/**
 * Names under which Python's tensor methods print in hand-written graphs; PyTorch has `_to_copy`
 * for them.
 */
export const ABSENT: readonly string[] = [
  'float',
  'double',
  'half',
  'bfloat16',
  'long',
  'int',
  'bool',
].map((name) => `aten.${name}.default`);

/** Sample calls that PyTorch does not run. */
export const REFUSED: readonly string[] = [
  ...ABSENT.map((name) => `${name.replace('aten.', '')}(x[6,5]): PyTorch 2.13.0 has no ${name}`),
  `put.default(x[6,2], distinct12[5], x[5]): put_ does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(T`,
  `max_unpool2d(x[5,6,4,4], index64[5,6,4,4], [8,8]): max_unpooling2d_forward_out does not have a deterministic implementation, but you set 'torch.use_det`,
  `max_unpool2d(x[6,3,3], index36[6,3,3], [6,6]): max_unpooling2d_forward_out does not have a deterministic implementation, but you set 'torch.use_det`,
  `max_unpool3d(x[6,5,2,3,2], index48[6,5,2,3,2], [3,4,4], [2,2,2], [0,0,0]): max_unpooling3d_forward_out does not have a deterministic implementation, but you set 'torch.use_det`,
];

/** Operators of which no rule was run, by reason. */
export const NOT_RUN: Readonly<Record<string, readonly string[]>> = {
  'PyTorch has no such overload': ABSENT,
  'no rule but replicate': [
    'aten.median.default',
    'aten.nanmedian.default',
    'aten._pdist_forward.default',
    'aten.scalar_tensor.default',
    'aten.tril_indices.default',
    'aten.triu_indices.default',
    'aten.randperm.default',
    'aten.poisson.default',
  ],
  // Of several values for one place any may win: refused where answers must repeat.
  'PyTorch does not run it on a CPU': ['aten.max_unpool2d.default', 'aten.max_unpool3d.default'],
  // GPU kernels; their rules are those of the CPU's fused attention.
  'no sample': [
    'aten._scaled_dot_product_flash_attention.default',
    'aten._scaled_dot_product_flash_attention_backward.default',
    'aten._scaled_dot_product_efficient_attention.default',
    'aten._scaled_dot_product_efficient_attention_backward.default',
    'aten._scaled_dot_product_cudnn_attention.default',
    'aten._scaled_dot_product_cudnn_attention_backward.default',
  ],
};

/**
 * Operators whose kernels go through the memory of an operand without a look at its strides: other
 * memory orders than row-major give other numbers on one device too, and autograd hands them none.
 * Determinants factor the transpose of a matrix that lies column by column, so that their factors
 * are others.
 */
export const READ_IN_MEMORY: readonly string[] = [
  'aten.native_group_norm_backward.default',
  'aten._weight_norm_interface.default',
  'aten._scaled_dot_product_flash_attention_for_cpu.default',
  'aten.adaptive_max_pool3d_backward.default',
  'aten.fractional_max_pool2d_backward.default',
  'aten.fractional_max_pool3d_backward.default',
  'aten._linalg_det.default',
  'aten._linalg_slogdet.default',
];

/** Rules whose local call the kernel refuses, though the mathematics is right. */
export const KERNEL_LIMITS: readonly string[] = [
  // A fault of PyTorch 2.13.0 in bf16.
  "index_reduce(x[5,6], 1, index6[9], x[5,9], 'prod') S(0), R, S(0) -> S(0)  on 3 r" +
    'anks (bf16, rows, views): kernel: iter.ninputs() == traits::arity INTERNAL ASSER' +
    'T FAILED at "/__w/pytorch/pytorch/aten/src/ATen/native/cpu/Loops.h":351, please ' +
    'report a bug to PyTorch. ',
];

/**
 * Where our schema is wider than PyTorch's: defaults for arguments that traced graphs leave out,
 * and one schema for a family.
 */
export const OTHER_SCHEMA: readonly string[] = [
  "aten.contiguous.default: 'memory_format' is 0 by default in PyTorch, null here",
  "aten.sum.dim_IntList: 'dim' is required in PyTorch",
  "aten.mean.dim: 'dim' is required in PyTorch",
  "aten.fill.Scalar: PyTorch has no argument 'dtype'",
  "aten.fill_.Scalar: PyTorch has no argument 'dtype'",
  "aten.zero_.default: PyTorch has no argument 'dtype'",
  "aten.tril_indices.default: 'dtype' is 4 by default in PyTorch, null here",
  "aten.triu_indices.default: 'dtype' is 4 by default in PyTorch, null here",
  "prims.iota.default: 'device' is required in PyTorch",
  "aten.bernoulli.p: 'p' is required in PyTorch",
  "aten.randperm.default: 'dtype' is 4 by default in PyTorch, null here",
  "aten.randint.default: 'dtype' is 4 by default in PyTorch, null here",
  "aten.randint.low: 'dtype' is 4 by default in PyTorch, null here",
];

/** Rules of samples that no program takes at these sizes, in the order of the samples. */
export const NOT_OFFERED: readonly string[] = [
  // One row is not cut, nor one unit of 16 bytes, and 2, 3, 5 and 7 do not divide both 5 and 6.
  'mm(x[7,1], x[1,6]): S(1), S(0) -> P(sum)',
  'matmul(x[5,1,6,7], x[3,7,5]): S(1), R -> P(sum)',
  '_grouped_mm(bf16[6,8,16], bf16[6,16,8]): S(1), R -> S(1)',
  '_grouped_mm(bf16[6,8,16], bf16[6,16,8]): R, S(2) -> S(2)',
  'reshape(x[5,6], [6, 5]): S(0) -> S(0)',
  // An input of a program is not cut in strides.
  'unflatten.int(x[5,12], -1, [4, 3]): _S(1, d1) -> S(2)',
  // No call leaves a mean of integers pending.
  'full_like(i64[6,5], 2.5): P(avg) -> S(0)',
  'full_like(i64[6,5], 2.5): P(avg) -> S(1)',
  'fill_.Scalar(i64[6,5], 2.5): P(avg) -> S(0)',
  'fill_.Scalar(i64[6,5], 2.5): P(avg) -> S(1)',
];

/**
 * PyTorch looks at values (is a matrix singular?) before it types these, so that it refuses fake
 * tensors.
 */
export const VALUES_FIRST: readonly string[] = [
  // The first offset must be 0, and these calls are made of ones; kernels.test.ts compares them on
  // offsets of their own.
  'aten._embedding_bag.default',
  'aten._embedding_bag_forward_only.default',
  'aten.linalg_cholesky.default',
  'aten.cholesky.default',
  'aten.linalg_inv.default',
  'aten.inverse.default',
  'aten.linalg_solve.default',
  'aten.linalg_lu_factor.default',
];
