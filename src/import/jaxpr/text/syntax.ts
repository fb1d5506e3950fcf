/** The records that the jaxpr parser gives for variables, equations and bodies. */

import type { TensorType } from '../../../graph/types.ts';

export interface Variable {
  /** `_` for a result that nothing reads. */
  readonly name: string;
  readonly type: TensorType;
  /** For random keys: the tag of their implementation, `fry`. */
  readonly key?: string;
  readonly at: number;
}
/** A complex number is text, `(1, -2)`. */
export type LiteralValue = number | bigint | boolean | string;
export type Atom =
  | { readonly kind: 'variable'; readonly name: string; readonly at: number }
  | {
      readonly kind: 'literal';
      readonly value: LiteralValue;
      readonly type: TensorType;
      readonly at: number;
    };

/** A parameter: text, or the jaxprs that it holds. */
export interface Parameter {
  readonly text: string;
  readonly at: number;
  readonly bodies: readonly Jaxpr[];
}

export interface Equation {
  readonly primitive: string;
  readonly at: number;
  readonly results: readonly Variable[];
  readonly parameters: ReadonlyMap<string, Parameter>;
  readonly operands: readonly Atom[];
}

export interface Jaxpr {
  readonly at: number;
  readonly constants: readonly Variable[];
  readonly inputs: readonly Variable[];
  readonly equations: readonly Equation[];
  readonly outputs: readonly Atom[];
}

/** Tells whether an output of a body has the name of a result that nothing reads. */
export function isDroppedOutput(atom: Atom): boolean {
  return atom.kind === 'variable' && atom.name === '_';
}
