/**
 * Defines the interface between the source-level front end and the recorder of control flow. The
 * rewritten program calls `condition`, `cond` and `whileLoop`; operators and region policies
 * answer. Tensors are `unknown` here, so that this file depends on nothing.
 */

/** The place of a condition. */
export interface ControlSite {
  readonly kind: string;
  /** `file:line:column` in the source as the user wrote it. */
  readonly position: string;
}

/** The outer variables that a rewritten statement assigns. */
export interface Variables {
  readonly names: readonly string[];
  read(): readonly unknown[];
  write(values: readonly unknown[]): void;
}

/**
 * The functions that the source transform calls for ifs, loops and assignments of a traced program.
 */
export interface ControlFlow {
  /** A condition on a host value, which decides while tracing; for the report. */
  host?(site: ControlSite): void;
  /**
   * Policy `regions`: the host value of a traced condition. Without it such a condition is
   * `E_TRACE_CONTROL_FLOW`.
   */
  condition?(value: unknown, site: ControlSite): boolean;
  /**
   * Policy `regions`: the values of a tensor that the program reads, row by row. Without it that is
   * `E_TRACE_HOST_READ`.
   */
  read?(value: unknown, site: ControlSite): readonly number[];
  /**
   * Policy `operators`: `pred ? onTrue() : onFalse()` as an operator; the branches return trees of
   * tensors.
   */
  cond?(pred: unknown, onTrue: () => unknown, onFalse: () => unknown, site: ControlSite): unknown;
  /**
   * Policy `operators`: a loop as an operator. `variables` is the carry: `test` and `body` read and
   * assign the program's own variables, so the recorder assigns its stand-ins before it runs them
   * and reads them afterwards.
   */
  whileLoop?(test: () => unknown, body: () => void, variables: Variables, site: ControlSite): void;
}

/** One line of the report: a site, the policy that dealt with it, and why. */
export interface ControlDecision extends ControlSite {
  readonly policy: 'guards' | 'operators' | 'regions' | 'opaque' | 'predicate' | 'cfg';
  readonly reason: string;
}
