/**
 * Tells whether an operator's derivative is right for complex numbers. PyTorch's gradient of a
 * complex operand is the conjugate of the derivative times the incoming gradient. Formulas written
 * for real numbers lack the conjugate, which makes no difference where the operator only moves or
 * adds numbers.
 */
import type { OperatorRecord } from '../../record/record.ts';

/** Tried on complex numbers against torch.autograd (test/passes/autodiff/complex-vjp.test.ts). */
const CONJUGATED =
  /^aten\.(view_as_complex|view_as_real|complex|_conj|polar|real|imag|abs|mul|div)\./;

/** Linear with real coefficients: sums, and what puts elements elsewhere. */
const MOVED_OR_ADDED =
  /^aten\.(add|sub|rsub|neg|sum|mean|cumsum|cat|stack|clone|copy|_to_copy|contiguous|lift_fresh_copy|index|index_select|index_put|index_add|gather|scatter_add|select_scatter|slice_scatter|split|split_copy|unsafe_split|split_with_sizes|split_with_sizes_copy|unbind|roll|flip|repeat|constant_pad_nd|tril|triu|where|masked_fill|expand|diagonal)\./;

/** Tells whether gradients may pass the operator where its operands or results are complex. */
export function passesComplex({ name, cls }: OperatorRecord): boolean {
  return cls === 'view' || CONJUGATED.test(name) || MOVED_OR_ADDED.test(name);
}
