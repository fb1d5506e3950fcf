/**
 * What the validator finds and we keep as it is, with the reason. A finding is explained by the first entry that its
 * operator, its rule and the kind of finding match; a test reads the list and fails for a finding without entry, and for an
 * entry that nothing needs any more.
 */
export interface Explanation {
  /** `missing`: execution confirms the combination on our draws and we do not offer it. `unsound`: the reverse. */
  readonly finding: 'missing' | 'unsound';
  /** Canonical names of operators, whole. */
  readonly operators: RegExp;
  /** Text of the rule, `P(max), R -> P(max)`, whole. */
  readonly rule: RegExp;
  readonly reason: string;
}

const missing = (operators: RegExp, rule: RegExp, reason: string): Explanation => ({
  finding: 'missing',
  operators,
  rule,
  reason,
});

const EXTREME = /.*P\((max|min)\).*/;
const ANY = /.*/;

export const EXPLAINED: readonly Explanation[] = [
  missing(
    /(aten|stablehlo|chlo)\.(log|log2|log10|log1p|log_plus_one|sqrt|rsqrt|acosh|digamma)_?(\.default)?/,
    /P\(min\) -> P\((min|max)\)/,
    'domain: true only where the reduced value lies in the domain of the function, which values do not promise',
  ),
  missing(
    /aten\.(pow|pow_)\..*|(stablehlo|chlo)\.(broadcast_)?power/,
    /P\(min\)(, R)? -> P\((min|max)\)/,
    'domain: the power is monotone for a positive base, as the samples draw it, and no promise says so',
  ),
  missing(
    /aten\.(xlogy\.Tensor|special_xlog1py\.default)/,
    EXTREME,
    'domain: monotone in one operand only where the other is positive, as the samples draw both',
  ),
  missing(
    /aten\.div\.Tensor_mode|(stablehlo|chlo)\.(broadcast_)?(divide|remainder)/,
    EXTREME,
    'domain: the samples draw positive divisors; with a negative one the order turns round',
  ),
  missing(
    /aten\..*_backward\.default/,
    /P\((max|min)\), .*-> P\((max|min)\)(, .*)?/,
    'gradients are sums: none is pending as a maximum. The combination holds because the derivative is never negative',
  ),
  missing(
    /aten\.(addmm|addmv|addbmm|baddbmm|linear|conv[123]d|convolution|layer_norm|native_layer_norm|group_norm|native_group_norm|_native_batch_norm_legit|index_add|index_put|scatter_add|_unsafe_masked_index_put_accumulate)\..*|stablehlo\.(scatter|batch_norm_training)/,
    /[^>]*P\((max|min)\)[^>]*-> P\((max|min)\).*/,
    'an operand that is only added to a product, a norm or selected rows: no program has one that is pending as an extreme',
  ),
  missing(
    /aten\.(type_as|expand_as|avg_pool2d_backward|_adaptive_avg_pool2d_backward|max_pool2d_with_indices_backward)\.default/,
    ANY,
    'one operand is read for its dtype or shape only; it is offered replicated and cut alike, not in every other placement',
  ),
];
