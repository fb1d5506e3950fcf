/**
 * Compares the derivative that an operator states with differences of its values, in float64: the
 * gradient of its results, weighted with drawn numbers, at a sample call. The joint graph of the
 * call gives one side, central differences the other. At a kink any slope between those of the two
 * sides is right. Each call is tried with numbers between -2 and 2, with numbers between -8 and 8,
 * beyond what most functions clip, and with one element at a time at 0, 1 and -1, where kinks lie.
 * Equal elements are not drawn: which of them a derivative picks is a convention.
 */

import { messageOf, ShardwrightError } from '../../errors.ts';
import { GraphBuilder } from '../../graph/build.ts';
import type { Arg, Graph, TensorType, ValueType } from '../../graph/types.ts';
import { isList, isRef } from '../../graph/value.ts';
import { flat, fromFlat, kindOf, NDArray } from '../../ndarray/array.ts';
import { streamOf } from '../../ndarray/random.ts';
import { inferCall } from '../../ops/record/infer.ts';
import { typeOf } from '../../ops/samples/call-text.ts';
import { type Draw, drawValues } from '../../ops/samples/values.ts';
import type { Vjp, VjpEntry } from '../../ops/vjp/vjp.ts';
import { jointGraph } from '../../passes/autodiff/joint.ts';
import { evaluateGraph } from '../evaluate.ts';
import type { SampleCall } from './sample-call.ts';

/** A gradient that is not the derivative of the values. */
export interface DerivativeFinding {
  readonly operator: string;
  /** The sample call. */
  readonly call: string;
  /** The argument by its name in the schema; a member of a list by its place too, `xs[1]`. */
  readonly input: string;
  /** The first wrong element; absent where there is no gradient to compare. */
  readonly element?: readonly number[];
  /** The central difference of the values. */
  readonly expected?: number;
  /** The element of the gradient. */
  readonly found?: number;
  readonly why: string;
}

/** The comparison of one sample call. */
interface DerivativeCheck {
  /** Elements of gradients that were compared. */
  readonly elements: number;
  readonly wrong: readonly DerivativeFinding[];
  /** One sentence for each input that was not compared, with the reason. */
  readonly uncompared: readonly string[];
}

/** The step of the differences, about the cube root of the unit of rounding. */
const STEP = 2 ** -17;
/** Deviation that the step explains, relative to the slope or to the results (at most to 1). */
const TOLERANCE = 1e-6;
/** The tolerance is relative to results of at least this size. */
const LEAST_SCALE = 2 ** -20;
/** Roundings of a result, in units of its last place. */
const ROUNDINGS = 8;
/** Change of a one-sided slope, relative to it, with twice the step: it goes to infinity. */
const DIVERGENCE = 0.25;
/** The draws, and words for the numbers that each gives. */
const DRAWS: readonly (readonly [Draw, string])[] = [
  ['plain', ''],
  ['wide', ', at numbers up to 8'],
];
/** Numbers at which functions have kinks, and the elements of an input that are put there. */
const KINKS = [0, 1, -1];
const KINK_ELEMENTS = 16;
/** Elements of one input that are compared with a draw. */
const MOST_ELEMENTS = 1024;

/** @param stated the derivative of the operator of the call */
export function checkDerivative(sample: SampleCall, stated: Vjp | VjpEntry): DerivativeCheck {
  const entry: VjpEntry = typeof stated === 'function' ? { vjp: stated } : stated;
  const { name } = sample.record;
  const none = (why: string): DerivativeCheck => ({
    elements: 0,
    wrong: [],
    uncompared: [`${name}: ${why}`],
  });
  if (entry.surrogate === true) return none('its derivative is a surrogate');
  const inputs = realInputs(sample);
  const results = realResults(sample, entry);
  if (inputs.size === 0 || results.length === 0) return none('no input or result is a real number');
  const call = new DerivedCall(sample, entry, results);
  const parts = [...inputs].map(([tensor, input]) => compared(call, tensor, input));
  const constants = entry.constant ?? [];
  return {
    elements: parts.reduce((sum, part) => sum + part.elements, 0),
    wrong: parts.flatMap(({ wrong }) => wrong),
    uncompared: [
      ...new Set([
        ...parts.flatMap(({ uncompared }) => uncompared),
        ...constants
          .filter((k) => isMoved(sample, entry, k, [...inputs.keys()]))
          .map((k) => `${name}: result ${k} counts as constant, and changes with its inputs`),
      ]),
    ],
  };
}

