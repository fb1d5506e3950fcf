import type { Graph } from '../../src/graph/types.ts';
import { scan } from '../../src/trace/control/loops.ts';
import { localMap } from '../../src/trace/spmd/local-map.ts';
import { allReduce, convert, outPartial } from '../../src/trace/spmd/verbs.ts';
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

export const REGIONS: Readonly<Record<string, RegionProgram>> = {
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
