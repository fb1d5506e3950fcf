/**
 * Infers the types of ONNX values by the rule of the aten call that an ONNX operator becomes, in
 * symbols where an operand has a symbolic dim. Inputs and unknown operators have the types that the
 * file states (`lower.ts`).
 */
import { controlCall } from '../../graph/control.ts';
import type { Arg, Graph, ValueType } from '../../graph/types.ts';
import { eachOperand } from '../../graph/value.ts';
import type { CallToInfer, Infer } from '../complete/infer.ts';
import { inferSymbolic } from '../complete/symbolic.ts';

/**
 * Type of a call; undefined where the operator is not known. @throws E_TYPE where the operands do
 * not fit it
 */
export function inferCallType(
  infer: Infer,
  call: CallToInfer,
  typeOf: (name: string) => ValueType,
): ValueType | undefined {
  let symbolic = false;
  eachOperand(call, (name) => {
    const type = typeOf(name);
    symbolic ||= type.kind === 'tensor' && type.shape.some((dim) => typeof dim !== 'number');
  });
  return symbolic ? inferSymbolic(infer, call, typeOf) : infer(call, typeOf);
}

/** Type of a control-flow call, from its bodies. */
export function inferControlType(
  call: {
    readonly target: string;
    readonly args: readonly Arg[];
    readonly kwargs: Readonly<Record<string, Arg>>;
  },
  bodies: Readonly<Record<string, Graph>>,
  typeOf: (name: string) => ValueType,
): ValueType {
  const control = controlCall(call, bodies, typeOf);
  if (control === undefined) throw new Error(`${call.target} is not control flow`);
  return control.result;
}
