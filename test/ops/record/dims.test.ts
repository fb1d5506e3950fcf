import { expect, test } from 'vitest';

import { ShardwrightError } from '../../../src/errors.ts';
import type { Arg } from '../../../src/graph/types.ts';
import { bind, inferCall } from '../../../src/ops/record/infer.ts';
import { bindText, callOf, typeOf } from '../../../src/ops/samples/call-text.ts';
import { operators, samples } from '../../engines/samples/all.ts';

/** A dim, or a list of dims, as PyTorch names them. */
const IS_DIM = /^dims?[01]?$|^dimension$|^axis[01]?$/;

/** The call with every dim of one argument replaced by one that no tensor of a sample has. */
function changed(sample: (typeof samples)[number], name: string, at: number): typeof sample {
  const past = (value: Arg): Arg => (Array.isArray(value) ? value.map(() => 9) : 9);
  const { args, kwargs } = sample;
  return name in kwargs
    ? { ...sample, kwargs: { ...kwargs, [name]: past(kwargs[name]) } }
    : { ...sample, args: args.map((arg, k) => (k === at ? past(arg) : arg)) };
}

const isDim = (value: Arg | undefined): boolean =>
  typeof value === 'number' ||
  (Array.isArray(value) && value.length > 0 && value.every((x) => typeof x === 'number'));

test('a dim that does not exist is refused where the call is typed, by every operator', () => {
  const taken = new Set<string>();
  let asked = 0;
  for (const sample of samples) {
    const { record } = bindText(operators, sample);
    record.schema.forEach(({ name }, at) => {
      // The `dims` of `tile` are counts.
      if (sample.target === 'aten.tile.default' || !IS_DIM.test(name)) return;
      if (!isDim(sample.kwargs[name] ?? sample.args[at])) return;
      const call = changed(sample, name, at);
      asked++;
      try {
        inferCall(operators, call, typeOf(call));
        taken.add(`${call.target} ${name}`);
      } catch (error) {
        if (!(error instanceof ShardwrightError) || error.code === 'E_INTERNAL') throw error;
      }
    });
  }
  expect([...taken]).toEqual([]);
  expect(asked).toBeGreaterThan(150);
});

test.each([
  ['aten.narrow.default', 'x[], 0, 0, 1'],
  ['aten.sum.dim_IntList', 'x[], [1]'],
  ['aten.mean.dim', 'x[], [-2]'],
  ['aten.amax.default', 'x[], [1]'],
  ['aten.var.correction', 'x[], [1]'],
  ['aten.flip.default', 'x[4], [1]'],
  ['aten.roll.default', 'x[4], [1], [-2]'],
  ['spmd_types.redistribute.default', "x[4], 'tp', 2, 'R', 'S(1)'"],
])('%s of %s names a dim that the tensor does not have', (target, args) => {
  const call = callOf(target, args);
  expect(() => bind(operators, call, typeOf(call))).toThrow(ShardwrightError);
});
