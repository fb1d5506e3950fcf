/**
 * The entry `shardwright/ops`: operators and their sharding rules. It has the table of built-in
 * operators, records and gradients for operators of your own, the strategies of one call on a mesh,
 * and the check that runs each rule on virtual devices.
 *
 * @module shardwright/ops
 */
export { builtinOperators } from '../ops/builtin.ts';
export { graphFlops } from '../ops/flops.ts';
export { inferCall } from '../ops/record/infer.ts';
export { defineOp, type OperatorRecord } from '../ops/record/record.ts';
export { P, R, rule, S } from '../ops/record/rule.ts';
export { OperatorTable } from '../ops/record/table.ts';
export { OperatorRegistry } from '../ops/registry.ts';
export {
  type Body,
  type Decompose,
  decomposedOp,
  type DecomposedSpec,
} from '../ops/vjp/composite/decomposed.ts';
export { type Gradients, type Vjp, VjpCall, type VjpEntry, type Vjps } from '../ops/vjp/vjp.ts';
export {
  checkRules,
  type DerivedOperator,
  type RuleCheckOptions,
} from '../simulate/rule-check/check-rules.ts';
export type {
  Validation as RuleCheck,
  DerivativeFinding,
  Finding as RuleFinding,
} from '../simulate/rule-check/check.ts';
export { type Admission, admit } from '../strategy/admit.ts';
export {
  expandCall as expandRules,
  type OperatorCall,
  operatorCall,
  propagateCall as propagate,
  type PropagateCallOptions,
  type Propagated,
  type Strategy,
} from '../strategy/operator-call.ts';
