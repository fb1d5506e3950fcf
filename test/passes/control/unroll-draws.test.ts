import { describe, expect, test } from 'vitest';

import type { Graph } from '../../../src/graph/types.ts';
import { importGraph } from '../../../src/import/import.ts';
import { fromList, type NDArray } from '../../../src/ndarray/array.ts';
import { plannable } from '../../../src/passes/plannable/plannable.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { infer, jaxText, table } from '../../import/support-jax.ts';

interface Recorded {
  readonly shape: readonly number[];
  readonly values: readonly number[];
}

/** Programs that JAX 0.10.2 lowered for a CPU, with the numbers that it drew there. */
const { programs } = JSON.parse(jaxText('operators.json.gz')) as {
  readonly programs: Readonly<
    Record<string, { stablehlo: string; args: readonly Recorded[]; results: readonly Recorded[] }>
  >;
};
const loops = (graph: Graph): number =>
  graph.nodes.filter(({ target }) => target === 'while_loop').length;

describe('the rounds of random bits', () => {
  test.each(['random-split', 'random-fold'])(
    '%s: they stand in a row, and draw the numbers of JAX',
    (name) => {
      const { stablehlo, args, results } = programs[name];
      const graph = importGraph(stablehlo, { infer });
      const written = plannable(graph, table);
      expect(loops(plannable(graph, table, 'scans'))).toBeGreaterThan(0);
      expect(loops(written)).toBe(0);
      const inputs = args.map(({ shape, values }) => fromList(shape, values, 'f32'));
      evaluateGraph(table, written, inputs).outputs.forEach((value, i) => {
        const { shape, values } = results[i];
        expect((value as NDArray).shape).toEqual(shape);
        (value as NDArray).toArray().forEach((v, k) => expect(v).toBeCloseTo(values[k], 5));
      });
    },
  );

  test('four words, the length of a row of rotations, begin with the three of a shorter draw', () => {
    const { stablehlo, args, results } = programs['random-fold'];
    const graph = importGraph(stablehlo.replaceAll('tensor<3x', 'tensor<4x'), { infer });
    const written = plannable(graph, table);
    expect(loops(plannable(graph, table, 'scans'))).toBeGreaterThan(0);
    expect(loops(written)).toBe(0);
    const input = fromList([4], [...args[0].values, 0], 'f32');
    const [found] = evaluateGraph(table, written, [input]).outputs as NDArray[];
    const drawn = found.toArray().slice(0, 3);
    drawn.forEach((v, k) => expect(v).toBeCloseTo(results[0].values[k], 5));
  });
});
