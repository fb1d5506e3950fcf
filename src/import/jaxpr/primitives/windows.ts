/**
 * Writes JAX's reductions over windows and reductions by a body as `reduce`, `reduce_window` and
 * `select_and_scatter` of StableHLO.
 */

import type { Arg } from '../../../graph/types.ts';
import { tensorType } from '../../../graph/value.ts';
import { itemAt } from '../../../item-at.ts';
import type { GraphOfJaxpr } from '../builder.ts';
import { dtypeOf, type Lower, operand } from '../equation.ts';
import type { Atom, Equation, Jaxpr, Variable } from '../text/syntax.ts';
import { neutral } from './reductions.ts';

const WINDOW: readonly (readonly [jax: string, hlo: string])[] = [
  ['window_dimensions', 'window_dimensions'],
  ['window_strides', 'window_strides'],
  ['base_dilation', 'base_dilations'],
  ['window_dilation', 'window_dilations'],
  ['padding', 'padding'],
];

/** Sizes, steps and padding of the windows; what the equation does not say is 1, or no padding. */
function windowOf(b: GraphOfJaxpr, e: Equation): Record<string, Arg> {
  return Object.fromEntries(WINDOW.map(([jax, hlo]) => [hlo, [...b.ints(e, jax, [])]]));
}

/** By a reducer of a known name, from the value that leaves every other as it is. */
const windowReduction =
  (reducer: string): Lower =>
  (b, e) => {
    const { dtype } = b.tensor(operand(b, e));
    const start = b.constant(neutral(reducer, dtype), dtype, []);
    b.emit(e, 'stablehlo.reduce_window', [[b.value(operand(b, e))], [start]], {
      ...windowOf(b, e),
      reducer,
    });
  };

const NAMED: Readonly<Record<string, string>> = {
  add: 'add',
  add_any: 'add',
  mul: 'multiply',
  max: 'maximum',
  min: 'minimum',
  and: 'and',
  or: 'or',
  xor: 'xor',
};

/** The name of a body that is one operation on its two inputs; undefined for any other. */
function nameOf({ inputs, equations, outputs }: Jaxpr): string | undefined {
  const [only, ...others] = equations;
  if (
    only === undefined ||
    others.length > 0 ||
    inputs.length !== 2 ||
    only.results.length !== 1 ||
    outputs.length !== 1
  )
    return undefined;
  const read = only.operands.map((atom) => (atom.kind === 'variable' ? atom.name : ''));
  const [result] = outputs;
  const whole = result?.kind === 'variable' && result.name === itemAt(only.results, 0).name;
  const both = read.length === 2 && inputs.every(({ name }) => read.includes(name));
  return whole && both && Object.hasOwn(NAMED, only.primitive) ? NAMED[only.primitive] : undefined;
}

/** A reduction whose body the equation holds: operands, then as many values to start from. */
const bodyReduction =
  (target: string, own: (b: GraphOfJaxpr, e: Equation) => Record<string, Arg>): Lower =>
  (b, e) => {
    const body = b.jaxprOf(e, 'jaxpr');
    const half = e.operands.length / 2;
    const values = (atoms: readonly Atom[]): Arg[] => atoms.map((atom) => b.value(atom));
    const reducer = nameOf(body);
    b.emit(e, target, [values(e.operands.slice(0, half)), values(e.operands.slice(half))], {
      ...own(b, e),
      ...(reducer === undefined
        ? { body: b.keep('reducer', b.context.body(body), e.at) }
        : { reducer }),
    });
  };

/** A body of one primitive on two numbers. */
function twoNumbers(e: Equation, primitive: string, result: Variable['type']): Jaxpr {
  const { at } = e;
  const type = tensorType(dtypeOf(e), []);
  const a = { name: 'a', at, type };
  const b = { name: 'b', at, type };
  const c = { name: 'c', at, type: result };
  const read = (v: Variable): Atom => ({ kind: 'variable', name: v.name, at });
  const equation = {
    primitive,
    at,
    results: [c],
    parameters: new Map(),
    operands: [read(a), read(b)],
  };
  return { at, constants: [], inputs: [a, b], equations: [equation], outputs: [read(c)] };
}

/**
 * The gradient of a window's largest or smallest: the source goes to the place that `select_prim`
 * picks.
 */
const selectAndScatterAdd: Lower = (b, e) => {
  const select = e.parameters.get('select_prim')?.text ?? '';
  if (select !== 'ge' && select !== 'le')
    throw b.error(
      'E_TYPE',
      `select_prim of ${e.primitive} is '${select}', expected ge or le`,
      b.at(e, 'select_prim'),
    );
  const [source, x] = [operand(b, e, 0), operand(b, e, 1)];
  const body = (name: string, primitive: string, result: Variable['type']): Arg =>
    b.keep(name, b.context.body(twoNumbers(e, primitive, result)), e.at);
  b.emit(
    e,
    'stablehlo.select_and_scatter',
    [b.value(x), b.value(source), b.constant(0, dtypeOf(e), [])],
    {
      ...windowOf(b, e),
      select: body(select, select, tensorType('b8', [])),
      scatter: body('add', 'add', tensorType(dtypeOf(e), [])),
    },
  );
};

/** The primitives by name. */
export const WINDOWS: readonly (readonly [string, Lower])[] = [
  ['reduce_window_sum', windowReduction('add')],
  ['reduce_window_max', windowReduction('maximum')],
  ['reduce_window_min', windowReduction('minimum')],
  ['reduce_window', bodyReduction('stablehlo.reduce_window', windowOf)],
  [
    'reduce',
    bodyReduction('stablehlo.reduce', (b, e) => ({ dimensions: [...b.ints(e, 'dimensions')] })),
  ],
  ['select_and_scatter_add', selectAndScatterAdd],
];
