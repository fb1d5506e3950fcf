import { readFileSync } from 'node:fs';

import { describe, expect, test } from 'vitest';

import type { Graph } from '../../../src/graph/types.ts';
import { importGraph } from '../../../src/import/import.ts';
import { compiledTraffic, fusedGroups } from '../../../src/passes/fusion/fusion.ts';
import { XLA_NOTE } from '../../../src/plan/prepare/call-facts.ts';
import { planFor, TABLE } from '../../plan/support.ts';

/** A program of these lines in StableHLO. */
function program(inputs: string, returned: string, ...lines: readonly string[]): Graph {
  const [name, type] = returned.split(' : ');
  return importGraph(
    `module @m {\n  func.func public @main(${inputs}) -> ${type} {\n` +
      `${lines.map((line) => `    ${line}\n`).join('')}    return ${name} : ${type}\n  }\n}\n`,
  );
}

/** Kernels of loops, as the calls of each with the bytes that it moves. */
const kernels = (graph: Graph): string[] =>
  fusedGroups(graph, TABLE).map(({ nodes, bytes }) => `${nodes.join(' ')}: ${bytes}`);

const ROWS = 'tensor<64x128xf32>';

describe('kernels of XLA', () => {
  test('constants are part of the kernels that read them, of whatever shape', () => {
    const graph = program(
      `%x: ${ROWS}`,
      `%2 : ${ROWS}`,
      '%c = stablehlo.constant dense<2.0> : tensor<f32>',
      `%0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> ${ROWS}`,
      `%1 = stablehlo.multiply %x, %0 : ${ROWS}`,
      `%i = stablehlo.iota dim = 0 : ${ROWS}`,
      `%2 = stablehlo.add %1, %i : ${ROWS}`,
    );
    expect(kernels(graph).map((text) => text.split(': ')[1])).toEqual([`${2 * 64 * 128 * 4}`]);
  });

  test('a softmax is one kernel: a reduction of rows with what is before and behind it', () => {
    const rows = 'tensor<64xf32>';
    const reduced = (name: string, of: string, init: string, kind: string): string =>
      `${name} = stablehlo.reduce(${of} init: ${init}) applies stablehlo.${kind} across ` +
      `dimensions = [1] : (${ROWS}, tensor<f32>) -> ${rows}`;
    const wide = (name: string, of: string): string =>
      `${name} = stablehlo.broadcast_in_dim ${of}, dims = [0] : (${rows}) -> ${ROWS}`;
    const graph = program(
      `%x: ${ROWS}`,
      `%6 : ${ROWS}`,
      '%low = stablehlo.constant dense<0xFF800000> : tensor<f32>',
      '%zero = stablehlo.constant dense<0.0> : tensor<f32>',
      reduced('%0', '%x', '%low', 'maximum'),
      wide('%1', '%0'),
      `%2 = stablehlo.subtract %x, %1 : ${ROWS}`,
      `%3 = stablehlo.exponential %2 : ${ROWS}`,
      reduced('%4', '%3', '%zero', 'add'),
      wide('%5', '%4'),
      `%6 = stablehlo.divide %3, %5 : ${ROWS}`,
    );
    expect(kernels(graph).map((text) => text.split(': ')[1])).toEqual([`${2 * 64 * 128 * 4}`]);
  });

  // `HandleReduce` of `algebraic_simplifier.cc`: as many elements as before are a reshape.
  test('a reduction over dims of size 1 is no kernel of its own', () => {
    const column = 'tensor<1xf32>';
    const graph = program(
      `%x: ${column}, %y: ${column}, %z: tensor<64xf32>`,
      '%3 : tensor<64xf32>',
      '%zero = stablehlo.constant dense<0.0> : tensor<f32>',
      `%0 = stablehlo.multiply %x, %y : ${column}`,
      '%1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0] : ' +
        `(${column}, tensor<f32>) -> tensor<f32>`,
      '%2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<64xf32>',
      '%3 = stablehlo.add %2, %z : tensor<64xf32>',
    );
    expect(kernels(graph).map((text) => text.split(': ')[1])).toHaveLength(1);
  });

  test('a value that two products read is written once; each reads it', () => {
    const graph = program(
      `%x: ${ROWS}, %w: tensor<128x128xf32>`,
      `%3 : ${ROWS}`,
      `%0 = stablehlo.exponential %x : ${ROWS}`,
      `%1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : ` +
        `(${ROWS}, tensor<128x128xf32>) -> ${ROWS}`,
      `%2 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [1] : ` +
        `(${ROWS}, tensor<128x128xf32>) -> ${ROWS}`,
      `%3 = stablehlo.add %1, %2 : ${ROWS}`,
    );
    expect(kernels(graph)).toEqual([`_0: ${2 * 64 * 128 * 4}`, `_3: ${3 * 64 * 128 * 4}`]);
  });

  // `priority_fusion.cc`: each reader makes it of its sources where no more bytes move than if the
  // sources are read once, it is written once, and each reader reads it.
  test.each([
    [3, 2, 'made again'],
    [4, 2, 'written'],
    [2, 3, 'made again'],
    [3, 3, 'written'],
  ])('a sum of %i tensors that %i kernels read is %s', (tensors, readers, how) => {
    const cube = 'tensor<8x8x16xf32>';
    const sums = [
      ['[0]', 'tensor<8x16xf32>', 8 * 16],
      ['[0, 1]', 'tensor<16xf32>', 16],
      ['[0, 1, 2]', 'tensor<f32>', 1],
    ] as const;
    const own = sums.slice(0, readers);
    const graph = importGraph(
      [
        'module @m {',
        `  func.func public @main(${Array.from({ length: tensors }, (_, k) => `%x${k}: ${cube}`).join(', ')}) -> (${own.map(([, type]) => type).join(', ')}) {`,
        '    %zero = stablehlo.constant dense<0.0> : tensor<f32>',
        `    %y1 = stablehlo.add %x0, %x1 : ${cube}`,
        ...Array.from(
          { length: tensors - 2 },
          (_, k) => `    %y${k + 2} = stablehlo.add %y${k + 1}, %x${k + 2} : ${cube}`,
        ),
        ...own.map(
          ([dims, type], k) =>
            `    %s${k} = stablehlo.reduce(%y${tensors - 1} init: %zero) applies stablehlo.add across dimensions = ${dims} : (${cube}, tensor<f32>) -> ${type}`,
        ),
        `    return ${own.map((_, k) => `%s${k}`).join(', ')} : ${own.map(([, type]) => type).join(', ')}`,
        '  }',
        '}',
      ].join('\n'),
    );
    const bytes = 8 * 8 * 16 * 4;
    const read = how === 'written' ? bytes : tensors * bytes;
    expect(kernels(graph).map((text) => Number(text.split(': ')[1]))).toEqual([
      ...(how === 'written' ? [(tensors + 1) * bytes] : []),
      ...own.map(([, , count]) => read + count * 4),
    ]);
  });

  // `hlo_cse.cc` has equal constants once; a scatter needs what it writes over in memory.
  test('equal constants that scatters write over are written once', () => {
    const rows = 'tensor<64xf32>';
    const scatter = (name: string, over: string): string =>
      `${name} = "stablehlo.scatter"(${over}, %i, %u) <{scatter_dimension_numbers = ` +
      '#stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], ' +
      'index_vector_dim = 1>}> ({\n    ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n' +
      '      stablehlo.return %b : tensor<f32>\n    }) : ' +
      `(${rows}, tensor<4x1xi32>, tensor<4xf32>) -> ${rows}`;
    const wide = (name: string, of: string): string =>
      `${name} = stablehlo.broadcast_in_dim ${of}, dims = [] : (tensor<f32>) -> ${rows}`;
    const graph = program(
      '%i: tensor<4x1xi32>, %u: tensor<4xf32>',
      `%4 : ${rows}`,
      '%c = stablehlo.constant dense<0.0> : tensor<f32>',
      '%d = stablehlo.constant dense<0.0> : tensor<f32>',
      wide('%0', '%c'),
      wide('%1', '%d'),
      scatter('%2', '%0'),
      scatter('%3', '%1'),
      `%4 = stablehlo.add %2, %3 : ${rows}`,
    );
    const traffic = compiledTraffic(graph, TABLE);
    expect(['c', 'd'].map((name) => traffic.get(name)?.kernels)).toEqual([1, 0]);
  });

  test('a kernel does not read, behind a barrier, what waits for it', () => {
    const square = 'tensor<64x64xf32>';
    const product = (name: string, a: string, b: string): string =>
      `${name} = stablehlo.dot_general ${a}, ${b}, contracting_dims = [1] x [0] : ` +
      `(${square}, ${square}) -> ${square}`;
    const graph = program(
      `%x: ${square}, %w: ${square}`,
      `%4 : ${square}`,
      `%0 = stablehlo.exponential %x : ${square}`,
      product('%1', '%0', '%w'),
      `%2:2 = stablehlo.optimization_barrier %x, %1 : ${square}, ${square}`,
      product('%3', '%2#1', '%w'),
      `%4 = stablehlo.multiply %3, %0 : ${square}`,
    );
    const bytes = 64 * 64 * 4;
    expect(kernels(graph)).toEqual([`_0: ${2 * bytes}`, `_4: ${3 * bytes}`]);
  });

  test('rows are updated in place', () => {
    const graph = program(
      `%x: ${ROWS}, %u: tensor<1x128xf32>, %i: tensor<i32>`,
      `%0 : ${ROWS}`,
      '%c = stablehlo.constant dense<0> : tensor<i32>',
      `%0 = stablehlo.dynamic_update_slice %x, %u, %i, %c : (${ROWS}, tensor<1x128xf32>, ` +
        `tensor<i32>, tensor<i32>) -> ${ROWS}`,
    );
    expect(compiledTraffic(graph, TABLE).get('_0')).toEqual({
      inputs: [0, 1, 1, 1],
      outputs: [1 / 64],
      kernels: 1,
    });
  });
});

describe('one step has one price, as StableHLO and as jaxpr', () => {
  const read = (name: string, file: string): Graph =>
    importGraph(readFileSync(new URL(`../../fixtures/jax/${name}/${file}.gz`, import.meta.url)));
  // lm32-scan-8b has sizes at which products and memory decide, the others kernels.
  test.each(['ctl-scan-rnn', 'ctl-scan-rnn-grad', 'ctl-vmap-remat', 'lm2-scan', 'lm32-scan-8b'])(
    '%s',
    async (name) => {
      const [stablehlo, jaxpr] = await Promise.all(
        ['stablehlo.mlir', 'jaxpr.txt'].map((file) =>
          planFor(read(name, file), 'd=1', { activations: 'off', memoryBytes: 2 ** 50 }),
        ),
      );
      expect(stablehlo.assumptions).toContain(XLA_NOTE);
      const ratio = stablehlo.objective.seconds / jaxpr.objective.seconds;
      expect(Math.abs(ratio - 1)).toBeLessThan(0.02);
    },
  );
});
