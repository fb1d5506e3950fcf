/** Decides by type which expressions of a program are traced tensors. */

import ts from 'typescript';

/** Which expressions are traced tensors, by type. */
export class TensorTypes {
  private readonly known = new Map<ts.Type, boolean>();

  constructor(private readonly checker: ts.TypeChecker) {}

  /**
   * Tells whether the expression may be a traced tensor: itself, a member of its union, or its
   * constraint.
   */
  isTensor(node: ts.Node): boolean {
    return this.holds(this.checker.getTypeAtLocation(node));
  }

  /** Tells whether calling the expression gives a tensor. */
  returnsTensor(node: ts.Node): boolean {
    const signatures = this.checker.getSignaturesOfType(
      this.checker.getTypeAtLocation(node),
      ts.SignatureKind.Call,
    );
    return signatures.some((signature) => this.holds(signature.getReturnType()));
  }

  private holds(type: ts.Type): boolean {
    const hit = this.known.get(type);
    if (hit !== undefined) return hit;
    this.known.set(type, false); // ends the recursion of a type that contains itself
    const answer = this.decide(type);
    this.known.set(type, answer);
    return answer;
  }

  private decide(type: ts.Type): boolean {
    if (type.isUnionOrIntersection()) return type.types.some((member) => this.holds(member));
    if ((type.flags & ts.TypeFlags.TypeParameter) !== 0) {
      const constraint = this.checker.getBaseConstraintOfType(type);
      return constraint !== undefined && constraint !== type && this.holds(constraint);
    }
    // By name and by members, so that the rule needs no import of the library and holds for its
    // classes alone.
    if (
      TENSOR_CLASSES.has(type.symbol?.name ?? '') &&
      type.getProperty('requiresGrad') !== undefined
    )
      return true;
    return (
      type.isClassOrInterface() && this.checker.getBaseTypes(type).some((base) => this.holds(base))
    );
  }
}

const TENSOR_CLASSES = new Set([
  'Tensor',
  'TensorCore',
  'PointwiseTensor',
  'ReducedTensor',
  'ShapedTensor',
]);
