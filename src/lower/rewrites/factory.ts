/** Rewrites calls that make tensors, so that each rank makes its piece. */
import { defined } from '../../defined.ts';
import type { Arg, DType } from '../../graph/types.ts';
import { ref } from '../../graph/value.ts';
import { isIntegral } from '../../ops/record/dtypes.ts';
import type { LocalCall, Rewrite, Rewrites } from '../local-call.ts';
import { combine, type RankInt } from '../program/rank-int.ts';
import { localShape } from './shape.ts';

const dtypeArg = (dtype: DType): Arg => ({ kind: 'dtype', dtype });

function resultType(call: LocalCall): DType {
  return call.global.outputs[0]?.dtype ?? 'f32';
}

/**
 * A constant of the local shape; what the call was made like gives only the shape that was asked
 * for.
 */
const like =
  (made: string, value?: string): Rewrite =>
  (call) => {
    const self = ref(call.tensor('self'));
    const size = call.emit.ints(call.localShape());
    const fill = value === undefined ? [] : [valueOf(call, value)];
    const kwargs = { dtype: dtypeArg(resultType(call)) };
    return [call.emit.call(made, [self, size, ...fill], { name: call.node.name, kwargs })];
  };

/** The argument as the call has it. */
function valueOf(call: LocalCall, name: string): Arg {
  let position = 0;
  for (const s of call.record.schema) {
    const at = s.kwargOnly ? -1 : position++;
    if (s.name !== name) continue;
    const given = at >= 0 && at < call.args.length ? call.args[at] : call.kwargs[name];
    return given ?? s.default ?? null;
  }
  return null;
}

interface Counting {
  readonly start: number;
  readonly step: number;
}

interface CountingFrom {
  readonly start: RankInt;
  readonly step: number;
  readonly dtype: DType;
}

/** Integers that count rows, from a first one. */
function counter(call: LocalCall, rows: RankInt, counting: CountingFrom, name?: string): string {
  const { emit } = call;
  return emit.call('prims.iota.default', [emit.int(rows)], {
    kwargs: {
      start: emit.int(counting.start),
      step: counting.step,
      dtype: dtypeArg(counting.dtype),
      device: { kind: 'device', word: 'cpu' },
      requires_grad: false,
    },
    ...defined({ name }),
  });
}

/**
 * A range of the rank's rows: the counter starts at its first row. PyTorch counts in integers only,
 * so fractions are made of them, in float32 at least.
 */
const range =
  (counting: (call: LocalCall) => Counting): Rewrite =>
  (call) => {
    const { emit } = call;
    const { start, step } = counting(call);
    const { start: first, rows } = call.outputPiece(0);
    const dtype = resultType(call);
    const { name } = call.node;
    const converted = (x: string, to: DType, own?: string): string =>
      emit.call(
        'prims.convert_element_type.default',
        [ref(x), dtypeArg(to)],
        own === undefined ? {} : { name: own },
      );
    if (Number.isInteger(start) && Number.isInteger(step)) {
      const from = combine([first], `first number of ${name}`, (row) => start + row * step);
      if (isIntegral(dtype)) return [counter(call, rows, { start: from, step, dtype }, name)];
      const whole = counter(call, rows, { start: from, step, dtype: 'i64' });
      return [converted(whole, dtype, name)];
    }
    const wide = dtype === 'f64' ? dtype : 'f32';
    const counted = counter(call, rows, { start: first, step: 1, dtype: 'i64' });
    const scaled = emit.call('aten.mul.Tensor', [
      ref(converted(counted, wide)),
      { kind: 'float', value: step },
    ]);
    const moved = (own?: string): string =>
      emit.call(
        'aten.add.Tensor',
        [ref(scaled), { kind: 'float', value: start }],
        own === undefined ? {} : { name: own },
      );
    return [wide === dtype ? moved(name) : converted(moved(), dtype, name)];
  };

