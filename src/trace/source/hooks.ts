/**
 * The functions that transformed source calls (see `wrap-conditions.ts`). On host values each of
 * these does exactly what the original program did; on a traced tensor it refuses, or hands over to
 * the recorder of control flow.
 *
 * @module
 */

import { refusal } from '../errors/refusal.ts';
import type { ControlFlow, ControlSite, Variables } from '../record/control-interface.ts';
import { runningRecorder, stopping } from '../record/recorder.ts';
import { describe, TensorCore, tracedValue } from '../tensor/core.ts';

const HINT =
  'choose by value with where(condition, a, b), or record both sides with an operator (cond, ' +
  'whileLoop).';

/**
 * The value itself, unless it is a traced tensor, which no condition can be. @throws
 * E_TRACE_CONTROL_FLOW
 */
export function condition<T>(value: T, kind: string, position: string): T | boolean {
  const policy = control();
  if (tracedValue(value) === undefined) {
    policy?.host?.({ kind, position });
    return value;
  }
  if (policy?.condition !== undefined && !IDENTITY.has(kind))
    return policy.condition(value, { kind, position });
  throw inControlFlow(value, { kind, position });
}

/** Comparisons of references: no policy can give them a meaning. */
const IDENTITY = new Set(['===', '!==', '==', '!=', 'switch', 'case']);

/**
 * The callback of `filter`, `some` and their like, with its result watched. Keeps `this`,
 * arguments, name and arity.
 */
export function predicate<F>(callback: F, kind: string, position: string): F {
  if (typeof callback !== 'function') return callback;
  const inner = callback as unknown as (this: unknown, ...args: unknown[]) => unknown;
  const watched = function (this: unknown, ...args: unknown[]): unknown {
    return condition(inner.apply(this, args), kind, position);
  };
  Object.defineProperty(watched, 'length', { value: inner.length, configurable: true });
  Object.defineProperty(watched, 'name', { value: inner.name, configurable: true });
  return watched as unknown as F;
}

/**
 * `value ? onTrue() : onFalse()`; on a traced tensor an operator, whose branches both start from
 * the same `variables`.
 */
export function branch(
  value: unknown,
  onTrue: () => unknown,
  onFalse: () => unknown,
  kind: string,
  position: string,
  variables?: Variables,
): unknown {
  const site = { kind, position };
  const policy = control();
  if (tracedValue(value) === undefined) {
    policy?.host?.(site);
    return value ? onTrue() : onFalse();
  }
  if (policy?.cond !== undefined) {
    const [yes, no] = [onTrue, onFalse].map((body) =>
      variables === undefined ? body : restoring(variables, body),
    );
    return policy.cond(value, yes, no, site);
  }
  return condition(value, kind, position) ? onTrue() : onFalse();
}

/** `if (value) onTrue(); else onFalse();` where both assign the same outer variables. */
export function assign(
  value: unknown,
  onTrue: () => void,
  onFalse: () => void,
  variables: Variables,
  kind: string,
  position: string,
): void {
  const policy = control();
  if (tracedValue(value) === undefined || policy?.cond === undefined) {
    if (condition(value, kind, position)) onTrue();
    else onFalse();
    return;
  }
  const run = (body: () => void): (() => unknown) =>
    restoring(variables, () => {
      body();
      return variables.read();
    });
  const after = policy.cond(value, run(onTrue), run(onFalse), { kind, position });
  variables.write(after as readonly unknown[]);
}

/** The body, after which the variables are what they are now. */
function restoring<T>(variables: Variables, body: () => T): () => T {
  const before = variables.read();
  return () => {
    const result = body();
    variables.write(before);
    return result;
  };
}

/** `while (test()) body();`, an operator where the first test gives a traced tensor. */
export function loop(
  test: () => unknown,
  body: () => void,
  variables: Variables,
  kind: string,
  position: string,
): void {
  let value = test();
  const policy = control();
  if (tracedValue(value) !== undefined && policy?.whileLoop !== undefined) {
    policy.whileLoop(test, body, variables, { kind, position });
    return;
  }
  while (condition(value, kind, position)) {
    body();
    value = test();
  }
}

/**
 * The value itself, unless it is a traced tensor: the statement around it has no form as an
 * operator.
 *
 * @throws E_REWRITE where operators were asked for; else what `condition` throws
 */
export function refuse<T>(value: T, kind: string, position: string, reason: string): T | boolean {
  if (tracedValue(value) === undefined || control()?.cond === undefined)
    return condition(value, kind, position);
  throw stopping(
    refusal(
      'E_REWRITE',
      `this ${kind} on ${shown(value)} cannot be written as an operator: ${reason}`,
      { source: position },
      {
        hint:
          'both branches of an if must return (what follows it counts as its else), or only ' +
          'assign variables; a while may only assign variables.',
      },
    ),
  );
}

function control(): ControlFlow | undefined {
  return runningRecorder()?.trace.settings.control;
}

function inControlFlow(value: unknown, { kind, position }: ControlSite): Error {
  const path = tracedValue(value)?.recorder.trace.path;
  const message =
    `symbolically traced variables cannot be used as inputs to control flow: ${shown(value)} ` +
    `in '${kind}'`;
  return stopping(
    refusal('E_TRACE_CONTROL_FLOW', message, { source: position, path }, { hint: HINT }),
  );
}

function shown(value: unknown): string {
  return value instanceof TensorCore ? describe(value) : 'a traced tensor';
}
