/**
 * `RNN`, `GRU` and `LSTM` of ai.onnx, written out step by step: gates are rows of one matrix, in
 * the order of the operator's page (LSTM i, o, f, c; GRU z, r, h).
 */

import { firstItems, itemAt } from '../../../item-at.ts';
import { floatArg, type Lowering, type OnnxCall, type OnnxOperand } from '../call.ts';

/** Steps that are written out, at most. */
const MAX_STEPS = 1024;

type Activation = (x: OnnxOperand) => OnnxOperand;

interface Direction {
  readonly w: OnnxOperand;
  readonly r: OnnxOperand;
  readonly wb: OnnxOperand | undefined;
  readonly rb: OnnxOperand | undefined;
  readonly peepholes: OnnxOperand | undefined;
  readonly activations: readonly Activation[];
}

interface State {
  readonly h: OnnxOperand;
  readonly c?: OnnxOperand;
}

type Step = (x: OnnxOperand, state: State, direction: Direction) => State;

interface Cell {
  readonly gates: number;
  readonly activations: readonly string[];
  readonly step: (call: OnnxCall, hidden: number) => Step;
}

const times = (c: OnnxCall, a: OnnxOperand, b: OnnxOperand): OnnxOperand =>
  c.op('mul.Tensor', a, b);
const plus = (c: OnnxCall, a: OnnxOperand, b: OnnxOperand): OnnxOperand => c.op('add.Tensor', a, b);

/** Rows of a matrix or vector of gates, from gate `from` up to `to`. */
const rows = (
  c: OnnxCall,
  x: OnnxOperand,
  hidden: number,
  from: number,
  to = from + 1,
): OnnxOperand => c.op('slice.Tensor', x, 0, from * hidden, to * hidden);

function linear(
  c: OnnxCall,
  x: OnnxOperand,
  w: OnnxOperand,
  b: OnnxOperand | undefined,
): OnnxOperand {
  return b === undefined ? c.op('linear', x, w) : c.op('linear', x, w, b);
}

const rnn: Cell['step'] =
  (c) =>
  (x, { h }, { w, r, wb, rb, activations }) => {
    const [f] = firstItems(activations, 1);
    return { h: f(plus(c, linear(c, x, w, wb), linear(c, h, r, rb))) };
  };

const gru: Cell['step'] = (c, n) => {
  const isLinearFirst = c.flag('linear_before_reset', false);
  return (x, { h }, { w, r, wb, rb, activations }) => {
    const [f, g] = firstItems(activations, 2);
    const part = (
      value: OnnxOperand,
      matrix: OnnxOperand,
      bias: OnnxOperand | undefined,
      gate: number,
    ): OnnxOperand => linear(c, value, rows(c, matrix, n, gate), bias && rows(c, bias, n, gate));
    const gate = (k: number): OnnxOperand => f(plus(c, part(x, w, wb, k), part(h, r, rb, k)));
    const [z, reset] = [gate(0), gate(1)];
    const recurrent = isLinearFirst
      ? times(c, reset, part(h, r, rb, 2))
      : part(times(c, reset, h), r, rb, 2);
    const candidate = g(plus(c, part(x, w, wb, 2), recurrent));
    // (1 - z) candidate + z h
    return { h: plus(c, candidate, times(c, z, c.op('sub.Tensor', h, candidate))) };
  };
};

const lstm: Cell['step'] = (c, n) => {
  const isCoupled = c.flag('input_forget', false);
  return (x, state, { w, r, wb, rb, peepholes, activations }) => {
    const [f, g, last] = firstItems(activations, 3);
    const cell = state.c ?? c.fail('E_TYPE', 'a cell state is missing');
    const all = plus(c, linear(c, x, w, wb), linear(c, state.h, r, rb));
    const gate = (k: number, peep?: readonly [number, OnnxOperand]): OnnxOperand => {
      const own = c.op('slice.Tensor', all, 1, k * n, (k + 1) * n);
      if (peep === undefined || peepholes === undefined) return own;
      return plus(c, own, times(c, rows(c, peepholes, n, peep[0]), peep[1]));
    };
    const input = f(gate(0, [0, cell]));
    const forget = isCoupled ? c.op('rsub.Scalar', input, 1) : f(gate(2, [2, cell]));
    const next = plus(c, times(c, forget, cell), times(c, input, g(gate(3))));
    const output = f(gate(1, [1, next]));
    return { h: times(c, output, last(next)), c: next };
  };
};

/** Activations by name; those with parameters of their own are refused. */
function activation(c: OnnxCall, name: string, clip: number | undefined): Activation {
  const target = { sigmoid: 'sigmoid', tanh: 'tanh', relu: 'relu', softsign: '' }[
    name.toLowerCase()
  ];
  if (target === undefined || target === '')
    return c.fail('E_UNSUPPORTED', `activation '${name}'`, 'Sigmoid, Tanh and Relu are read');
  return (x) =>
    c.op(target, clip === undefined ? x : c.op('clamp', x, floatArg(-clip), floatArg(clip)));
}

/** The states of one direction: after each step in the order of time, and after the last. */
interface Run {
  readonly states: readonly OnnxOperand[];
  readonly state: State;
}

