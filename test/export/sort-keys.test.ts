import { describe, expect, it } from 'vitest';

import { exportFiles } from '../../src/export/export.ts';
import { importGraph } from '../../src/import/import.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import { TABLE } from '../plan/support.ts';
import { refusal } from '../support/thrown.ts';
import { randomSource } from './programs.ts';

/** The line of JAX for a sort of numbers with a payload by a comparator. */
function sortOf(comparator: string, dtype = 'i32'): string {
  const text = `module @m {
  func.func public @main(%x: tensor<4x8x${dtype}>, %i: tensor<4x8xi32>) -> (tensor<4x8x${dtype}>, tensor<4x8xi32>) {
    %s:2 = "stablehlo.sort"(%x, %i) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<${dtype}>, %b: tensor<${dtype}>, %c: tensor<i32>, %d: tensor<i32>):
${comparator.replace(/\bT\b/g, `tensor<${dtype}>`)}
      stablehlo.return %r : tensor<i1>
    }) : (tensor<4x8x${dtype}>, tensor<4x8xi32>) -> (tensor<4x8x${dtype}>, tensor<4x8xi32>)
    return %s#0, %s#1 : tensor<4x8x${dtype}>, tensor<4x8xi32>
  }
}`;
  const graph = importGraph(text, { infer: (node, typeOf) => inferCall(TABLE, node, typeOf) });
  const { files } = exportFiles(randomSource(graph, 'd=2', 0), 'jax');
  const lines = files.find(({ name }) => name === 'reference.py')?.text.split('\n') ?? [];
  return lines.find((line) => line.includes('lax.sort'))?.trim() ?? '';
}

describe('the comparator of a sort, as keys of JAX', () => {
  it.each([
    [
      'ascends',
      '%r = stablehlo.compare LT, %a, %b, SIGNED : (T, T) -> tensor<i1>',
      'i32',
      '= lax.sort((x, i), dimension=1, is_stable=True, num_keys=1)',
    ],
    [
      'ascends where the later is greater',
      '%r = stablehlo.compare GT, %b, %a, SIGNED : (T, T) -> tensor<i1>',
      'i32',
      '= lax.sort((x, i), dimension=1, is_stable=True, num_keys=1)',
    ],
    [
      'descends',
      '%r = stablehlo.compare GT, %a, %b, SIGNED : (T, T) -> tensor<i1>',
      'i32',
      '= lax.sort((~x, x, i), dimension=1, is_stable=True, num_keys=1)[1:]',
    ],
    [
      'descends over floats, NaN first',
      '%r = stablehlo.compare GT, %a, %b, FLOAT : (T, T) -> tensor<i1>',
      'f32',
      '= lax.sort((x == x, -x, x, i), dimension=1, is_stable=True, num_keys=2)[2:]',
    ],
    [
      'has -0 before 0 by the total order',
      '%r = stablehlo.compare LT, %a, %b, TOTALORDER : (T, T) -> tensor<i1>',
      'f32',
      '= lax.sort((x, ~jnp.signbit(x), x, i), dimension=1, is_stable=True, num_keys=2)[2:]',
    ],
    [
      'reads the payload alone',
      '%r = stablehlo.compare LT, %c, %d, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>',
      'f32',
      '= lax.sort((i, x, i), dimension=1, is_stable=True, num_keys=1)[1:]',
    ],
  ])('%s', (_, comparator, dtype, wanted) => {
    expect(sortOf(comparator, dtype)).toContain(wanted);
  });

  it('is refused by name where it compares anything but the operands', () => {
    const doubled = `%e = stablehlo.add %a, %a : T
      %r = stablehlo.compare LT, %e, %b, SIGNED : (T, T) -> tensor<i1>`;
    const { code, headline } = refusal(() => sortOf(doubled));
    expect(code).toBe('E_EXPORT_LOSS');
    expect(headline).toContain('s sorts by a comparator that is not an order of keys');
  });
});
