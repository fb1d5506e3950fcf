/**
 * A recurrent network as a scan: the loop is one node of the graph, however many trips it makes.
 */
import { input, parameter, type Tensor } from 'shardwright';
import { scan } from 'shardwright/trace';

const [batch, width, trips] = [64, 2048, 16];

export const inputs = {
  h0: input([batch, width]),
  xs: input([trips, batch, width]),
  wx: parameter([width, width]),
  wh: parameter([width, width]),
};

export function model({ h0, xs, wx, wh }: Record<keyof typeof inputs, Tensor>): Tensor {
  const [last, ys] = scan(
    (h, x) => {
      const next = x.matmul(wx).add(h.matmul(wh)).tanh();
      return [next, next];
    },
    h0,
    xs,
  );
  return last.sum().add(ys.mul(ys).sum());
}
