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
  `max_unpool2d(x[5,6,4,4], index64[5,6,4,4], [8,8]): max_unpooling2d_forward_out does not have a deterministic implementation, but you set 'torch.use_det`,
  `max_unpool2d(x[6,3,3], index36[6,3,3], [6,6]): max_unpooling2d_forward_out does not have a deterministic implementation, but you set 'torch.use_det`,
  `max_unpool3d(x[6,5,2,3,2], index48[6,5,2,3,2], [3,4,4], [2,2,2], [0,0,0]): max_unpooling3d_forward_out does not have a deterministic implementation, but you set 'torch.use_det`,
];

/** Operators of which no rule was run, by reason. */
export const NOT_RUN: Readonly<Record<string, readonly string[]>> = {
  'PyTorch has no such overload': ABSENT,
  // What is left of them on a rank is the lowering's: a local size, an offset, a random stream.
  'every rule rewrites the call': [
    'aten.empty.memory_format',
    'aten.empty_strided.default',
    'aten.eye.default',
    'aten.eye.m',
    'aten.arange.default',
    'aten.arange.start',
    'aten.arange.start_step',
    'aten.linspace.default',
    'prims.iota.default',
    'aten.bernoulli.default',
    'aten.bernoulli.p',
    'aten.bernoulli_.float',
    'aten.normal_.default',
    'aten.uniform_.default',
    'aten.exponential_.default',
    'aten.log_normal_.default',
    'aten.geometric_.default',
    'aten.multinomial.default',
    'aten.rand.default',
    'aten.randn.default',
    'aten.rand_like.default',
    'aten.randn_like.default',
  ],
  'no rule but replicate': [
    'aten.median.default',
    'aten.nanmedian.default',
    'aten.scalar_tensor.default',
    'aten.tril_indices.default',
    'aten.triu_indices.default',
    'aten.randperm.default',
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

/** Rules whose local call the kernel refuses, though the mathematics is right. */
export const KERNEL_LIMITS: readonly string[] = [];

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
];

/**
 * Rules of samples whose own conditions (evenness, units) admit them at these sizes on none of 2,
 * 3, 5 and 7 ranks.
 */
export const NOT_ADMITTED = 5;

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
