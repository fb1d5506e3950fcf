/**
 * Rewrites softmax whose normalised dim is cut to row maxima and sums that are reduced over the
 * ranks.
 */
import type { Arg, DType } from '../../graph/types.ts';
import { ref } from '../../graph/value.ts';
import type { LocalCall, Rewrite, Rewrites } from '../local-call.ts';
import { combine } from '../program/rank-int.ts';
import { padEnd, someEmpty } from './masked.ts';

interface RowStatistics {
  /** x - max over all ranks, and its exponential. */
  readonly shifted: string;
  readonly exponentials: string;
  /** Sum of the exponentials over all ranks; the dim stays, with size 1. */
  readonly total: string;
  /** Largest value over all ranks; the dim stays, with size 1. */
  readonly largest: string;
}

/** All-reduced one mesh dim after the other: each is a collective of its own. */
export function reducedOver(
  call: LocalCall,
  value: string,
  op: 'max' | 'sum',
  meshDims: readonly number[],
): string {
  let now = value;
  for (const m of meshDims) now = call.emit.collective('all_reduce', now, [m], [op]);
  return now;
}

/**
 * @param meshDims mesh dims that cut dim `dim` of x; statistics are wider than a 16-bit x, which
 *   needs no wider copy for them
 */
export function rowStatistics(
  call: LocalCall,
  x: string,
  dim: number,
  meshDims: readonly number[],
): RowStatistics {
  const { emit } = call;
  const rows = emit.type(x).shape[dim];
  // A rank without rows has no largest one; minus infinity never wins.
  const filled = someEmpty(rows)
    ? padEnd(
        emit,
        x,
        dim,
        combine([rows], 'padding of an empty piece', (n) => (n === 0 ? 1 : 0)),
        -Infinity,
      )
    : x;
  const own = widened(call, emit.call('aten.amax.default', [ref(filled), [dim], true]));
  const largest = reducedOver(call, own, 'max', meshDims);
  // In the wider dtype, without a copy of x in it.
  const shifted = emit.call('aten.sub.Tensor', [ref(x), ref(largest)]);
  const exponentials = emit.call('aten.exp.default', [ref(shifted)]);
  const sum = emit.call('aten.sum.dim_IntList', [ref(exponentials), [dim], true]);
  return { shifted, exponentials, total: reducedOver(call, sum, 'sum', meshDims), largest };
}

/** Statistics are kept in at least f32. */
export function widened(call: LocalCall, x: string): string {
  const { dtype } = call.emit.type(x);
  return cast(call, x, dtype === 'f64' ? 'f64' : 'f32');
}

export function cast(call: LocalCall, x: string, dtype: DType, name?: string): string {
  if (call.emit.type(x).dtype === dtype && name === undefined) return x;
  const options = name === undefined ? {} : { name };
  return call.emit.call(
    'prims.convert_element_type.default',
    [ref(x), { kind: 'dtype', dtype }],
    options,
  );
}

function dimOf(call: LocalCall): number {
  const dim = call.global.int('dim');
  return dim < 0 ? dim + call.global.inputs[0].shape.length : dim;
}

/**
 * The last call of a form, on values of a dtype; it has the node's name, and so does a cast behind
 * it.
 */
function last(
  call: LocalCall,
  wide: DType,
  target: string,
  args: readonly Arg[],
  kwargs: Readonly<Record<string, Arg>> = {},
): string {
  const dtype = call.global.outputs[0]?.dtype ?? 'f32';
  if (dtype === wide) return call.emit.call(target, args, { kwargs, name: call.node.name });
  return cast(call, call.emit.call(target, args, { kwargs }), dtype, call.node.name);
}

type Finish = (call: LocalCall, s: RowStatistics, wide: DType) => string;

const forward =
  (finish: Finish): Rewrite =>
  (call) => {
    const statistics = rowStatistics(
      call,
      call.inputs[0],
      dimOf(call),
      call.meshDims('all-reduce-max-sum'),
    );
    return [finish(call, statistics, call.emit.type(statistics.shifted).dtype)];
  };

const probabilities: Finish = (call, s, wide) =>
  last(call, wide, 'aten.div.Tensor', [ref(s.exponentials), ref(s.total)]);
const logarithms: Finish = (call, s, wide) =>
  last(call, wide, 'aten.sub.Tensor', [
    ref(s.shifted),
    ref(call.emit.call('aten.log.default', [ref(s.total)])),
  ]);

/** Zero in rows that are minus infinity everywhere. */
const safe: Finish = (call, s, wide) => {
  const { emit } = call;
  const masked = emit.call('aten.eq.Scalar', [ref(s.largest), { kind: 'float', value: -Infinity }]);
  const whole = emit.call('aten.div.Tensor', [ref(s.exponentials), ref(s.total)]);
  return last(call, wide, 'aten.masked_fill.Scalar', [ref(whole), ref(masked), 0]);
};

const backward =
  (log: boolean): Rewrite =>
  (call) => {
    const { emit } = call;
    // Beside the wider output the gradient needs no wider copy.
    const grad = call.tensor('grad_output');
    const output = widened(call, call.tensor('output'));
    const weighted = log ? grad : emit.call('aten.mul.Tensor', [ref(grad), ref(output)]);
    const { dtype } = emit.type(output);
    const isWide = emit.type(grad).dtype === dtype;
    const kwargs: Readonly<Record<string, Arg>> =
      emit.type(weighted).dtype === dtype ? {} : { dtype: { kind: 'dtype', dtype } };
    const sum = emit.call('aten.sum.dim_IntList', [ref(weighted), [dimOf(call)], true], { kwargs });
    const total = reducedOver(call, sum, 'sum', call.meshDims('all-reduce-sum'));
    if (!log)
      return [
        last(call, dtype, 'aten.mul.Tensor', [
          ref(output),
          ref(emit.call('aten.sub.Tensor', [ref(grad), ref(total)])),
        ]),
      ];
    const factor = emit.call('aten.exp.default', [ref(output)]);
    // One pass over the rows, where a product and a difference would be two.
    if (isWide)
      return [
        last(call, dtype, 'aten.addcmul.default', [ref(grad), ref(factor), ref(total)], {
          value: -1,
        }),
      ];
    return [
      last(call, dtype, 'aten.sub.Tensor', [
        ref(grad),
        ref(emit.call('aten.mul.Tensor', [ref(factor), ref(total)])),
      ]),
    ];
  };

export const softmaxRewrites: Rewrites = {
  'aten._softmax.default': forward(probabilities),
  'aten.softmax.int': forward(probabilities),
  'aten._safe_softmax.default': forward(safe),
  'aten._log_softmax.default': forward(logarithms),
  'aten.log_softmax.int': forward(logarithms),
  'aten._softmax_backward_data.default': backward(false),
  'aten._log_softmax_backward_data.default': backward(true),
};
