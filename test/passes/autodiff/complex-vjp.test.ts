import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { expect, test } from 'vitest';

import { GraphBuilder } from '../../../src/graph/build.ts';
import type { ValueRef, ValueType } from '../../../src/graph/types.ts';
import { fromList, type NDArray } from '../../../src/ndarray/array.ts';
import { inferCall } from '../../../src/ops/record/infer.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { table } from '../vjp-samples.ts';

/**
 * Gradients of operators on complex numbers, as torch.autograd gives them in float64. Complex
 * inputs and results stand as pairs of reals, whose gradients are the parts of PyTorch's complex
 * ones.
 */

interface Numbers {
  readonly shape: readonly number[];
  readonly re: readonly number[];
  readonly im?: readonly number[];
}
interface Call {
  readonly target: string;
  readonly inputs: readonly Numbers[];
  readonly tangent: Numbers;
  readonly gradients: readonly Numbers[];
}
const FILE = join(import.meta.dirname, '../../fixtures/kernels/complex-gradients.json.gz');
const { calls } = JSON.parse(gunzipSync(readFileSync(FILE)).toString()) as {
  readonly calls: readonly Call[];
};

/** Complex numbers as pairs, real ones as they are. */
function pairs({ shape, re, im }: Numbers): NDArray {
  if (im === undefined) return fromList(shape, re, 'f64');
  return fromList(
    [...shape, 2],
    re.flatMap((v, i) => [v, im[i]]),
    'f64',
  );
}

function gradients({ target, inputs, tangent }: Call): number[][] {
  const b = new GraphBuilder('sample');
  const call = (name: string, args: readonly ValueRef[]): ValueRef => {
    const type = inferCall(table, { target: name, args, kwargs: {} }, (value) =>
      b.typeOf({ kind: 'value', name: value }),
    );
    if (type === undefined) throw new Error(`no operator ${name}`);
    return b.call(name, args, type);
  };
  const placeholders = inputs.map((x, i) => {
    const type: ValueType = { kind: 'tensor', dtype: 'f64', shape: pairs(x).shape };
    return b.placeholder(`x${i}`, type, { role: 'input', roleName: `x${i}` });
  });
  const operands = placeholders.map((value, i) =>
    inputs[i].im === undefined ? value : call('aten.view_as_complex.default', [value]),
  );
  const result = call(target, operands);
  const y = tangent.im === undefined ? result : call('aten.view_as_real.default', [result]);
  b.output({ value: y.name, role: 'output', index: 0 });
  const wrt = inputs.map((_, i) => `x${i}`);
  const joint = jointGraph(b.build(), { table, wrt });
  const values = evaluateGraph(table, joint, [...inputs.map(pairs), pairs(tangent)]).outputs;
  return wrt.map((name) => {
    const at = joint.outputs.findIndex((output) => output.role === 'grad' && output.of === name);
    const gradient = values[at] as NDArray;
    expect(gradient.dtype).toBe('f64');
    return gradient.toArray();
  });
}

const kindOf = (x: Numbers): string =>
  `${x.im === undefined ? 'f64' : 'c128'}[${x.shape.join(', ')}]`;

test.each(calls.map((c) => [`${c.target}(${c.inputs.map(kindOf).join(', ')})`, c] as const))(
  'the gradients of %s are those of PyTorch',
  (_, call) => {
    gradients(call).forEach((got, i) => {
      const want = pairs(call.gradients[i]).toArray();
      expect(got.length).toBe(want.length);
      got.forEach((v, k) => {
        expect(v).toBeCloseTo(want[k], 10);
      });
    });
  },
);

test.each(['exp', 'reciprocal', 'sqrt', 'prod'])(
  'a derivative for real numbers alone is refused: %s',
  (name) => {
    const two: Numbers = { shape: [2], re: [1, 2], im: [3, 4] };
    expect(() =>
      gradients({ target: `aten.${name}.default`, inputs: [two], tangent: two, gradients: [] }),
    ).toThrow(/on complex numbers aten\.\w+\.default has no derivative/);
  },
);
