/** Feed-forward layers and their activations as traced modules. */

import { checkKinds } from '../../arguments.ts';
import { scope } from '../tensor/state.ts';
import type { Tensor } from '../tensor/tensor.ts';
import { Linear, type LinearOptions } from './linear.ts';

export type Activation = 'relu' | 'gelu' | 'gelu_tanh' | 'silu' | 'tanh' | 'sigmoid';

/** Applies an activation by name. */
export function activate(x: Tensor, activation: Activation): Tensor {
  switch (activation) {
    case 'relu':
      return x.relu();
    case 'gelu':
      return x.gelu();
    case 'gelu_tanh':
      return x.gelu('tanh');
    case 'silu':
      return x.silu();
    case 'tanh':
      return x.tanh();
    case 'sigmoid':
      return x.sigmoid();
  }
}

interface MlpOptions extends LinearOptions {
  readonly activation?: Activation;
  /** Names of the layers, `fc1`, `fc2` and so on by default. */
  readonly names?: readonly string[];
}

/**
 * Linear layers of the given widths, `[128, 256, 64]` for two of them, with an activation between.
 */
export class MLP {
  private readonly layers: readonly Linear[];

  constructor(
    readonly name: string,
    widths: readonly number[],
    private readonly options: MlpOptions = {},
  ) {
    checkKinds('MLP', {
      name: [name, 'string'],
      widths: [widths, 'integers'],
      options: [options, 'record', 'undefined'],
    });
    const { names } = options;
    this.layers = widths
      .slice(1)
      .map((width, i) => new Linear(names?.[i] ?? `fc${i + 1}`, widths[i], width, options));
  }

  forward(x: Tensor): Tensor {
    const { activation = 'relu' } = this.options;
    return scope(this.name, () =>
      this.layers.reduce((h, layer, i) => layer.forward(i === 0 ? h : activate(h, activation)), x),
    );
  }
}

/** The gated feed-forward layer of Llama: `down(silu(gate(x)) * up(x))`. */
export class SwiGLU {
  private readonly gate: Linear;
  private readonly up: Linear;
  private readonly down: Linear;

  constructor(
    readonly name: string,
    width: number,
    hidden: number,
    options: LinearOptions = {},
  ) {
    checkKinds('SwiGLU', { options: [options, 'record'] });
    const plain = { ...options, bias: options.bias ?? false };
    this.gate = new Linear('gate_proj', width, hidden, plain);
    this.up = new Linear('up_proj', width, hidden, plain);
    this.down = new Linear('down_proj', hidden, width, plain);
  }

  forward(x: Tensor): Tensor {
    return scope(this.name, () =>
      this.down.forward(this.gate.forward(x).silu().mul(this.up.forward(x))),
    );
  }
}