/** A recurrent call with the sizes and settings that all its directions share. */
class Unrolled {
  private readonly isBatchFirst: boolean;
  private readonly x: OnnxOperand;
  private readonly length: number;
  private readonly batch: number;
  private readonly hidden: number;
  private readonly direction: string;
  private readonly count: number;
  private readonly named: readonly string[];
  private readonly step: Step;

  constructor(
    private readonly c: OnnxCall,
    private readonly cell: Cell,
  ) {
    this.isBatchFirst = c.flag('layout', false);
    this.x = this.flip(c.input(0));
    [this.length, this.batch] = c.sizesOfRank(this.x.type, 3);
    this.direction = c.text('direction', 'forward');
    this.count = this.direction === 'bidirectional' ? 2 : 1;
    this.hidden = c.int('hidden_size') ?? c.sizeAt(c.type(2), 2);
    this.checkLengths();
    this.named =
      c.texts('activations') ?? Array.from({ length: this.count }, () => cell.activations).flat();
    const wanted = this.count * cell.activations.length;
    if (this.named.length !== wanted)
      c.fail(
        'E_TYPE',
        `attribute 'activations' has ${this.named.length} names where ${wanted} fit`,
      );
    this.step = cell.step(c, this.hidden);
  }

  /** All states, and the last ones: of each direction `h`, and `c` where the cell has it. */
  results(): readonly (OnnxOperand | undefined)[] {
    const { c, length } = this;
    const runs = Array.from({ length: this.count }, (_, d) => this.run(d));
    const stack = (parts: readonly OnnxOperand[]): OnnxOperand => c.op('stack', [...parts], 0);
    const y = stack(
      Array.from({ length }, (_, t) => stack(runs.map(({ states }) => itemAt(states, t)))),
    );
    const last = (pick: (state: State) => OnnxOperand | undefined): OnnxOperand | undefined => {
      const parts = runs.flatMap(({ state }) => pick(state) ?? []);
      return parts.length === 0 ? undefined : this.flip(stack(parts));
    };
    return [
      this.isBatchFirst ? c.op('permute', y, [2, 0, 1, 3]) : y,
      last((state) => state.h),
      last((state) => state.c),
    ];
  }

  private checkLengths(): void {
    const { c, length } = this;
    if (length > MAX_STEPS)
      c.fail('E_LIMIT', `${length} steps; ${MAX_STEPS} are written out`, 'cut the sequence');
    const lengths = c.optional(4)?.constant?.values;
    if (c.optional(4) !== undefined && lengths?.every((n) => n === length) !== true)
      c.fail('E_UNSUPPORTED', 'sequences of several lengths', 'give all the same length');
  }

  private run(d: number): Run {
    const { c, length } = this;
    const own = this.weights(d);
    const isBackward = this.direction === 'reverse' || d === 1;
    let state: State = {
      h: this.start(5, d),
      ...(c.node.op === 'LSTM' ? { c: this.start(6, d) } : {}),
    };
    const states: OnnxOperand[] = [];
    for (let t = 0; t < length; t++) {
      const at = isBackward ? length - 1 - t : t;
      state = this.step(c.op('select.int', this.x, 0, at), state, own);
      states[at] = state.h;
    }
    return { states, state };
  }

  private weights(d: number): Direction {
    const { c, cell, hidden } = this;
    const { gates, activations } = cell;
    const clip = c.attribute('clip')?.float;
    const bias = this.of(3, d);
    return {
      w: this.of(1, d)!,
      r: this.of(2, d)!,
      wb: bias && rows(c, bias, hidden, 0, gates),
      rb: bias && rows(c, bias, hidden, gates, 2 * gates),
      peepholes: c.node.op === 'LSTM' ? this.of(7, d) : undefined,
      activations: activations.map((_, k) =>
        activation(c, itemAt(this.named, d * activations.length + k), clip),
      ),
    };
  }

  private of(input: number, d: number): OnnxOperand | undefined {
    const value = this.c.optional(input);
    return value && this.c.op('select.int', value, 0, d);
  }

  /** The state before the first step; zeros where none is given. */
  private start(input: number, d: number): OnnxOperand {
    const { c, x, batch, hidden } = this;
    const given = c.optional(input);
    return given === undefined
      ? c.filled(0, x.type.dtype, [batch, hidden])
      : c.op('select.int', this.flip(given), 0, d);
  }

  private flip(x: OnnxOperand): OnnxOperand {
    return this.isBatchFirst ? this.c.op('transpose.int', x, 0, 1) : x;
  }
}

const recurrent =
  (cell: Cell): Lowering =>
  (c) =>
    new Unrolled(c, cell).results();

export const RECURRENT: readonly (readonly [string, Lowering])[] = [
  ['RNN', recurrent({ gates: 1, activations: ['Tanh'], step: rnn })],
  ['GRU', recurrent({ gates: 3, activations: ['Sigmoid', 'Tanh'], step: gru })],
  ['LSTM', recurrent({ gates: 4, activations: ['Sigmoid', 'Tanh', 'Tanh'], step: lstm })],
];