/** An input compared with each draw, then at kinks, until its gradient is refuted. */
function compared(call: DerivedCall, tensor: string, input: string): DerivativeCheck {
  const checks: DerivativeCheck[] = [];
  const isDone = (): boolean =>
    checks.some(({ wrong, uncompared }) => wrong.length > 0 || uncompared.length > 0);
  for (const [draw, words] of DRAWS) {
    const values = call.drawn(draw);
    if (!isDone() && !(draw !== 'plain' && sameValues(values, call.drawn('plain'))))
      checks.push(new WeightedCall(call, values).compare(tensor, input, words));
  }
  if (!isDone() && call.isFree(tensor)) checks.push(atKinks(call, tensor, input));
  return {
    elements: checks.reduce((sum, { elements }) => sum + elements, 0),
    wrong: checks.flatMap(({ wrong }) => wrong),
    uncompared: checks.flatMap(({ uncompared }) => uncompared),
  };
}

/** Some elements of an input compared, each where it is a number at which kinks lie. */
function atKinks(call: DerivedCall, tensor: string, input: string): DerivativeCheck {
  const values = call.drawn('plain');
  const place = call.names.indexOf(tensor);
  let elements = 0;
  for (const element of spread(values[place].size, KINK_ELEMENTS))
    for (const kink of KINKS) {
      const at = values.with(place, put(values[place], element, kink));
      const check = new WeightedCall(call, at).compare(tensor, input, `, at ${kink}`, [element]);
      elements += check.elements;
      if (check.wrong.length > 0) return { ...check, elements };
    }
  return { elements, wrong: [], uncompared: [] };
}

function sameValues(own: readonly NDArray[], others: readonly NDArray[]): boolean {
  return own.every((x, i) => {
    const other = flat(others[i]);
    return flat(x).every((value, e) => Object.is(value, other[e]));
  });
}

/** Tells whether a result that a derivative leaves out changes with a real input. */
function isMoved(
  sample: SampleCall,
  entry: VjpEntry,
  result: number,
  tensors: readonly string[],
): boolean {
  const type = sample.ctx.outputs[result];
  if (type === null || type === undefined || kindOf(type.dtype) !== 'float') return false;
  const call = new DerivedCall(sample, entry, [result]);
  const weighted = new WeightedCall(call, call.drawn('plain'));
  return tensors.some((tensor) => weighted.isMovedBy(tensor));
}

/** Tensors of real numbers by their names in the call, with the names of their arguments. */
function realInputs({ record, call }: SampleCall): Map<string, string> {
  const inputs = new Map<string, string>();
  const take = (arg: Arg | undefined, label: string): void => {
    if (arg === undefined) return;
    if (isList(arg)) arg.forEach((member, i) => take(member, `${label}[${i}]`));
    else if (isRef(arg) && kindOf(call.tensors.get(arg.name)?.dtype ?? 'i64') === 'float')
      inputs.set(arg.name, label);
  };
  let position = 0;
  for (const { name, kwargOnly } of record.schema)
    take((kwargOnly ? undefined : call.args[position++]) ?? call.kwargs[name], name);
  return inputs;
}

/** Places of the real results that a gradient may arrive at. */
function realResults({ ctx }: SampleCall, { results = [0], constant = [] }: VjpEntry): number[] {
  return ctx.outputs.flatMap((output, k) =>
    output !== null &&
    kindOf(output.dtype) === 'float' &&
    (results === 'all' || results.includes(k)) &&
    !constant.includes(k)
      ? [k]
      : [],
  );
}

/** The slope along an element by differences, and what a gradient there may be. */
interface Slope {
  readonly central: number;
  readonly least: number;
  readonly most: number;
  /** True where the slope of a side grows without end as the step shrinks. */
  readonly isSteep: boolean;
}

/** A sample call with its derivative, as programs for the values and for the gradients. */
class DerivedCall {
  readonly graph: Graph;
  /** Names of the tensors of the call. */
  readonly names: readonly string[];
  private readonly joints = new Map<string, Graph>();

  constructor(
    readonly sample: SampleCall,
    private readonly entry: VjpEntry,
    results: readonly number[],
  ) {
    this.graph = graphOf(sample, results);
    this.names = [...sample.call.tensors.keys()];
  }

  /** Values of all tensors, in the order of their names. */
  drawn(draw: Draw): readonly NDArray[] {
    const { call } = this.sample;
    return [...call.tensors.values()].map((spec, i) =>
      drawValues(spec, streamOf(`${call.text} ${i}`), draw),
    );
  }

