/** Names of in-place operators, and of the functions whose results they write. */

/**
 * PyTorch's name of the in-place form: `add_`, `__iand__` of `__and__`; `pow_` calls its overload
 * otherwise than `pow`.
 */
export function inPlaceName(name: string): string {
  if (name === 'aten.pow.Tensor_Scalar') return 'aten.pow_.Scalar';
  const [space, base, overload] = name.split('.');
  return `${space}.${base.startsWith('__') ? base.replace('__', '__i') : `${base}_`}.${overload}`;
}

/**
 * The functional form of an in-place operator (`aten.add_.Tensor` is `aten.add.Tensor`): the same
 * arguments, the result in a new value. Undefined for other operators.
 */
export function functionalForm(name: string): string | undefined {
  const named = FORMS[name];
  if (named !== undefined) return named;
  const match = /^aten\.([a-z0-9_]*[a-z0-9])_\.(\w+)$/.exec(name);
  if (match === null || KEPT.has(match[1])) return undefined;
  return `aten.${match[1]}.${match[2]}`;
}

/** Overloads that are named otherwise, and operators with Python's double underscores. */
const FORMS: Readonly<Record<string, string | undefined>> = Object.assign(
  Object.create(null) as object,
  {
    'aten.pow_.Scalar': 'aten.pow.Tensor_Scalar',
    'aten.zero_.default': 'aten.zeros_like.default',
    'aten.detach_.default': 'aten.detach.default',
    'aten.__iand__.Tensor': 'aten.__and__.Tensor',
    'aten.__iand__.Scalar': 'aten.__and__.Scalar',
    'aten.__ior__.Tensor': 'aten.__or__.Tensor',
    'aten.__ior__.Scalar': 'aten.__or__.Scalar',
    'aten.__ixor__.Tensor': 'aten.__xor__.Tensor',
    'aten.__ixor__.Scalar': 'aten.__xor__.Scalar',
  },
);

/** In-place fills by random numbers: they keep nothing of what they fill, and pass no gradient. */
const KEPT: ReadonlySet<string> = new Set([
  'bernoulli',
  'normal',
  'uniform',
  'exponential',
  'log_normal',
  'geometric',
  'cauchy',
]);
