/**
 * The interface through which readers ask for operators: result types for a call with operand
 * types.
 */

import type { Arg, ValueType } from '../../graph/types.ts';
import { type ElementCall, elementCalls, isListOperator } from '../../ops/list-operators.ts';
import { inferCall } from '../../ops/record/infer.ts';
import type { OperatorTable } from '../../ops/record/table.ts';

/** A call as operator inference sees it. */
export interface CallToInfer {
  readonly target: string;
  readonly args: readonly Arg[];
  readonly kwargs: Readonly<Record<string, Arg>>;
  readonly name: string;
  /** The result type that the text states. */
  readonly type?: ValueType | undefined;
}

/** The questions of a reader about operators. */
export interface Infer {
  /**
   * Type of a call by the operator's own rule; undefined where the operator is not known. May throw
   * `E_TYPE` when the call does not fit the operator.
   */
  (call: CallToInfer, typeOf: (name: string) => ValueType): ValueType | undefined;
  /**
   * A call over lists as one call for each element; undefined for other calls. May throw `E_TYPE`
   * or `E_UNKNOWN_OP`.
   */
  readonly elements?: (call: Omit<CallToInfer, 'name'>) => readonly ElementCall[] | undefined;
}

/** Rules of a table of operators, those over lists included. */
export function inferBy(table: OperatorTable): Infer {
  return Object.assign(
    (call: CallToInfer, typeOf: (name: string) => ValueType) => inferCall(table, call, typeOf),
    {
      elements: ({ target, args, kwargs }: Omit<CallToInfer, 'name'>) =>
        isListOperator(target) ? elementCalls(table, target, args, kwargs) : undefined,
    },
  );
}
