/**
 * Cells of recurrent networks: one step each, with the parameter names and the gate order of
 * PyTorch.
 */

import type { DType } from '../../graph/types.ts';
import { param, scope } from '../tensor/state.ts';
import type { Tensor } from '../tensor/tensor.ts';

interface CellOptions {
  readonly dtype?: DType;
}

/**
 * The two products of a step, `x @ weight_ih^T + bias_ih` and `h @ weight_hh^T + bias_hh`, [batch,
 * gates * hidden].
 */
function products(
  x: Tensor,
  h: Tensor,
  inputs: number,
  hidden: number,
  gates: number,
  { dtype = 'f32' }: CellOptions,
): [Tensor, Tensor] {
  const rows = gates * hidden;
  return [
    x.linear(
      param('weight_ih', { shape: [rows, inputs], dtype }),
      param('bias_ih', { shape: [rows], dtype }),
    ),
    h.linear(
      param('weight_hh', { shape: [rows, hidden], dtype }),
      param('bias_hh', { shape: [rows], dtype }),
    ),
  ];
}

/** One step of an LSTM. */
export class LSTMCell {
  constructor(
    readonly name: string,
    private readonly inputs: number,
    private readonly hidden: number,
    private readonly options: CellOptions = {},
  ) {}

  /** @param x [batch, inputs]; h and c [batch, hidden] */
  forward(x: Tensor, state: { readonly h: Tensor; readonly c: Tensor }): { h: Tensor; c: Tensor } {
    return scope(this.name, () => {
      const [fromInput, fromState] = products(
        x,
        state.h,
        this.inputs,
        this.hidden,
        4,
        this.options,
      );
      const [input, forget, cell, output] = fromInput.add(fromState).chunk(4, 1);
      const c = forget.sigmoid().mul(state.c).add(input.sigmoid().mul(cell.tanh()));
      return { h: output.sigmoid().mul(c.tanh()), c };
    });
  }
}

/** One step of a GRU. */
export class GRUCell {
  constructor(
    readonly name: string,
    private readonly inputs: number,
    private readonly hidden: number,
    private readonly options: CellOptions = {},
  ) {}

  /** @param x [batch, inputs]; h [batch, hidden] */
  forward(x: Tensor, h: Tensor): Tensor {
    return scope(this.name, () => {
      const [fromInput, fromState] = products(x, h, this.inputs, this.hidden, 3, this.options);
      const [inputReset, inputUpdate, inputNew] = fromInput.chunk(3, 1);
      const [stateReset, stateUpdate, stateNew] = fromState.chunk(3, 1);
      const reset = inputReset.add(stateReset).sigmoid();
      const update = inputUpdate.add(stateUpdate).sigmoid();
      const fresh = inputNew.add(reset.mul(stateNew)).tanh();
      // (1 - update) * fresh + update * h, with one product fewer.
      return fresh.add(update.mul(h.sub(fresh)));
    });
  }
}
