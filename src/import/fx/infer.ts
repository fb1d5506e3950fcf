import type { Arg, ValueType } from '../../graph/types.ts';

/** A call as operator inference sees it. */
export interface CallToInfer {
  readonly target: string;
  readonly args: readonly Arg[];
  readonly kwargs: Readonly<Record<string, Arg>>;
  readonly name: string;
}

/**
 * Type of a call by the operator's own rule; undefined where the operator is not known. May throw `E_TYPE` when the call
 * does not fit the operator.
 */
export type Infer = (call: CallToInfer, typeOf: (name: string) => ValueType) => ValueType | undefined;
