/**
 * Lists findings of the validator that we keep as they are, with the reason. A finding is explained
 * by the first entry that matches its operator, its rule, its call and its kind. A test reads the
 * list and fails for a finding without an entry, and for an entry that nothing needs any more.
 */
import { defined } from '../../defined.ts';
export interface Explanation {
  /**
   * `missing`: execution confirms the combination on our draws and we do not offer it. `unsound`:
   * the reverse.
   */
  readonly finding: 'missing' | 'unsound';
  /** Canonical names of operators, whole. */
  readonly operators: RegExp;
  /** Text of the rule, `P(max), R -> P(max)`, whole. */
  readonly rule: RegExp;
  /** Part of the sample call, where the reason is in its arguments. */
  readonly call?: RegExp;
  readonly reason: string;
}

const missing = (operators: RegExp, rule: RegExp, reason: string, call?: RegExp): Explanation => ({
  finding: 'missing',
  operators,
  rule,
  reason,
  ...defined({ call }),
});

const EXTREME = /.*P\((max|min)\).*/;
/** Something is pending. */
const PENDING = /.*P\(.*/;
/** The second operand is cut or pending. */
const SECOND = /[^,>]*, [SP]\(.*/;

export const EXPLAINED: readonly Explanation[] = [
  missing(
    /flex_attention(_backward)?/,
    /.*/,
    'the samples have no bodies, and a body may ask for the row and the column of a score and ' +
      'need not be linear: only batch and heads are cut',
  ),
  missing(
    /flex_lib\.zeros_and_scatter\.default/,
    PENDING,
    'it stands in the bodies of attention alone, which see single numbers and are not cut',
  ),
  missing(
    /(aten\._scaled_dot_product_\w+|torch_attn\._varlen_attn(_backward)?)\.default/,
    /R, R, S\(([23])\).* -> S\(\1\), .*|S\(([23])\), .* -> P\(sum\), P\(sum\), S\(\2\).*/,
    'the flash kernels take no values that are narrower or wider than queries; others were not ' +
      'run, so no fused form is cut there',
  ),
  missing(
    /(aten|stablehlo|chlo)\.(log|log2|log10|log1p|log_plus_one|sqrt|rsqrt|acosh|digamma)_?(\.default)?/,
    /P\(min\) -> P\((min|max)\)/,
    'domain: true only where the reduced value lies in the domain of the function, which ' +
      'values do not promise',
  ),
  missing(
    /aten\.(special_zeta|igammac?|polygamma|mvlgamma|logit|special_entr|special_bessel_y1)\.default/,
    EXTREME,
    'domain: monotone only on the part of the line that the samples draw',
  ),
  missing(
    /aten\.(pow|pow_)\..*|(stablehlo|chlo)\.(broadcast_)?power/,
    /P\(min\)(, R)? -> P\((min|max)\)/,
    'domain: the power is monotone for a positive base, as the samples draw it, and no ' +
      'promise says so',
  ),
  missing(
    /aten\.(prelu|_prelu_kernel)\.default/,
    /R, P\((max|min)\) -> P\((min|max)\)/,
    'a slope multiplies negative values only, which the decomposition does not tell; slopes ' +
      'are parameters, never pending',
  ),
  missing(
    /aten\.(xlogy\.Tensor|special_xlog1py\.default)/,
    EXTREME,
    'domain: monotone in one operand only where the other is positive, as the samples draw both',
  ),
  missing(
    /aten\.div\.Tensor_mode|aten\.addcdiv_?\.default|(stablehlo|chlo)\.(broadcast_)?(divide|remainder)/,
    EXTREME,
    'domain: the samples draw positive divisors; with a negative one the order turns round',
  ),
  missing(
    /aten\..*_backward\.default/,
    /P\((max|min)\)(, .*)? -> P\((max|min)\)(, .*)?/,
    'gradients are sums: none is pending as a maximum. The combination holds because the ' +
      'derivative is never negative',
  ),
  missing(
    /aten\.(addmm|addmv|addbmm|baddbmm|linear|conv[123]d|convolution|layer_norm|native_layer_norm|group_norm|native_group_norm|_native_batch_norm_legit|index_add|index_put|put|scatter_add|_unsafe_masked_index_put_accumulate)\..*|stablehlo\.(scatter|batch_norm_training)/,
    /[^>]*P\((max|min)\)[^>]*-> P\((max|min)\).*/,
    'an operand that is only added to a product, a norm or selected rows: no program has one ' +
      'that is pending as an extreme',
  ),
  missing(
    /aten\.(type_as|expand_as|avg_pool[23]d_backward|_adaptive_avg_pool[23]d_backward|max_pool[23]d_with_indices_backward|(adaptive|fractional)_max_pool[23]d_backward|(reflection|replication)_pad[123]d_backward)\.default/,
    SECOND,
    'one operand is read for its dtype or shape only; it is offered replicated and cut the ' +
      'same way, not in every other placement',
  ),
  missing(
    /aten\.(addmm|cat|convolution_backward)\.default/,
    /[^>]*[SP]\(.*/,
    'an operand is not read in this call (beta = 0, an empty member, a gradient that is ' +
      'masked off): it is offered as where it is read',
    /beta=0|x\[0\]|\[(True|False)(,(True|False))*,?False/,
  ),
  missing(
    /aten\.convolution_backward\.default/,
    /R, P\((sum|avg)\), P\((sum|avg)\) -> .*/,
    'input and weight are read by one gradient each; both pending at once does not occur',
  ),
  missing(
    /aten\.(nll_loss_backward|nll_loss2d_backward)\.default/,
    PENDING,
    'the scores of a loss are not read by its gradient, nor the total weight without a mean: ' +
      'they are offered as their readers leave them',
  ),
  missing(
    /aten\.(native_batch_norm_backward|_batch_norm_with_update_functional|native_batch_norm|_native_batch_norm_legit|_native_batch_norm_legit_functional|_native_batch_norm_legit_no_training|batch_norm)\.default|stablehlo\.batch_norm_(training|inference|grad)/,
    /.*P\((sum|avg|max|min)\).*/,
    'statistics, weights and biases of a norm are parameters, which are never pending; joint ' +
      'sums of several of them hold, and are left out',
  ),
  missing(
    /aten\.(broadcast_tensors\.default)|stablehlo\.optimization_barrier/,
    /(S|P)\([^>]*, (R|[SP]\(\w+\)) -> .*|R, P\(.*/,
    'the operands are independent: each is offered alone, and all with one placement; every ' +
      'pair of placements would be a product of them',
  ),
  missing(
    /aten\.(nextafter\.default)|chlo\.next_after/,
    PENDING,
    'the result is nearer to the first operand than the tolerance: what is confirmed is the ' +
      'first operand, not the function',
  ),
  missing(
    /aten\.lu_unpack\.default/,
    PENDING,
    'factors come from a factorisation, which leaves nothing pending',
  ),
  missing(
    /aten\.bitwise_(left|right)_shift_?\..*/,
    PENDING,
    'shifts scale integers, and pending integers do not occur in programs; a left shift may ' +
      'also overflow one operand',
  ),
  missing(
    /aten\.(binary_cross_entropy|binary_cross_entropy_with_logits|binary_cross_entropy_backward|cross_entropy_loss|nll_loss_forward|nll_loss2d_forward)\.default/,
    /[^>]*P\(.*/,
    'targets and class weights are data, never pending; extremes of scores hold for one sign ' +
      'of the weights only',
  ),
  missing(
    /aten\.(cross_entropy_loss)\.default/,
    /S\(0\), S\(0\) -> P\(avg\)/,
    'an average of means is wrong as soon as one target is ignored; the rule with the global ' +
      'count is offered',
  ),
  missing(
    /aten\.(nansum|nan_to_num)\.default/,
    PENDING,
    'a NaN in one part is not a NaN of the whole; the samples draw none',
  ),
  missing(
    /aten\.masked_fill_?\.Scalar/,
    /.*P\((bor|band)\).*/,
    'a pending mask passes only where the value lies beyond everything that it replaces',
  ),
  missing(
    /aten\.heaviside\.default/,
    /R, P\(.*/,
    'affine in the value at zero, which is a constant in programs',
  ),
  missing(/aten\.copysign\.Tensor/, EXTREME, 'a maximum of -0 and 0 has no defined sign'),
  missing(
    /aten\.tanh_backward\.default/,
    /R, P\(min\) -> P\(max\)/,
    'true for positive gradients and outputs, as the samples draw them',
  ),
  missing(
    /aten\.(native_dropout|bernoulli)\.default/,
    EXTREME,
    'true where nothing is dropped, or of probabilities, which are not pending',
  ),
  missing(
    /stablehlo\.(reduce|reduce_window)/,
    /.*, P\(\w+\) -> .*/,
    'the initial value is a constant, which is offered replicated',
  ),
  missing(
    /stablehlo\.(clamp|rng)/,
    PENDING,
    'bounds and parameters are constants, which are offered replicated',
  ),
  missing(
    /stablehlo\.reduce_precision/,
    /P\((sum|avg)\) -> P\((sum|avg)\)/,
    'the sample asks for the precision that float64 has; a rounded sum is not a sum of rounded ' +
      'parts',
  ),
  missing(
    /aten\.native_layer_norm_backward\.default/,
    /[^>]*, P\(sum\) -> .*/,
    'the values of a bias are not read by the gradient, and a bias is a parameter, which is ' +
      'never pending',
  ),
  missing(
    /aten\._fused_adamw?\..*/,
    PENDING,
    'parameters and moments are kept from step to step, never pending; moments are linear in ' +
      'the gradient only without a second one',
  ),
  missing(
    /aten\.all\..*/,
    /P\((max|min)\) -> .*/,
    'true of numbers that are truth values, not of others: among the samples a number that ' +
      'is not zero has smaller ones next to it too rarely',
  ),
  missing(
    /aten\.(max_pool[23]d_with_indices|(adaptive|fractional)_max_pool[23]d)_backward\.default/,
    /S\((2|3|4)\), R, S\(\1\) -> P\(sum\)/,
    'true by the definition, but the kernel of PyTorch refuses a gradient that has not the ' +
      'pooled size of the whole input',
  ),
];