  /** Tells whether a tensor may have any numbers. */
  isFree(tensor: string): boolean {
    return this.sample.call.tensors.get(tensor)?.init === 'any';
  }

  /** The program of the gradient by the stated derivative. */
  joint(tensor: string): Graph {
    const { table, record } = this.sample;
    const known = this.joints.get(tensor);
    const vjps = { [record.name]: this.entry };
    const joint = known ?? jointGraph(this.graph, { table, vjps, wrt: [tensor] });
    this.joints.set(tensor, joint);
    return joint;
  }
}

/** One call whose results are weighted and added up: what gradients are the derivative of. */
class WeightedCall {
  /** 0 for results that are not finite: no gradient arrives there. */
  private readonly weights: readonly NDArray[];
  private readonly here: readonly NDArray[];
  private readonly isFinite: boolean;
  /** Size of the results, at most 1, that the tolerance is relative to. */
  private readonly scale: number;

  constructor(
    private readonly of: DerivedCall,
    private readonly values: readonly NDArray[],
  ) {
    const { call } = of.sample;
    this.here = this.results(this.values);
    this.isFinite = this.here.every((y) => flat(y).every(Number.isFinite));
    this.scale = Math.min(1, Math.max(LEAST_SCALE, ...this.here.map(largest)));
    this.weights = this.here.map((y, k) => {
      const spec = { dtype: y.dtype, shape: y.shape, init: 'any', free: true } as const;
      const drawn = flat(drawValues(spec, streamOf(`${call.text} weight ${k}`)));
      const kept = flat(y).map((value, i) => (Number.isFinite(value) ? drawn[i] : 0));
      return fromFlat(y.shape, kept, y.dtype);
    });
  }

  /** Tells whether the results change with an element of a tensor. */
  isMovedBy(tensor: string): boolean {
    const place = this.of.names.indexOf(tensor);
    return spread(this.values[place].size, MOST_ELEMENTS).some((element) => {
      const slope = this.slope(place, element);
      return slope !== undefined && (slope.least > 0 || slope.most < 0);
    });
  }

  /**
   * @param tensor its name in the call
   * @param input the name of its argument
   * @param words that say which numbers these are
   * @param places elements to compare; default all, or as many that are spread evenly
   */
  compare(
    tensor: string,
    input: string,
    words: string,
    places?: readonly number[],
  ): DerivativeCheck {
    const { record, call } = this.of.sample;
    const at = { operator: record.name, call: call.text, input };
    let gradient: NDArray | null;
    try {
      gradient = this.gradient(tensor);
    } catch (error) {
      const why = messageOf(error);
      // An argument that the derivative leaves out is refused where a gradient is to pass it.
      return error instanceof ShardwrightError && error.code === 'E_NO_VJP'
        ? { elements: 0, wrong: [], uncompared: [`${record.name}: ${input} has no derivative`] }
        : { elements: 0, wrong: [{ ...at, why }], uncompared: [] };
    }
    const place = this.of.names.indexOf(tensor);
    const x = this.values[place];
    const found = gradient === null ? new Float64Array(x.size) : flat(gradient);
    const compared = (places ?? spread(x.size, MOST_ELEMENTS)).flatMap((element) => {
      // Formulas may make NaN of a gradient of 0 where values are not finite.
      if (!this.isFinite && Number.isNaN(found[element])) return [];
      const slope = this.slope(place, element);
      // No number is the slope where it goes to infinity.
      if (slope === undefined || (slope.isSteep && !Number.isFinite(found[element]))) return [];
      return [{ element, ...slope }];
    });
    const elements = compared.length;
    const wrong = compared.filter(
      ({ element, least, most }) => !(found[element] >= least && found[element] <= most),
    );
    if (wrong.length === 0) return { elements, wrong: [], uncompared: [] };
    const [{ element, central }] = wrong;
    const first: DerivativeFinding = {
      ...at,
      element: indexOf(element, x.shape),
      expected: central,
      found: found[element],
      why: `${wrong.length} of ${elements} elements differ from central differences${words}`,
    };
    return { elements, wrong: [first], uncompared: [] };
  }

  /** The gradient by the stated derivative; null for none. */
  private gradient(tensor: string): NDArray | null {
    const { table } = this.of.sample;
    const joint = this.of.joint(tensor);
    const tangents = joint.nodes.flatMap(({ meta: { role, roleIndex = 0 } }) =>
      role === 'tangent' ? [this.weights[roleIndex]] : [],
    );
    const { outputs } = evaluateGraph(table, joint, [...this.values, ...tangents]);
    const slot = joint.outputs.findIndex(({ role, of }) => role === 'grad' && of === tensor);
    const gradient = outputs[slot];
    return gradient instanceof NDArray ? gradient : null;
  }