/** The rank's part of a unit matrix: where its row and column numbers agree. */
const eye: Rewrite = (call) => {
  const { emit } = call;
  const numbers = (d: number): string => {
    const { start, rows } = call.outputPiece(d);
    const counted = counter(call, rows, { start, step: 1, dtype: 'i64' });
    return emit.call('aten.unsqueeze.default', [ref(counted), 1 - d]);
  };
  const same = emit.call('aten.eq.Tensor', [ref(numbers(0)), ref(numbers(1))]);
  const dtype = dtypeArg(resultType(call));
  return [
    emit.call('prims.convert_element_type.default', [ref(same), dtype], { name: call.node.name }),
  ];
};

const number = (call: LocalCall, name: string): number => call.global.number(name);
/** Whole steps where the result is of integers, as the unsharded range takes them. */
const whole = (call: LocalCall, value: number): number =>
  resultType(call).startsWith('f') || resultType(call) === 'bf16' ? value : Math.trunc(value);

export const factoryRewrites: Rewrites = {
  'aten.zeros.default': localShape('size'),
  'aten.ones.default': localShape('size'),
  'aten.empty.memory_format': localShape('size'),
  'aten.full.default': localShape('size'),
  'aten.new_zeros.default': localShape('size'),
  'aten.new_ones.default': localShape('size'),
  'aten.new_empty.default': localShape('size'),
  'aten.new_full.default': localShape('size'),
  // Strides mean nothing to values, so those of the whole tensor stay.
  'aten.empty_strided.default': localShape('size'),
  'aten.new_empty_strided.default': localShape('size'),
  'aten.rand.default': localShape('size'),
  'aten.randn.default': localShape('size'),
  'aten.normal.float_float': localShape('size'),
  'aten.randint.default': localShape('size'),
  'aten.randint.low': localShape('size'),
  'aten.zeros_like.default': like('aten.new_zeros.default'),
  'aten.zero_.default': like('aten.new_zeros.default'),
  'aten.ones_like.default': like('aten.new_ones.default'),
  'aten.empty_like.default': like('aten.new_empty.default'),
  'aten.full_like.default': like('aten.new_full.default', 'fill_value'),
  'aten.fill.Scalar': like('aten.new_full.default', 'value'),
  'aten.fill_.Scalar': like('aten.new_full.default', 'value'),
  'aten.eye.default': eye,
  'aten.eye.m': eye,
  'aten.arange.default': range(() => ({ start: 0, step: 1 })),
  'aten.arange.start': range((call) => ({ start: whole(call, number(call, 'start')), step: 1 })),
  'aten.arange.start_step': range((call) => ({
    start: whole(call, number(call, 'start')),
    step: whole(call, number(call, 'step')),
  })),
  'aten.linspace.default': range((call) => {
    const [start, end, steps] = [
      number(call, 'start'),
      number(call, 'end'),
      call.global.int('steps'),
    ];
    return { start, step: steps > 1 ? (end - start) / (steps - 1) : 0 };
  }),
  'prims.iota.default': range((call) => ({
    start: number(call, 'start'),
    step: number(call, 'step'),
  })),
};

/** Draws of a part need no change of the call: the executor numbers them by the global position. */
const asIs: Rewrite = (call) => call.run();
const RANDOM_AS_IS: readonly string[] = [
  'aten.dropout.default',
  'aten.native_dropout.default',
  'aten.bernoulli.default',
  'aten.bernoulli.p',
  'aten.bernoulli_.float',
  'aten.normal_.default',
  'aten.uniform_.default',
  'aten.exponential_.default',
  'aten.log_normal_.default',
  'aten.geometric_.default',
  'aten.cauchy_.default',
  'aten.normal_functional.default',
  'aten.uniform.default',
  'aten.exponential.default',
  'aten.log_normal.default',
  'aten.geometric.default',
  'aten.cauchy.default',
  'aten.randint_like.default',
  'aten.randint_like.low_dtype',
  'aten.multinomial.default',
  'aten.normal.Tensor_Tensor',
  'aten.normal.Tensor_float',
  'aten.normal.float_Tensor',
  'aten.rand_like.default',
  'aten.randn_like.default',
];
export const randomRewrites: Rewrites = Object.fromEntries(
  RANDOM_AS_IS.map((name) => [name, asIs]),
);
