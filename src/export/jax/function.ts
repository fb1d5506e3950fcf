/**
 * Writes HLO instructions as a Python function of JAX. Every value has the name of its node where
 * it has one; constants are written where they are read.
 */
import { PyNames, pyTuple } from '../../backend/python-text.ts';
import type { HloBody, Instruction, Val } from '../hlo/code.ts';
import type { HloProgram } from '../hlo/program.ts';
import { expression, JAX_TYPES, pyNumber, type Texts, tuple } from './expressions.ts';

interface FunctionText {
  readonly lines: readonly string[];
  /** True if some line asks which device runs it. */
  readonly readsRank: boolean;
}

/** @throws E_UNSUPPORTED, with the node, for what JAX has no text for */
export function jaxFunction(
  name: string,
  doc: string,
  program: HloProgram,
  rankAxes: string,
): FunctionText {
  const text = new FunctionWriter(program);
  const params = program.inputs.map(({ value, node }) => text.define(value, node.name));
  text.block(program.code, 1);
  const outputs = program.outputs.map((value) => (value === null ? 'None' : text.of(value)));
  const rank = text.readsRank ? [`    rank = lax.axis_index(${rankAxes})`] : [];
  return {
    lines: [
      'def ' +
        `${name}(${params.length > 4 ? `\n    ${params.join(',\n    ')},\n` : params.join(', ')}):`,
      `    """${doc}"""`,
      ...rank,
      ...text.lines,
      `    return ${pyTuple(outputs)}`,
    ],
    readsRank: text.readsRank,
  };
}

class FunctionWriter {
  readonly lines: string[] = [];
  readsRank = false;
  private readonly names: PyNames;
  private readonly own = new Map<number, string>();
  private readonly constants = new Map<number, Instruction>();
  private readonly used = new Set<string>();
  private temporaries = 0;
  private bodies = 0;

  constructor(private readonly program: HloProgram) {
    this.names = new PyNames(['jax', 'jnp', 'lax', 'np', 'rank', 'P', 'a', 'b']);
  }

  /** A name for a value, near to what its node is called. */
  define(value: Val, wanted: string | undefined): string {
    let key = wanted ?? `t ${this.temporaries++}`;
    // A function that is called twice brings its names twice.
    for (let i = 1; this.used.has(key); i++) key = `${wanted ?? 't'} ${i}`;
    this.used.add(key);
    const name = this.names.of(key);
    this.own.set(value.id, name);
    return name;
  }

  /** Text of a value: its name, or the constant that it is. */
  of(value: Val): string {
    const name = this.own.get(value.id);
    if (name !== undefined) return name;
    const constant = this.constants.get(value.id);
    if (constant === undefined) throw new Error(`value ${value.id} is read before it is made`);
    const number = this.number(constant);
    const type = JAX_TYPES[value.dtype];
    return value.shape.length === 0
      ? `${type}(${number})`
      : `jnp.full(${tuple(value.shape)}, ${number}, ${type})`;
  }

  private number({ attributes, outputs }: Instruction): string {
    const { value } = attributes;
    if (typeof value !== 'number' && typeof value !== 'bigint' && typeof value !== 'boolean')
      throw new Error('a constant without a number');
    return pyNumber(value, outputs[0].dtype);
  }

  block(code: readonly Instruction[], depth: number): void {
    for (const instruction of code) this.statement(instruction, depth);
  }

  private statement(instruction: Instruction, depth: number): void {
    const { op, outputs, bodies } = instruction;
    if (op === 'constant') {
      this.constants.set(outputs[0].id, instruction);
      return;
    }
    if (op === 'rank_value') this.readsRank = true;
    const functions: string[] = [];
    const texts: Texts = {
      of: (value) => this.of(value),
      orNumber: (value) => {
        const constant = this.constants.get(value.id);
        return constant === undefined ? this.of(value) : this.number(constant);
      },
      isConstant: (value) => this.constants.has(value.id),
      // A region that has a name in JAX is not written.
      body: (k) => (functions[k] ??= this.body(instruction, bodies[k], k, depth)),
    };
    const text = expression(instruction, texts);
    const targets = outputs.map((value) => this.define(value, this.program.names.get(value.id)));
    this.line(depth, `${this.targets(instruction, targets)} = ${text}`);
  }

  /** The targets of an assignment: a scan gives the carries and the stacked rows separately. */
  private targets({ op, attributes, outputs }: Instruction, names: readonly string[]): string {
    if (op === 'scan') {
      const carries = Number(attributes['carries']);
      return `${pyTuple(names.slice(0, carries))}, ${pyTuple(names.slice(carries))}`;
    }
    const isTuple =
      outputs.length > 1 ||
      ['if', 'case', 'while', 'chlo.top_k', 'sort', 'optimization_barrier'].includes(op);
    if (!isTuple) return names[0];
    return `${names.join(', ')}${names.length === 1 ? ',' : ''}`;
  }

  /** A region as a function in the function. */
  private body({ op, attributes }: Instruction, body: HloBody, k: number, depth: number): string {
    const name = this.names.of(
      `${op === 'while' && k === 0 ? 'goes_on' : 'body'} ${this.bodies++}`,
    );
    const params = body.inputs.map((value) => this.define(value, undefined));
    const carries = Number(attributes['carries'] ?? 0);
    if (op === 'scan') {
      this.line(depth, `def ${name}(carry, row):`);
      if (carries > 0) this.line(depth + 1, `${pyTuple(params.slice(0, carries))} = carry`);
      if (params.length > carries) this.line(depth + 1, `${pyTuple(params.slice(carries))} = row`);
    } else if (op === 'while') {
      this.line(depth, `def ${name}(carry):`);
      this.line(depth + 1, `${pyTuple(params)} = carry`);
    } else this.line(depth, `def ${name}(${params.join(', ')}):`);
    this.block(body.code, depth + 1);
    const returns = body.returns.map((value) => this.of(value));
    if (op === 'scan')
      this.line(
        depth + 1,
        `return ${pyTuple(returns.slice(0, carries))}, ${pyTuple(returns.slice(carries))}`,
      );
    else if (op === 'while' && k === 0) this.line(depth + 1, `return ${returns[0]}`);
    else this.line(depth + 1, `return ${pyTuple(returns)}`);
    return name;
  }

  private line(depth: number, text: string): void {
    this.lines.push(`${'    '.repeat(depth)}${text}`);
  }
}
