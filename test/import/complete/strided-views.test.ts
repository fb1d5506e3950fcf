import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { GraphBuilder } from '../../../src/graph/build.ts';
import type { Graph, Node } from '../../../src/graph/types.ts';
import { tensorType } from '../../../src/graph/value.ts';
import { withoutStrides } from '../../../src/import/complete/strided-views.ts';
import { importGraph } from '../../../src/import/import.ts';
import { flat, NDArray } from '../../../src/ndarray/array.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';

/** Strided views are written as views of values; truth is the memory itself, element by element. */

const table = builtinOperators();
const product = (shape: readonly number[]): number => shape.reduce((n, d) => n * d, 1);
const contiguous = (shape: readonly number[]): number[] =>
  shape.map((_, d) => product(shape.slice(d + 1)));

interface Strided {
  readonly shape: readonly number[];
  readonly stride: readonly number[];
  readonly offset: number;
}

/** Places in memory, in row-major order of the view. */
function places({ shape, stride, offset }: Strided): number[] {
  let list = [offset];
  shape.forEach(
    (n, d) =>
      (list = list.flatMap((at) => Array.from({ length: n }, (_, i) => at + i * stride[d]))),
  );
  return list;
}

/** A value over dense memory whose dims stand in an order of their own. */
function dense(shape: readonly number[], order: readonly number[]): Strided {
  const steps = contiguous(order.map((d) => shape[d]));
  return { shape, stride: shape.map((_, d) => steps[order.indexOf(d)]), offset: 0 };
}

/** The value whose memory counts 0, 1, 2, ... plus `from`. */
function counted(layout: Strided, from = 0): NDArray {
  const values = Float64Array.from(places(layout), (p) => p + from);
  return new NDArray('f32', layout.shape, contiguous(layout.shape), 0, values);
}

function program(self: Strided, view: Strided, src?: readonly number[]): Graph {
  const b = new GraphBuilder('test');
  const x = b.placeholder('x', tensorType('f32', self.shape, self.stride), {
    role: 'input',
    roleName: 'x',
  });
  const y =
    src === undefined
      ? undefined
      : b.placeholder('y', tensorType('f32', src), { role: 'input', roleName: 'y' });
  const where = [[...view.shape], [...view.stride], view.offset];
  const out =
    y === undefined
      ? b.call('aten.as_strided.default', [x, ...where], tensorType('f32', view.shape), {
          name: 'out',
        })
      : b.call('aten.as_strided_scatter.default', [x, y, ...where], tensorType('f32', self.shape), {
          name: 'out',
        });
  b.output({ value: out.name, role: 'output', index: 0 });
  return b.build();
}

function run(graph: Graph, inputs: readonly NDArray[]): number[] {
  const [out] = evaluateGraph(table, withoutStrides(graph), inputs).outputs;
  return out instanceof NDArray ? [...flat(out)] : [];
}

/**
 * Dense memory, and a view of it by cutting its dims, taking rows, moving and adding dims of one
 * row.
 */
const cases = fc
  .record({
    shape: fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 4 }),
    seed: fc.array(fc.nat(1000), { minLength: 40, maxLength: 40 }),
  })
  .map(({ shape, seed }) => {
    let next = 0;
    const draw = (n: number): number => seed[next++ % seed.length] % n;
    const shuffled = (n: number): number[] => {
      const left = Array.from({ length: n }, (_, i) => i);
      return left.map(() => 0).map(() => left.splice(draw(left.length), 1)[0]);
    };
    const self = dense(shape, shuffled(shape.length));
    const memory = product(shape);
    const divisors = Array.from({ length: memory }, (_, i) => i + 1).filter(
      (n) => memory % n === 0,
    );
    const first = divisors[draw(divisors.length)];
    const sizes = [first, memory / first];
    let offset = 0;
    const dims = sizes.map((n, d) => {
      const start = draw(n);
      const step = contiguous(sizes)[d];
      offset += start * step;
      return { n: 1 + draw(n - start), step };
    });
    dims.push({ n: 1, step: 1 });
    const order = shuffled(dims.length);
    return {
      self,
      view: { shape: order.map((d) => dims[d].n), stride: order.map((d) => dims[d].step), offset },
    };
  });

describe('as_strided', () => {
  test('any view of dense memory reads the elements that the strides name', () => {
    fc.assert(
      fc.property(cases, ({ self, view }) => {
        expect(run(program(self, view), [counted(self)])).toEqual(places(view));
      }),
      { numRuns: 400 },
    );
  });

  test('a scatter writes the elements that the strides name, and no other', () => {
    fc.assert(
      fc.property(cases, ({ self, view }) => {
        const src = { shape: view.shape, stride: contiguous(view.shape), offset: 0 };
        const memory = Array.from({ length: product(self.shape) }, (_, i) => i);
        places(view).forEach((p, i) => (memory[p] = 1000 + i));
        const got = run(program(self, view, view.shape), [counted(self), counted(src, 1000)]);
        expect(got).toEqual(places(self).map((p) => memory[p]));
      }),
      { numRuns: 400 },
    );
  });

  test('a dim of stride 0 is read as expand', () => {
    const self = dense([3, 2], [0, 1]);
    const view = { shape: [3, 4, 2], stride: [2, 0, 1], offset: 0 };
    expect(run(program(self, view), [counted(self)])).toEqual(places(view));
  });

  test('strides that no view has are refused with the call and a remedy', () => {
    const overlapping = { shape: [3, 2], stride: [1, 1], offset: 0 };
    expect(() => withoutStrides(program(dense([4], [0]), overlapping))).toThrow(
      /out: aten\.as_strided\.default has sizes \[3, 2\] and strides \[1, 1\], which no view has/,
    );
    const loose = { shape: [2, 2], stride: [4, 1], offset: 0 };
    expect(() => withoutStrides(program(loose, { shape: [4], stride: [1], offset: 0 }))).toThrow(
      /do not fill their memory/,
    );
    const twice = { shape: [2, 3], stride: [0, 1], offset: 0 };
    expect(() => withoutStrides(program(dense([3], [0]), twice, [2, 3]))).toThrow(
      /writes an element twice/,
    );
  });

  test('an imported text has views in the place of strides, under the old names', () => {
    const graph = importGraph(`class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[8, 320, 1, 1][320, 1, 1, 1]cpu"):
        as_strided: "f32[8, 1, 320][320, 320, 1]cpu" = torch.ops.aten.as_strided.default(x, [8, 1, 320], [320, 320, 1]);  x = None
        relu: "f32[8, 1, 320][320, 320, 1]cpu" = torch.ops.aten.relu.default(as_strided);  as_strided = None
        return (relu,)
`);
    const calls = graph.nodes.filter((node: Node) => node.kind === 'call');
    expect(calls.map(({ name, target }) => `${name} ${target}`).at(-2)).toBe(
      'as_strided aten.reshape.default',
    );
    expect(calls.map(({ target }) => target)).not.toContain('aten.as_strided.default');
  });
});