  /**
   * The slope along one element, between that of both sides; undefined where the values are not
   * finite.
   */
  private slope(place: number, element: number): Slope | undefined {
    const { here } = this;
    const [far, low, high, top] = [-2, -1, 1, 2].map((k) =>
      this.results(this.values.with(place, moved(this.values[place], element, k * STEP))),
    );
    let rounding = 0;
    const rise = (from: readonly NDArray[], to: readonly NDArray[]): number =>
      this.weights.reduce((sum, weight, k) => {
        const part = weightedRise(weight, from[k], to[k]);
        rounding = Math.max(rounding, (ROUNDINGS * Number.EPSILON * part.size) / STEP);
        return sum + part.rise;
      }, 0);
    const central = rise(low, high) / (2 * STEP);
    const wide = rise(far, top) / (4 * STEP);
    const sides = [rise(low, here) / STEP, rise(here, high) / STEP];
    const twice = [rise(far, here) / (2 * STEP), rise(here, top) / (2 * STEP)];
    const slack =
      TOLERANCE * Math.max(this.scale, Math.abs(central)) + Math.abs(wide - central) + rounding;
    if (!Number.isFinite(slack + sides[0] + sides[1])) return undefined;
    return {
      central,
      least: Math.min(...sides) - slack,
      most: Math.max(...sides) + slack,
      isSteep: sides.some((side, k) => Math.abs(side - twice[k]) > DIVERGENCE * Math.abs(side)),
    };
  }

  private results(inputs: readonly NDArray[]): readonly NDArray[] {
    return evaluateGraph(this.of.sample.table, this.of.graph, inputs).outputs as NDArray[];
  }
}

/** The largest size of a finite number of an array; 0 without one. */
function largest(x: NDArray): number {
  return flat(x).reduce((most, v) => (Number.isFinite(v) ? Math.max(most, Math.abs(v)) : most), 0);
}

/** The array with one element moved. */
function moved(x: NDArray, element: number, by: number): NDArray {
  return put(x, element, flat(x)[element] + by);
}

/** The array with another element. */
function put(x: NDArray, element: number, value: number): NDArray {
  const values = Float64Array.from(flat(x));
  values[element] = value;
  return fromFlat(x.shape, values, x.dtype);
}

/**
 * Differences come first: what an element does not change drops out without rounding.
 *
 * @returns the weighted rise, and the weighted size of the numbers that it is a difference of
 */
function weightedRise(
  weight: NDArray,
  from: NDArray,
  to: NDArray,
): { readonly rise: number; readonly size: number } {
  const [w, a, b] = [flat(weight), flat(from), flat(to)];
  let rise = 0;
  let size = 0;
  for (let i = 0; i < w.length; i++) {
    if (w[i] === 0 || a[i] === b[i]) continue;
    rise += w[i] * (b[i] - a[i]);
    size += Math.abs(w[i]) * Math.max(Math.abs(a[i]), Math.abs(b[i]));
  }
  return { rise, size };
}

/** A graph of the one call that returns these results. */
function graphOf({ table, call }: SampleCall, results: readonly number[]): Graph {
  const b = new GraphBuilder('sample');
  const type: (name: string) => TensorType = typeOf(call);
  for (const name of call.tensors.keys())
    b.placeholder(name, type(name), { role: 'input', roleName: name });
  const made: ValueType = inferCall(table, call, type) ?? { kind: 'none' };
  const value = b.call(call.target, call.args, made, { kwargs: call.kwargs });
  results.forEach((k, index) => {
    const one =
      made.kind === 'tuple' ? b.call('operator.getitem', [value, k], made.items[k]) : value;
    b.output({ value: one.name, role: 'output', index });
  });
  return b.build();
}

/** All elements of a small tensor; of a large one `most` that are spread over it. */
function spread(size: number, most: number): number[] {
  const count = Math.min(size, most);
  return Array.from({ length: count }, (_, i) => Math.floor(((i + 0.5) * size) / count));
}

function indexOf(element: number, shape: readonly number[]): number[] {
  let rest = element;
  return shape
    .toReversed()
    .map((size) => {
      const i = rest % size;
      rest = Math.floor(rest / size);
      return i;
    })
    .toReversed();
}
