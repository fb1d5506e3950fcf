/**
 * Reads the program of `einshard --program`: tensors with their einshard expressions, and steps
 * that combine them.
 *
 *     {"devices": 8,
 *      "tensors": [{"name": "X", "shape": [8, 128], "expression": "b x -> b* x"}, ...],
 *      "steps": ["Y = bx,xy->by", "relu", "Z = by,yz->bz"]}
 *
 * `tensors` may also be an object, by name. A tensor without an expression is replicated; its dtype
 * is f32 unless stated. A step may name its operands behind it: `Y = bx,xy->by (X, W1)`, `H = relu
 * (Y)`. Besides einsums and functions of each element there are functions of whole rows (`P =
 * softmax over k (S)`), rows of a table (`X = gather bs,vd->bsd (ids, table)`) and sums (`Y = add
 * (X, Z)`).
 */

import * as z from 'zod';

import { defined } from '../../defined.ts';
import { ShardwrightError, suggestion } from '../../errors.ts';
import { type DType, DTYPES } from '../../graph/types.ts';
import { parseJson } from '../../text/json.ts';
import { NotationScanner } from '../../text/scanner.ts';

interface ProgramTensor {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly expression: string;
}

export interface EinsumStep {
  readonly kind: 'einsum';
  readonly text: string;
  readonly result: string;
  /** Letters of each operand. */
  readonly operands: readonly string[];
  readonly output: string;
  /** Names of the operands, where they are stated. */
  readonly names?: readonly string[];
  /** `gather`: the first operand has numbers of rows of the second. */
  readonly fn?: 'gather';
}

/** A function of whole rows, or the sum of two tensors: its letters are those of its operands. */
export interface WholeStep {
  readonly kind: 'whole';
  readonly text: string;
  readonly fn: string;
  readonly result: string;
  /** Letters that the function needs whole; none of a sum. */
  readonly over: string;
  /** Absent: the latest value. */
  readonly names?: readonly string[];
}

export interface PointwiseStep {
  readonly kind: 'pointwise';
  readonly text: string;
  readonly fn: string;
  /** Absent: the value keeps its name. */
  readonly result?: string;
  readonly name?: string;
}

type ProgramStep = EinsumStep | PointwiseStep | WholeStep;

export interface EinshardProgram {
  readonly devices: number;
  readonly tensors: readonly ProgramTensor[];
  readonly steps: readonly ProgramStep[];
}

/** Functions of one tensor, element by element, none of them linear. */
const NONLINEAR = ['abs', 'exp', 'gelu', 'relu', 'sigmoid', 'silu', 'square', 'tanh'] as const;

/** Functions of whole rows. */
const OF_ROWS = ['layer_norm', 'log_softmax', 'rms_norm', 'softmax'] as const;

const FUNCTIONS: readonly string[] = [...NONLINEAR, ...OF_ROWS, 'add', 'gather'];

const MAX_TENSORS = 1000;
const MAX_STEPS = 10_000;
const MAX_STEP_LENGTH = 1000;
const NAME = /[\p{L}_][\p{L}\p{N}_.]*/uy;

const tensorFields = {
  shape: z.array(z.int().min(1)).max(26),
  expression: z.string().default('... -> * ...'),
  dtype: z.enum(DTYPES).default('f32'),
};
const programSchema = z.strictObject({
  devices: z.int().min(1),
  tensors: z.union([
    z.array(z.strictObject({ name: z.string(), ...tensorFields })).max(MAX_TENSORS),
    z.record(z.string(), z.strictObject(tensorFields)),
  ]),
  steps: z.array(z.string().max(MAX_STEP_LENGTH)).max(MAX_STEPS),
});

/**
 * Reads the JSON text of a program. Expressions and the operands of steps are checked when it is
 * evaluated.
 *
 * @throws E_SYNTAX for a text that is no such program, with the step and the 0-based position in it
 */
export function readEinshardProgram(text: string): EinshardProgram {
  const json = parseJson(text, { hint: HINT }, { what: 'the program' });
  const parsed = programSchema.safeParse(json);
  if (!parsed.success)
    throw new ShardwrightError(
      'E_SYNTAX',
      `the program does not fit: ${z.prettifyError(parsed.error)}`,
      {
        hint: HINT,
      },
    );
  const { devices, tensors, steps } = parsed.data;
  const list = Array.isArray(tensors)
    ? tensors
    : Object.entries(tensors).map(([name, t]) => ({ name, ...t }));
  if (list.length > MAX_TENSORS)
    throw new ShardwrightError(
      'E_LIMIT',
      `the program has ${list.length} tensors, more than ${MAX_TENSORS}`,
    );
  const seen = new Set<string>();
  for (const { name } of list) {
    if (!/^[\p{L}_][\p{L}\p{N}_.]*$/u.test(name))
      throw new ShardwrightError('E_SYNTAX', `'${name}' is not the name of a tensor`, {
        hint: 'use letters, digits, _ and dots',
      });
    if (seen.has(name))
      throw new ShardwrightError('E_SYNTAX', `the tensor '${name}' is given twice`);
    seen.add(name);
  }
  return { devices, tensors: list, steps: steps.map((step, i) => new StepScan(step, i).step()) };
}

