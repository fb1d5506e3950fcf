/** The traced tensor: each method records one aten call and checks its types at once. */

import { checkType, isList, valueText, wrongArgument } from '../../errors.ts';
import { sourcePosition } from '../errors/position.ts';
import { refusal } from '../errors/refusal.ts';
import { needRecorder, type TraceArg, type TracedValue } from '../record/recorder.ts';
import { sameSize, sizeText } from '../sizes/sizes.ts';
import {
  type Argument,
  needTensor,
  type TensorCore,
  traceArg,
  traceArgs,
  tracedValue,
} from './core.ts';
import { ShapedTensor } from './shape.ts';

/**
 * A placeholder for a tensor while a function is traced. Every method records one operator call,
 * `aten.*`, whose shape and dtype are checked at once; see the classes below it for pointwise
 * operators, reductions and views.
 */
export class Tensor extends ShapedTensor {
  /**
   * Matrix product: 2-D x 2-D, batched and broadcast for more dims.
   *
   * @throws E_SHAPE when the inner sizes differ
   */
  matmul(other: TensorCore): this {
    needTensor(other, 'the second operand of matmul');
    const [inner, otherInner] = [this.shape.at(-1), other.shape.at(other.rank === 1 ? 0 : -2)];
    if (
      inner !== undefined &&
      otherInner !== undefined &&
      typeof inner === typeof otherInner &&
      !sameSize(inner, otherInner)
    ) {
      const shape = (t: TensorCore): string => `[${t.shape.map(sizeText).join(', ')}]`;
      const place = { source: sourcePosition(), path: tracedValue(this)?.recorder.trace.path };
      throw refusal(
        'E_SHAPE',
        `matmul: inner sizes differ, ${shape(this)} x ${shape(other)}`,
        place,
        {
          hint: 'transpose one side with t() or transpose(-2, -1), or correct its size.',
        },
      );
    }
    const target = this.rank === 2 && other.rank === 2 ? 'aten.mm.default' : 'aten.matmul.default';
    return this.op(target, [this, other]);
  }
  /** Product of two stacks of matrices, `[b, m, k] x [b, k, n]`. */
  bmm(other: TensorCore): this {
    return this.op('aten.bmm.default', [this, other]);
  }
  /** `this @ weight^T + bias`, over the last dim; `weight` is [out, in]. */
  linear(weight: TensorCore, bias?: TensorCore): this {
    return this.op(
      'aten.linear.default',
      bias === undefined ? [this, weight] : [this, weight, bias],
    );
  }

  /** Normalised over the last dims, whose sizes are those of `weight`. */
  layerNorm(
    normalized: readonly number[],
    weight?: TensorCore,
    bias?: TensorCore,
    eps = 1e-5,
  ): this {
    return this.op('aten.layer_norm.default', [
      this,
      normalized,
      weight ?? null,
      bias ?? null,
      eps,
    ]);
  }
  rmsNorm(normalized: readonly number[], weight?: TensorCore, eps?: number): this {
    return this.op('aten.rms_norm.default', [
      this,
      normalized,
      weight ?? null,
      ...(eps === undefined ? [] : [eps]),
    ]);
  }
  groupNorm(groups: number, weight?: TensorCore, bias?: TensorCore, eps = 1e-5): this {
    return this.op('aten.group_norm.default', [this, groups, weight ?? null, bias ?? null, eps]);
  }

  /**
   * 2-D convolution of `[batch, channels, height, width]` with `[out, channels / groups, kh, kw]`.
   */
  conv2d(weight: TensorCore, bias?: TensorCore, options: ConvOptions = {}): this {
    return this.convolve('aten.conv2d.default', 2, weight, bias, options);
  }
  /** 1-D convolution of `[batch, channels, length]`. */
  conv1d(weight: TensorCore, bias?: TensorCore, options: ConvOptions = {}): this {
    return this.convolve('aten.conv1d.default', 1, weight, bias, options);
  }
  private convolve(
    target: string,
    rank: number,
    weight: TensorCore,
    bias: TensorCore | undefined,
    options: ConvOptions,
  ): this {
    const { stride = 1, padding = 0, dilation = 1, groups = 1 } = options;
    const each = (n: number | readonly number[]): readonly number[] =>
      typeof n === 'number' ? Array.from({ length: rank }, () => n) : n;
    return this.op(target, [
      this,
      weight,
      bias ?? null,
      each(stride),
      each(padding),
      each(dilation),
      groups,
    ]);
  }
  /** Largest of each window; the stride is the kernel by default. */
  maxPool2d(kernel: number, stride = kernel, padding = 0): this {
    return this.op('aten.max_pool2d.default', [
      this,
      [kernel, kernel],
      [stride, stride],
      [padding, padding],
    ]);
  }
  /** Mean of each window; the stride is the kernel by default. */
  avgPool2d(kernel: number, stride = kernel, padding = 0): this {
    return this.op('aten.avg_pool2d.default', [
      this,
      [kernel, kernel],
      [stride, stride],
      [padding, padding],
    ]);
  }
  /** Means of as many windows as the result has sizes. */
  adaptiveAvgPool2d(height: number, width: number): this {
    return this.op('aten.adaptive_avg_pool2d.default', [this, [height, width]]);
  }
}

export interface ConvOptions {
  readonly stride?: number | readonly number[];
  readonly padding?: number | readonly number[];
  readonly dilation?: number | readonly number[];
  readonly groups?: number;
}

/** The tensor that the user's program holds for a recorded value. */
export function tensorOf(value: TracedValue): Tensor {
  return new Tensor(value);
}

/**
 * Records any operator of the table with one result, such as `apply('aten.addmm.default', [bias, x,
 * w])`.
 */
export function apply(
  target: string,
  args: readonly Argument[],
  kwargs: Readonly<Record<string, Argument>> = {},
): Tensor {
  checkType('apply', 'target', target, 'string');
  return tensorOf(needRecorder(target).call(target, argumentsOf(args), traceArgs(kwargs)));
}

/** Records any operator of the table with several results. */
export function applyTuple(
  target: string,
  args: readonly Argument[],
  kwargs: Readonly<Record<string, Argument>> = {},
): Tensor[] {
  checkType('applyTuple', 'target', target, 'string');
  return needRecorder(target).calls(target, argumentsOf(args), traceArgs(kwargs)).map(tensorOf);
}

function argumentsOf(args: readonly Argument[]): TraceArg[] {
  if (isList(args)) return args.map((arg) => traceArg(arg));
  throw wrongArgument(
    'apply',
    'arguments',
    valueText(args),
    "give apply('aten.relu.default', [x]).",
  );
}
