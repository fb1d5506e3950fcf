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
import { full } from '../tensor/functional.ts';
import type { Tensor } from '../tensor/tensor.ts';

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
  const policy = control();
  for (;;) {
    const value = test();
    if (tracedValue(value) !== undefined && policy?.whileLoop !== undefined) {
      // Trips that the host decided are written out; the rest is one operator.
      const isOuter = !recorded.has(position);
      recorded.add(position);
      try {
        policy.whileLoop(test, body, variables, { kind, position });
      } finally {
        if (isOuter) recorded.delete(position);
      }
      return;
    }
    if (!condition(value, kind, position)) return;
    body();
  }
}

/** Loops whose operator is being recorded, by the place of their condition. */
const recorded = new Set<string>();

/**
 * The condition of a `for` loop that `break` may leave. While the host counts it says how often;
 * the body asks whether the loop was left.
 */
export function goesOn(
  going: unknown,
  test: () => unknown,
  _kind: string,
  position: string,
): unknown {
  if (going === false) return false;
  const value = test();
  if (tracedValue(value) === undefined || tracedValue(going) === undefined) return value;
  return logic(going, () => value, '&&', position);
}

/** Tells whether the host knows that a loop was left. */
export function ended(going: unknown): boolean {
  return going === false;
}

/** Asks whether a loop was left already: never inside of a loop whose condition asks it. */
export function still(going: unknown, _kind: string, position: string): unknown {
  return recorded.has(position) ? true : going;
}

/**
 * `left && right()` or `left || right()`; on traced truth values an operator, for which both sides
 * are recorded.
 *
 * @throws E_REWRITE for traced values that are not one truth value
 */
export function logic(
  left: unknown,
  right: () => unknown,
  sign: string,
  position: string,
): unknown {
  const and = sign === '&&';
  if (tracedValue(left) === undefined || control()?.cond === undefined) {
    const value = condition(left, sign, position);
    return and ? value && right() : value || right();
  }
  const first = truth(left, sign, position);
  const second = right();
  if (typeof second === 'boolean') return second === and ? first : second;
  const other = truth(second, sign, position);
  return and ? first.logicalAnd(other) : first.logicalOr(other);
}

/** `!value`; on one traced truth value an operator. @throws E_REWRITE as `logic` does */
export function not(value: unknown, kind: string, position: string): unknown {
  if (tracedValue(value) === undefined || control()?.cond === undefined)
    return !condition(value, kind, position);
  return truth(value, kind, position).logicalNot();
}

/** One traced truth value. @throws E_REWRITE for any other value */
function truth(value: unknown, sign: string, position: string): Tensor {
  const traced = tracedValue(value);
  if (traced?.dtype === 'b8' && traced.shape.length === 0) return value as Tensor;
  const what = traced === undefined ? `a ${typeof value}` : shown(value);
  const lines = sign === '!' ? 'x.eq(0)' : sign === '&&' ? 'a.logicalAnd(b)' : 'a.logicalOr(b)';
  throw stopping(
    refusal(
      'E_REWRITE',
      `'${sign}' on ${what} cannot be written as an operator: it is not one truth value, b8[]`,
      { source: position },
      {
        hint:
          `element by element it is ${lines}, a choice by value where(x.ne(0), y, x); one truth ` +
          'value is x.gt(0).any() or x.gt(0).all().',
      },
    ),
  );
}

/** Arithmetic and comparisons of numbers, by their signs. */
const HOST: Readonly<Record<string, (a: number, b: number) => unknown>> = {
  '+': (a, b) => a + b,
  '-': (a, b) => a - b,
  '*': (a, b) => a * b,
  '/': (a, b) => a / b,
  '%': (a, b) => a % b,
  '<': (a, b) => a < b,
  '<=': (a, b) => a <= b,
  '>': (a, b) => a > b,
  '>=': (a, b) => a >= b,
};