const HINT =
  'as in {"devices": 8, "tensors": [{"name": "X", "shape": [8, 128], "expression": "b x -> ' +
  'b* x"}], "steps": ["Y = bx->xb", "relu"]}';

/**
 * `NAME = bx,xy->by (X, W)` or `NAME = relu (X)`, where NAME = may be missing before a function.
 */
class StepScan extends NotationScanner {
  constructor(
    text: string,
    private readonly index: number,
  ) {
    super(text, MAX_STEP_LENGTH, `step ${index + 1}`);
  }

  protected override isBlank(char: string): boolean {
    return char === ' ';
  }

  step(): ProgramStep {
    const { text } = this;
    this.blanks();
    let result: string | undefined;
    if (text.includes('=')) {
      result = this.match(NAME) ?? this.fail('a name before the =');
      this.expect('=');
    }
    if (/^\s*(\S+\s*=\s*)?gather\b/.test(text)) {
      this.match(/gather/y);
      return { ...this.einsum(result), fn: 'gather' };
    }
    if (text.includes('->')) return this.einsum(result);
    return this.functionStep(result);
  }

  private functionStep(result: string | undefined): ProgramStep {
    const { text } = this;
    const start = this.start();
    const fn =
      this.match(/[a-z_]+/y) ??
      this.fail('an einsum such as bx,xy->by, or a function such as relu');
    if (!FUNCTIONS.includes(fn)) {
      this.at = start;
      this.fail('a function of one tensor', suggestion(fn, FUNCTIONS, 'functions'));
    }
    const isOfRows = (OF_ROWS as readonly string[]).includes(fn);
    if (isOfRows || fn === 'add') return this.whole(fn, isOfRows, result);
    const names = this.names();
    if (names !== undefined && names.length !== 1)
      this.fail(`one tensor for ${fn}, not ${names.length}`);
    this.end();
    return {
      kind: 'pointwise',
      text,
      fn,
      ...defined({ result }),
      ...(names === undefined ? {} : { name: names[0] }),
    };
  }

  /** `softmax over k (S)` or `add (X, Z)`. */
  private whole(fn: string, isOfRows: boolean, result: string | undefined): WholeStep {
    const { text } = this;
    if (result === undefined) this.fail('NAME = before it', `write for example Y = ${text.trim()}`);
    this.blanks();
    if (isOfRows && this.match(/over\b/y) === undefined)
      this.fail('over and the letters of the rows', `write ${result} = ${fn} over k`);
    this.blanks();
    const over = isOfRows ? (this.match(/[A-Za-z]+/y) ?? this.fail('the letters of the rows')) : '';
    const names = this.names();
    const count = isOfRows ? 1 : 2;
    if ((names ?? (isOfRows ? [''] : [])).length !== count)
      this.fail(`${count === 1 ? 'one tensor' : 'two tensors, (X, Z),'} for ${fn}`);
    this.end();
    return { kind: 'whole', text, fn, result, over, ...defined({ names }) };
  }

  private einsum(result: string | undefined): EinsumStep {
    const { text } = this;
    if (result === undefined)
      this.fail('NAME = before the einsum', `write for example Y = ${text.trim()}`);
    const operands: string[] = [];
    do operands.push(this.match(/[A-Za-z]*/y) ?? '');
    while (this.take(','));
    this.expect('->');
    const start = this.start();
    const output = this.match(/[A-Za-z]*/y) ?? '';
    const known = new Set(operands.join(''));
    [...output].forEach((letter, i) => {
      if (known.has(letter) && output.indexOf(letter) === i) return;
      this.at = start + i;
      this.fail(known.has(letter) ? `each letter of the output once` : `a letter of the operands`);
    });
    const names = this.names();
    if (names !== undefined && names.length !== operands.length)
      this.fail(`${operands.length} operands, not ${names.length}`);
    this.end();
    return {
      kind: 'einsum',
      text,
      result,
      operands,
      output,
      ...defined({ names }),
    };
  }

  /** `(X, W)`, if it is there. */
  private names(): string[] | undefined {
    if (!this.take('(')) return undefined;
    const out: string[] = [];
    do out.push(this.match(NAME) ?? this.fail('the name of a tensor'));
    while (this.take(','));
    this.expect(')');
    return out;
  }

  /** The place where the next word begins. */
  private start(): number {
    this.blanks();
    return this.at;
  }

  override fail(expected: string, hint?: string): never {
    throw new ShardwrightError(
      'E_SYNTAX',
      `step ${this.index + 1}, '${this.text}': expected ${expected} at position ${this.at}`,
      {
        path: `steps[${this.index}]`,
        hint: hint ?? 'a step is an einsum, as in Y = bx,xy->by, or a function, as in relu',
      },
    );
  }
}
