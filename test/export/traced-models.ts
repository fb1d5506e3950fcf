/**
 * Models that are traced here and whose PyTorch twins stand in `test/engines/running/models.py`:
 * loops and branches with gradients.
 */
import { jointGraph } from '../../src/entries/graph.ts';
import { cond, map, scan, whileLoop } from '../../src/entries/trace.ts';
import { type Graph, input, parameter, type Tensor, trace } from '../../src/index.ts';

const [TRIPS, BATCH, WIDTH] = [6, 8, 16];

const inputs = {
  xs: input([TRIPS, BATCH, WIDTH], 'f64'),
  wx: parameter([WIDTH, WIDTH], 'f64'),
  wh: parameter([WIDTH, WIDTH], 'f64'),
  gate: parameter([WIDTH, WIDTH], 'f64'),
};

/** A recurrence of which every trip takes the branch that its own values decide. */
function recurrent({ xs, wx, wh, gate }: Record<keyof typeof inputs, Tensor>): Tensor {
  const [last, ys] = scan(
    (h, x) => {
      const made = x.matmul(wx).add(h.matmul(wh));
      const next = cond(
        made.mean().gt(0),
        () => made.tanh(),
        () => made.matmul(gate).sigmoid(),
      );
      return [next, next];
    },
    xs.select(0, 0).mul(0),
    xs,
  );
  return last.mul(last).mean().add(ys.mul(ys).mean());
}

/**
 * A recurrence whose trips do all the same, and a map over its rows: loops with a known number of
 * trips.
 */
function looped({ xs, wx, wh, gate }: Record<keyof typeof inputs, Tensor>): Tensor {
  const [last, ys] = scan(
    (h, x) => {
      const next = x.matmul(wx).add(h.matmul(wh)).tanh();
      return [next, next];
    },
    xs.select(0, 0).mul(0),
    xs,
  );
  return last
    .square()
    .mean()
    .add(map((y) => y.matmul(gate).sin(), ys).mean());
}

/** A loop that ends when its own values say so, and a map over rows that devices may share. */
function iterated({ xs, wx, wh }: Record<keyof typeof inputs, Tensor>): Tensor {
  const [last] = whileLoop(
    ([h, trip]) => trip.lt(12).logicalAnd(h.square().mean().gt(0.001)),
    ([h, trip]) => [h.matmul(wx).tanh().mul(0.5), trip.add(1)],
    [xs.select(0, 0), 0] as const,
  );
  return map((x) => x.matmul(wh).sin().add(last), xs).mean();
}

export const TRACED: Readonly<Record<string, () => Graph>> = {
  iterated: () => trace(iterated, inputs),
  looped: () => jointGraph(trace(looped, inputs), { seed: 1 }),
  recurrent: () => jointGraph(trace(recurrent, inputs), { seed: 1 }),
};