const METHODS = {
  '+': 'add',
  '-': 'sub',
  '*': 'mul',
  '/': 'div',
  '%': 'remainder',
  '<': 'lt',
  '<=': 'le',
  '>': 'gt',
  '>=': 'ge',
} as const;

/**
 * `a + b` and its like. A number that a recorded loop counts in is a traced number without dims,
 * with which it is an operator; other tensors say what to write.
 */
export function arithmetic(a: unknown, b: unknown, sign: string): unknown {
  // JavaScript adds what it is given, whatever that is.
  const host = HOST[sign] as (a: unknown, b: unknown) => unknown;
  if (control()?.cond === undefined || (!isCounter(a) && !isCounter(b))) return host(a, b);
  const method = METHODS[sign as keyof typeof METHODS];
  if (isCounter(a) && (isCounter(b) || typeof b === 'number')) return numbered(a, method, b);
  if (isCounter(b) && typeof a === 'number') {
    const first = full([], a, Number.isSafeInteger(a) ? 'i64' : 'f32');
    return numbered(first, method, b);
  }
  return host(a, b);
}

/** `value + 1` of `value++`, or `value - 1`; the step has the type of the value. */
export function step(value: unknown, sign: string): unknown {
  if (typeof value === 'bigint') return arithmetic(value, 1n, sign);
  // `++` makes a number of texts and objects, which `+` does not.
  return arithmetic(tracedValue(value) === undefined ? Number(value) : value, 1, sign);
}

function numbered(a: Tensor, method: (typeof METHODS)[keyof typeof METHODS], b: Tensor | number) {
  return a[method](b);
}

/** A traced number without dims. */
function isCounter(value: unknown): value is Tensor {
  return tracedValue(value)?.shape.length === 0;
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
      { hint: LINES.find(([start]) => reason.startsWith(start))?.[1] ?? PLAIN },
    ),
  );
}

const PLAIN =
  'both branches of an if must return (what follows it counts as its else), or only assign ' +
  'variables; a while may only assign variables.';

/** The lines to write instead, by the beginning of a reason. */
const LINES: readonly (readonly [reason: string, hint: string])[] = [
  [
    'its body returns',
    'keep the result and return it behind the loop: `let found = y; while (...) { ...; if (c) { ' +
      'found = y; break; } } return found;`.',
  ],
  [
    'it breaks out',
    'leave the loop from an if in its body, not from a switch, a try or a label: `if (c) break;`.',
  ],
  [
    'it continues a loop',
    'go on from an if in the body of the loop, not from a switch, a try or a label: `if (c) ' +
      'continue;`.',
  ],
  [
    'it assigns a property',
    'take it into a variable and write it back: `let value = o.value; if (c) { value = ...; } ' +
      'o.value = value;`.',
  ],
  ['its branches assign variables', 'write it as `if (c) { y = a; } else { y = b; }`.'],
  [
    'its condition assigns variables',
    'assign in front of the loop and at the end of its body: `let c = f(y); while (c) { ...; c = ' +
      'f(y); }`.',
  ],
  [
    'it throws',
    'no device throws by a value: take the throw out, or test a host value: `if (n > 4) throw ' +
      '...;`.',
  ],
  [
    'it neither returns nor assigns',
    'what it does is not seen by the program: assign its result, `if (c) { y = f(y); }`.',
  ],
  ['it declares a var', 'declare it in front with let: `let y = x; if (c) { y = ...; }`.'],
  ['it declares a function', 'declare the function in front of the if or the loop.'],
  ['it has a label', 'write the inner loop as a function that returns what it has found.'],
  ['it awaits or yields', 'a traced program does not wait: await in front of the trace.'],
  ['it deletes a property', 'make a new record: `const { gone, ...rest } = o;`.'],
  [
    'a for loop',
    'give every trip what it needs as an argument, or count in a variable in front of a while ' +
      'loop: `let i = 0; while (c) { ...; i += 1; }`.',
  ],
  [
    'a do loop',
    'leave it by `if (c) break;` in its body, or write `let y = f(x); while (c) { y = f(y); }`.',
  ],
];

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
