import { expect, test } from 'vitest';

import { parseGraph } from '../../../src/graph/text/parse.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { graphUnits } from '../../../src/step/read/graph-units.ts';
import { keptInMemory } from '../../../src/step/read/saved/made-again.ts';

const table = builtinOperators();

/**
 * The names that stay of those that the backward pass reads, by hand: one kernel makes any
 * element-wise call again.
 *
 * @param read names, and whether a kernel of its own reads each
 */
function kept(lines: string, read: Readonly<Record<string, boolean>>): string[] {
  const graph = parseGraph(`swgraph 1\ngraph @g {\n${lines}\n}\n`);
  const names = graph.nodes.map((n) => n.name);
  const units = graphUnits(
    graph,
    graph.nodes.map(() => 'forward'),
    1,
    table,
  );
  const fused = {
    isAgain: (i: number) => table.get(graph.nodes[i].target)?.cls === 'pointwise',
    joins: () => true,
  };
  const bytesOf = (i: number): number => {
    const { type } = graph.nodes[i];
    return type.kind === 'tensor' ? type.shape.reduce<number>((n, d) => n * Number(d), 4) : 0;
  };
  const given = new Map(Object.entries(read).map(([name, own]) => [names.indexOf(name), own]));
  const found = keptInMemory(given, { graph, units, fused }, bytesOf, () => true);
  return [...found].map((i) => names[i]).sort();
}

test('what is computed from inputs of the program alone need not stay: they are there', () => {
  const lines = `  in %x: f32[8, 8] input "x"
  %a = aten.exp.default(%x): f32[8, 8] ; forward
  %b = aten.mul.Tensor(%a, %a): f32[8, 8] ; forward
  out %b output 0`;
  expect(kept(lines, { b: false })).toEqual([]);
  // A kernel of its own takes its operand from memory.
  expect(kept(lines, { b: true })).toEqual(['b']);
});

test('what is computed from a value that stays need not stay itself', () => {
  const lines = `  in %x: f32[8, 8] input "x"
  %a = aten.mm.default(%x, %x): f32[8, 8] ; forward
  %b = aten.relu.default(%a): f32[8, 8] ; forward
  out %b output 0`;
  expect(kept(lines, { a: true, b: false })).toEqual(['a']);
  // Without it, the operand would be kept for no fewer bytes.
  expect(kept(lines, { b: false })).toEqual(['b']);
});

test('weights and views of them are there', () => {
  const lines = `  in %w: f32[8, 8] parameter "w"
  in %x: f32[8, 8] input "x"
  %t = aten.t.default(%w): f32[8, 8] ; forward
  %b = aten.mul.Tensor(%x, %t): f32[8, 8] ; forward
  out %b output 0`;
  expect(kept(lines, { b: false })).toEqual([]);
});

test('smaller operands are kept instead, through as many calls as one kernel has', () => {
  const lines = (count: number): string => {
    const chain = Array.from(
      { length: count },
      (_, k) => `  %c${k + 1} = aten.add.Tensor(%c${k}, %c${k}): f32[8, 8] ; forward`,
    );
    return `  in %x: f32[8, 8] input "x"
  %s = aten.sum.dim_IntList(%x, [1], true): f32[8, 1] ; forward
  %c0 = aten.mul.Tensor(%s, %x): f32[8, 8] ; forward
${chain.join('\n')}
  out %c${count} output 0`;
  };
  // 32 bytes of sums instead of 256 of their product with the input.
  expect(kept(lines(0), { c0: false })).toEqual(['s']);
  expect(kept(lines(5), { c5: false })).toEqual(['s']);
  // One call more than is looked through.
  expect(kept(lines(7), { c7: false })).toEqual(['c7']);
});

test('operands that are more bytes than their result are not kept instead of it', () => {
  const lines = `  in %x: f32[8, 8] input "x"
  %p = aten.sum.dim_IntList(%x, [1], true): f32[8, 1] ; forward
  %q = aten.amax.default(%x, [1], true): f32[8, 1] ; forward
  %own = aten.add.Tensor(%p, %q): f32[8, 1] ; forward
  %r = aten.mul.Tensor(%own, %x): f32[8, 8] ; forward
  out %r output 0`;
  expect(kept(lines, { r: false })).toEqual(['own']);
});
