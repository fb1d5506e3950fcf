/**
 * `RNN`, `GRU` and `LSTM` of ai.onnx, written out step by step: gates are rows of one matrix, in
 * the order of the operator's page (LSTM i, o, f, c; GRU z, r, h).
 */

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
  (x, { h }, { w, r, wb, rb, activations: [f] }) => ({
    h: f(plus(c, linear(c, x, w, wb), linear(c, h, r, rb))),
  });

const gru: Cell['step'] = (c, n) => {
  const isLinearFirst = c.int('linear_before_reset', 0) !== 0;
  return (x, { h }, { w, r, wb, rb, activations: [f, g] }) => {
    const part = (
      value: OnnxOperand,
      matrix: OnnxOperand,
      bias: OnnxOperand | undefined,
      gate: number,
    ): OnnxOperand => linear(c, value, rows(c, matrix, n, gate), bias && rows(c, bias, n, gate));
    const [z, reset] = [0, 1].map((k) => f(plus(c, part(x, w, wb, k), part(h, r, rb, k))));
    const recurrent = isLinearFirst
      ? times(c, reset, part(h, r, rb, 2))
      : part(times(c, reset, h), r, rb, 2);
    const candidate = g(plus(c, part(x, w, wb, 2), recurrent));
    // (1 - z) candidate + z h
    return { h: plus(c, candidate, times(c, z, c.op('sub.Tensor', h, candidate))) };
  };
};

const lstm: Cell['step'] = (c, n) => {
  const isCoupled = c.int('input_forget', 0) !== 0;
  return (x, state, { w, r, wb, rb, peepholes, activations: [f, g, last] }) => {
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

const recurrent =
  ({ gates, activations, step: makeStep }: Cell): Lowering =>
  (c) => {
    const isBatchFirst = c.int('layout', 0) !== 0;
    const flip = (x: OnnxOperand): OnnxOperand =>
      isBatchFirst ? c.op('transpose.int', x, 0, 1) : x;
    const x = flip(c.input(0));
    const [length, batch] = c.sizes(x.type);
    const direction = c.text('direction', 'forward');
    const count = direction === 'bidirectional' ? 2 : 1;
    const hidden = c.int('hidden_size') ?? c.sizes(c.type(2))[2];
    if (length > MAX_STEPS)
      return c.fail('E_LIMIT', `${length} steps; ${MAX_STEPS} are written out`, 'cut the sequence');
    const lengths = c.optional(4)?.constant?.values;
    if (c.optional(4) !== undefined && lengths?.every((n) => n === length) !== true)
      return c.fail('E_UNSUPPORTED', 'sequences of several lengths', 'give all the same length');
    const clip = c.attribute('clip')?.float;
    const named = c.texts('activations') ?? Array.from({ length: count }, () => activations).flat();
    const step = makeStep(c, hidden);
    const of = (i: number, d: number): OnnxOperand | undefined => {
      const value = c.optional(i);
      return value && c.op('select.int', value, 0, d);
    };
    const runs = Array.from({ length: count }, (_, d) => {
      const bias = of(3, d);
      const start = (i: number): OnnxOperand => {
        const given = c.optional(i);
        return given === undefined
          ? c.filled(0, x.type.dtype, [batch, hidden])
          : c.op('select.int', flip(given), 0, d);
      };
      const own: Direction = {
        w: of(1, d)!,
        r: of(2, d)!,
        wb: bias && rows(c, bias, hidden, 0, gates),
        rb: bias && rows(c, bias, hidden, gates, 2 * gates),
        peepholes: c.node.op === 'LSTM' ? of(7, d) : undefined,
        activations: activations.map((_n, k) =>
          activation(c, named[d * activations.length + k], clip),
        ),
      };
      const isBackward = direction === 'reverse' || d === 1;
      let state: State = { h: start(5), ...(c.node.op === 'LSTM' ? { c: start(6) } : {}) };
      const states: OnnxOperand[] = [];
      for (let t = 0; t < length; t++) {
        const at = isBackward ? length - 1 - t : t;
        state = step(c.op('select.int', x, 0, at), state, own);
        states[at] = state.h;
      }
      return { states, state };
    });
    const stepped = Array.from({ length }, (_, t) =>
      c.op(
        'stack',
        runs.map((run) => run.states[t]),
        0,
      ),
    );
    const y = c.op('stack', stepped, 0);
    const last = (pick: (state: State) => OnnxOperand | undefined): OnnxOperand | undefined => {
      const parts = runs.flatMap((run) => pick(run.state) ?? []);
      return parts.length === 0 ? undefined : flip(c.op('stack', parts, 0));
    };
    return [
      isBatchFirst ? c.op('permute', y, [2, 0, 1, 3]) : y,
      last((state) => state.h),
      last((state) => state.c),
    ];
  };

export const RECURRENT: readonly (readonly [string, Lowering])[] = [
  ['RNN', recurrent({ gates: 1, activations: ['Tanh'], step: rnn })],
  ['GRU', recurrent({ gates: 3, activations: ['Sigmoid', 'Tanh'], step: gru })],
  ['LSTM', recurrent({ gates: 4, activations: ['Sigmoid', 'Tanh', 'Tanh'], step: lstm })],
];
