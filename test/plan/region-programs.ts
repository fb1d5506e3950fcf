import type { Graph } from '../../src/graph/types.ts';
import { scan } from '../../src/trace/control/loops.ts';
import { localMap } from '../../src/trace/spmd/local-map.ts';
import {
  allGather,
  allReduce,
  allToAll,
  convert,
  outPartial,
  reduceScatter,
  reinterpret,
} from '../../src/trace/spmd/verbs.ts';
import { input, type Tensor, trace } from '../../src/trace/trace.ts';

/** A program with a region that is per device over `sp`. */
export interface RegionProgram {
  readonly program: (mesh: string) => Graph;
  /** Inputs to differentiate by; none: the program is run forward only. */
  readonly wrt: readonly string[];
}

function regionProgram(
  inputs: Readonly<Record<string, readonly number[]>>,
  run: (inputs: Readonly<Record<string, Tensor>>) => Tensor,
): RegionProgram {
  const names = Object.keys(inputs);
  return {
    wrt: names,
    program: (mesh) =>
      trace(
        (given: Readonly<Record<string, Tensor>>) => run(given),
        Object.fromEntries(names.map((name) => [name, input(inputs[name])])),
        { mesh },
      ),
  };
}

/** A recurrence whose state is cut over `sp`, added up once a step. */
const recurrence = (x: Tensor, w: Tensor, h: Tensor): Tensor =>
  localMap(
    (x: Tensor, w: Tensor, h: Tensor) =>
      scan(
        (c, row) => {
          const whole = allReduce(outPartial(c.matmul(w), 'sp'), 'sp', { dst: 'R' });
          const own = convert(whole, 'sp', { src: 'R', dst: 'S(1)' });
          return [own.add(row).tanh(), null];
        },
        h,
        x,
      )[0],
    {
      axes: ['sp'],
      inSpecs: ['P(None,None,"sp")', 'P("sp")', 'P(None,"sp")'],
      outSpecs: 'P(None,"sp")',
    },
  )(x, w, h);

/** Attention whose sequence is cut over `sp`, and its heads in between (Ulysses). */
function ulysses(q: Tensor, k: Tensor, v: Tensor): Tensor {
  const toHeads = (x: Tensor): Tensor => allToAll(x, 'sp', { src: 'S(0)', dst: 'S(1)' });
  const byHead = (x: Tensor): Tensor => x.transpose(0, 1);
  const rows = 'P("sp",None,None)';
  return localMap(
    (...given: Tensor[]) => {
      const [q, k, v] = given.map((x) => byHead(toHeads(x)));
      const scores = q.matmul(k.transpose(1, 2)).mul(0.4).exp();
      const mixed = byHead(scores.div(scores.sum(2, true)).matmul(v));
      return allToAll(mixed, 'sp', { src: 'S(1)', dst: 'S(0)' });
    },
    { axes: ['sp'], inSpecs: [rows, rows, rows], outSpecs: rows },
  )(q, k, v);
}

const addends = { src: 'V', dst: 'P', expert: true } as const;

/** A product whose sums are scattered over the rows, and gathered again. */
const scattered = (x: Tensor, w: Tensor, u: Tensor): Tensor =>
  localMap(
    (x: Tensor, w: Tensor, u: Tensor) => {
      const sums = reinterpret(x.matmul(w), 'sp', addends);
      const own = reduceScatter(sums, 'sp', { dst: 'S(0)' }).tanh();
      return allGather(own, 'sp', { src: 'S(0)', dst: 'R' }).matmul(u).sin();
    },
    {
      axes: ['sp'],
      inSpecs: ['P(None,"sp")', 'P("sp")', 'P(None,"sp")'],
      outSpecs: 'P(None,"sp")',
    },
  )(x, w, u);

/** An MLP whose rows are cut over `sp` outside, and its hidden dim inside. */
const sequenceParallel = (x: Tensor, w: Tensor, u: Tensor): Tensor =>
  localMap(
    (x: Tensor, w: Tensor, u: Tensor) => {
      const hidden = allGather(x, 'sp', { src: 'S(0)', dst: 'R' }).matmul(w).tanh();
      return reduceScatter(reinterpret(hidden.matmul(u), 'sp', addends), 'sp', { dst: 'S(0)' });
    },
    { axes: ['sp'], inSpecs: ['P("sp")', 'P(None,"sp")', 'P("sp")'], outSpecs: 'P("sp")' },
  )(x, w, u);

export const REGIONS: Readonly<Record<string, RegionProgram>> = {
  'attention whose heads are cut in between': regionProgram(
    { q: [12, 4, 6], k: [12, 4, 6], v: [12, 4, 6] },
    ({ q, k, v }) => ulysses(q, k, v).square().sum(),
  ),
  'sums scattered and gathered again': regionProgram(
    { x: [24, 8], w: [8, 12], u: [12, 8] },
    ({ x, w, u }) => scattered(x, w, u).square().mean(),
  ),
  'an MLP with its sequence cut': regionProgram(
    { x: [24, 8], w: [8, 12], u: [12, 8] },
    ({ x, w, u }) => sequenceParallel(x.sin(), w, u).square().mean(),
  ),
  'addends that a product leaves': regionProgram(
    { x: [24, 8], w: [8, 12], u: [12, 8] },
    ({ x, w, u }) =>
      localMap((sums: Tensor, u: Tensor) => allReduce(sums, 'sp', { dst: 'I' }).sin().matmul(u), {
        axes: ['sp'],
        inSpecs: [{ sp: 'P' }, 'P(None, None)'],
        outSpecs: 'P(None, None)',
      })(x.matmul(w), u)
        .square()
        .mean(),
  ),
  'pieces stacked on a new dim': regionProgram({ x: [12, 8] }, ({ x }) =>
    localMap((x: Tensor) => allGather(x, 'sp', { src: 'V', dst: 'I' }).sin().sum(0), {
      axes: ['sp'],
      inSpecs: ['P(None,"sp")'],
      outSpecs: 'P(None,None)',
    })(x)
      .square()
      .sum(),
  ),
  'rows of a stack scattered': regionProgram({ x: [12, 2, 8], w: [8, 12] }, ({ x, w }) =>
    localMap(
      (x: Tensor, w: Tensor) => {
        const sums = reinterpret(x.matmul(w).transpose(0, 1), 'sp', addends);
        return reduceScatter(sums, 'sp', { dst: 'V' }).sin();
      },
      { axes: ['sp'], inSpecs: ['P(None,None,"sp")', 'P("sp")'], outSpecs: 'P(None,"sp")' },
    )(x, w)
      .square()
      .sum(),
  ),
  'a recurrence': regionProgram({ x: [6, 12, 8], w: [8, 8], h: [12, 8] }, ({ x, w, h }) =>
    recurrence(x, w, h).square().sum(),
  ),
  'two recurrences and a loop around them': regionProgram(
    { x: [2, 12, 8], w: [8, 8], h: [12, 8] },
    ({ x, w, h }) =>
      recurrence(x, w, scan((c, row) => [c.add(row).tanh(), null], recurrence(x, w, h), x)[0])
        .square()
        .sum(),
  ),
};
