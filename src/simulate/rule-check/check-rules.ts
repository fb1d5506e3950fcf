/**
 * Tests the sharding rules and the derivative of a user's operator by execution, on calls to try,
 * with a kernel or a decomposition that gives its values. It reports the rules that execution
 * refutes, the placements that it confirms and no rule has, and gradients that differences of the
 * values refute.
 */

import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { checkRecord, ShardwrightError } from '../../errors.ts';
import { builtinOperators } from '../../ops/builtin.ts';
import { hasKernel } from '../../ops/kernels/evaluate.ts';
import type { Kernel } from '../../ops/record/kernel.ts';
import type { OperatorRecord } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { OperatorRegistry } from '../../ops/registry.ts';
import { type Decompose, decomposedKernel } from '../../ops/vjp/composite/decomposed.ts';
import type { Vjps } from '../../ops/vjp/vjp.ts';
import { validateRules, type Validation, type ValidationOptions } from './check.ts';

/** Sample calls, kernel and numbers of ranks for a check of rules. */
export interface RuleCheckOptions extends Omit<ValidationOptions, 'operators'> {
  /**
   * Arguments of the calls to try, `x[6,4], x[4,6]`; default those of the record, or of an
   * elementwise schema.
   */
  readonly samples?: readonly string[];
  /** Values in float64; default the kernel of the record. */
  readonly kernel?: Kernel;
  /** Values by other operators; default the decomposition of the record, if it has one. */
  readonly decompose?: Decompose;
  /** The operators that a decomposition calls; default the built-in ones. */
  readonly table?: OperatorTable;
}

/** An operator with its derivative, as `customOp` gives it. */
export interface DerivedOperator {
  readonly record: OperatorRecord;
  readonly vjps: Vjps;
}

/**
 * Runs the rules of a record on 2 and 3 simulated ranks (`ranks`), for every combination of
 * placements of its inputs, and compares its derivative with central differences of its values.
 *
 * @param operator a record, with its derivative in `options.vjps`; or what `customOp` gives
 * @returns `unsound`: rules that give another result than one device; `missing`: placements that
 *   give the same and that no rule states; `wrongDerivatives`: gradients that differences refute;
 *   with what was tried
 * @throws E_NO_KERNEL for a record without values, E_SAMPLE without calls to try or for a call that
 *   does not fit
 */
export function checkRules(
  operator: OperatorRecord | DerivedOperator,
  options: RuleCheckOptions = {},
): Validation {
  checkRecord('checkRules', 'operator', operator, {
    fields: [],
    hint: 'give what defineOp or customOp gives.',
  });
  checkRecord('checkRules', 'record of options', options, { fields: [], hint: 'see its type.' });
  const { record, vjps } = 'record' in operator ? operator : { record: operator, vjps: {} };
  checkKinds('checkRules', { operator: [record, 'operator'], options: [options, 'record'] });
  const { samples = record.samples, decompose, table = builtinOperators(), ...rest } = options;
  const kernel =
    options.kernel ??
    (decompose === undefined ? record.kernel : decomposedKernel(table, record.name, decompose));
  if (kernel === undefined && !hasKernel(record))
    throw new ShardwrightError(
      'E_NO_KERNEL',
      `${record.name} has no kernel, so its rules cannot be run`,
      {
        hint:
          'give { kernel: (call) => [result] }, or { decompose: ({ b, x }) => [b.mul(x("x"), ' +
          'x("y"))] }.',
      },
    );
  const registry = new OperatorRegistry(table);
  const whole = {
    ...record,
    ...defined({ kernel, samples }),
  };
  registry.registerOp(whole, { replace: true });
  const found = validateRules(registry.table(), {
    squares: true,
    vjps,
    ...rest,
    operators: [record.name],
  });
  if (found.samples > 0) return found;
  throw new ShardwrightError(
    'E_SAMPLE',
    `${record.name} has no sample calls, so there is nothing to try its rules with`,
    {
      hint: "give the arguments of some: samples: ['x[6,4], x[4,6]'].",
    },
  );
}
