import { describe, expect, test } from 'vitest';

import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { ShardingSpace } from '../../../src/mesh/sharding/space.ts';
import { viewOps } from '../../../src/ops/aten/movement/views.ts';
import { expandRules } from '../../../src/ops/expansion/expand.ts';
import { ruleText } from '../../../src/ops/record/rule.ts';
import { OperatorTable } from '../../../src/ops/record/table.ts';
import {
  dimSpecText,
  resolveShape,
  viewCuts,
  viewGroups,
  viewRules,
} from '../../../src/ops/rules/viewgroups.ts';
import { makeCall } from '../support/calls.ts';
import { draw } from '../support/draw.ts';
import { shapeKernels } from '../support/kernels.ts';
import { judge } from '../support/ranks.ts';

const table = new OperatorTable(viewOps);
const viewRecord = table.get('aten.view.default');

function viewCall(from: readonly number[], to: readonly number[]) {
  if (viewRecord === undefined) throw new Error('no view record');
  return makeCall(viewRecord, [{ t: from }, [...to]]);
}

/**
 * What shards of input dims over the mesh become, by the expansion of all rules; `-` when the view
 * offers nothing.
 */
function follows(
  from: readonly number[],
  to: readonly number[],
  dims: readonly number[],
  sizes: readonly number[],
) {
  const { ctx, record } = viewCall(from, to);
  const space = new ShardingSpace(parseMesh(sizes.map((n, m) => `m${m}=${n}`).join()));
  const set = expandRules(space, record.shard(ctx), ctx.inputs, ctx.outputs, { uneven: 'allow' });
  const given = space.parse(dims.map((dim) => `S(${dim})`).join(''));
  const found = Array.from({ length: set.count }, (_, s) => set.specs.subarray(2 * s, 2 * s + 2));
  return (
    found
      .filter(([input]) => input === given)
      .map(([, output]) => space.text(output))
      .join(' or ') || '-'
  );
}

describe('viewGroups', () => {
  test.each([
    [[2, 3], [3, 2], 'Split(Flatten(0,1),(3,2),0), Split(Flatten(0,1),(3,2),1)'],
    [[3, 4, 5], [12, 5], 'Flatten(0,1), 2'],
    [[2, 3, 4], [2, -1, 4], '0, 1, 2'],
    [[3, 4, 8, 3], [12, 4, 2, 3], 'Flatten(0,1), Split(2,(4,2),0), Split(2,(4,2),1), 3'],
    [
      [3, 24],
      [1, 3, 2, 4, 1, 3, 1],
      'Singleton, 0, Split(1,(2,4,3),0), Split(1,(2,4,3),1), Singleton, Split(1,(2,4,3),2), Singleton',
    ],
    [[1, 1, 3, 2, 1, 1], [6, 1, 1, 1], 'Flatten(2,3), 4, 5, Singleton'],
    [
      [1, 1, 12, 1, 1, 1, 2, 5, 1],
      [3, 4, 1, 10],
      'Split(2,(3,4),0), Split(2,(3,4),1), 3, Flatten(6,7)',
    ],
    [[], [1, 1], 'Singleton, Singleton'],
    [[1, 1], [], ''],
    [[4, 1, 3], [12], 'Flatten(0,1,2)'],
    [[4, 0, 3], [4, 3, 0], '0, Singleton, Singleton'],
  ])('a view of %j as %j groups its dims', (from, to, expected) => {
    expect(viewGroups(from, to).map(dimSpecText).join(', ')).toBe(expected);
  });

  test.each([
    [[2, 3], [4], /view of \[2, 3\] as \[4\]: 4 elements, expected 6/],
    [[2, 3], [-1, -1], /only one size may be -1/],
    [[2, 3], [-1, 4], /6 elements are not a multiple of 4/],
    [[2, 3], [-2, -3], /a size is negative/],
  ])('%j cannot be seen as %j', (from, to, message) => {
    expect(() => resolveShape(from, to)).toThrow(message);
  });
});

describe('shards through a view', () => {
  // Where the specification answers with an error or R, nothing is offered: the input is
  // replicated.
  test.each([
    [[8, 4], [32], [0], [4], 'S(0)'],
    [[8, 4], [32], [1], [4], '_S(0, 8)'],
    [[6, 4, 3], [24, 3], [1], [2], '_S(0, 6)'],
    [[2, 8, 16], [2, 8, 4, 4], [2], [4], 'S(2)'],
    [[2, 8, 16], [2, 8, 4, 4], [2], [8], '-'],
    [[2, 8, 16], [2, 8, 8, 2], [2], [8], 'S(2)'],
    [[2, 8, 4, 4], [2, 8, 16], [2], [4], 'S(2)'],
    [[2, 8, 4, 4], [2, 8, 16], [3], [4], '_S(2, 4)'],
    [[12, 8], [16, 6], [1], [4], '-'],
    [[12, 8], [16, 6], [0], [4], 'S(0)'],
    [[3, 4], [12], [0], [2], '-'],
    [[3, 4], [12], [1], [2], '_S(0, 3)'],
    [[6, 6, 6, 3], [216, 3], [1, 2], [2, 2], '_S(0, 6)_S(0, 18)'],
    [[6, 4, 6, 3], [144, 3], [1, 2], [2, 2], '_S(0, 6)_S(0, 12)'],
    [[5, 2, 2, 2], [5, 8], [0], [4], 'S(0)'],
    [[4, 16, 64], [4, 16, 8, 8], [0, 2], [2, 2], 'S(0)S(2)'],
    [[6, 8, 16], [48, 16], [0], [2], 'S(0)'],
    [[6, 8, 16], [48, 16], [1], [4], '_S(0, 6)'],
    [[4, 4], [2, 8], [0], [4], '-'],
    [[4, 6], [24], [0, 0], [2, 2], 'S(0)S(0)'],
    [[6, 4], [24], [0, 0], [2, 2], '-'],
    [[2, 7, 768], [2, 7, 12, 64], [2, 2], [2, 3], 'S(2)S(2)'],
  ])('a view of %j as %j, dims %j cut on mesh %j, gives %s', (from, to, dims, sizes, expected) => {
    expect(follows(from, to, dims, sizes)).toBe(expected);
  });

  test('evenness over all mesh dims is needed: without it the validator finds the view wrong', () => {
    const call = viewCall([6, 4], [24]);
    const [cut] = call.record.shard(call.ctx);
    const inputs = call.tensors.map((arg) => draw(arg, 1));
    const run = (sizes: number[]) =>
      judge(
        call.ctx,
        inputs,
        shapeKernels['aten.view.default'],
        sizes.map(() => cut),
        sizes,
      );
    expect(run([2])).toBeUndefined();
    expect(run([2, 2])).toMatch(/\[2,4\] cannot be seen as \[6\]/);
  });

  test.each([
    [[4, 8], [32]],
    [
      [4, 4, 3],
      [16, 3],
    ],
    [
      [2, 4, 4, 2],
      [2, 16, 2],
    ],
    [[4, 4, 4], [64]],
    [[32], [4, 8]],
    [
      [64, 3],
      [4, 4, 4, 3],
    ],
    [
      [4, 8, 12],
      [32, 3, 4],
    ],
  ])('%j to %j: every combination on two mesh dims gives the unsharded result', (from, to) => {
    const call = viewCall(from, to);
    const inputs = call.tensors.map((arg) => draw(arg, 1));
    const space = new ShardingSpace(parseMesh('a=2,b=2'));
    const set = expandRules(space, call.record.shard(call.ctx), call.ctx.inputs, call.ctx.outputs, {
      uneven: 'allow',
      patterns: 'any',
    });
    let strided = 0;
    for (let s = 0; s < set.count; s++) {
      const rules = [0, 1].map((m) => set.rules[set.choice[2 * s + m]]);
      if (rules.some((r) => ruleText(r).includes('_S('))) strided++;
      expect(
        judge(call.ctx, inputs, shapeKernels['aten.view.default'], rules, [2, 2]),
      ).toBeUndefined();
    }
    expect(strided).toBeGreaterThanOrEqual(4);
  });

  test('every pending kind passes, whatever the shapes', () => {
    const texts = viewRules([6, 8, 16], [48, 16]).map(ruleText);
    for (const kind of ['sum', 'avg', 'max', 'min'])
      expect(texts).toContain(`P(${kind}) -> P(${kind})`);
  });

  test('all cuts of all small views agree with cutting the flat array', () => {
    // Independent of dim maps: a cut is right when each rank's elements, in order, are the same
    // before and after.
    const shapes: number[][] = [];
    const grow = (prefix: number[], left: number): void => {
      if (left === 1) shapes.push(prefix);
      for (let n = 2; n <= left; n++) if (left % n === 0) grow([...prefix, n], left / n);
    };
    grow([], 24);
    const held = (
      shape: readonly number[],
      dim: number,
      pieces: number,
      rank: number,
      chunks = 1,
    ): string => {
      const inner = shape.slice(dim + 1).reduce((a, b) => a * b, 1);
      const size = shape[dim] / chunks;
      const piece = Math.ceil(size / pieces);
      const out: number[] = [];
      for (let i = 0; i < 24; i++) {
        const row = Math.floor(i / inner) % shape[dim];
        if (Math.floor((row % size) / piece) === rank) out.push(i);
      }
      return out.join();
    };
    let checked = 0;
    let offered = 0;
    let strided = 0;
    for (const from of shapes)
      for (const to of shapes)
        for (const pieces of [2, 3, 4]) {
          const cuts = viewCuts(from, to);
          for (let input = 0; input < from.length; input++)
            for (let output = 0; output < to.length; output++) {
              const cut = cuts.find((c) => c.input === input && c.output === output);
              const merged = cut?.inside?.merged;
              const inner = (cut?.inside?.dims ?? []).reduce(
                (n, d) => n * (merged === 'output' ? from : to)[d],
                1,
              );
              const [before, after] = merged === 'input' ? [inner, 1] : [1, inner];
              // Uneven pieces of the last merged dim would be right as well; they are not offered.
              const whole =
                inner === 1 || (from[input] % pieces === 0 && to[output] % pieces === 0);
              const legal =
                whole &&
                from[input] >= pieces &&
                to[output] >= pieces &&
                Array.from({ length: pieces }, (_, r) => r).every(
                  (r) =>
                    held(from, input, pieces, r, before) === held(to, output, pieces, r, after),
                );
              const sizes = from[input] >= pieces && to[output] >= pieces;
              const even =
                from[input] % (pieces * before) === 0 && to[output] % (pieces * after) === 0;
              const ours = cut !== undefined && sizes && (!cut.even || even);
              checked++;
              if (ours) offered++;
              if (ours && inner > 1) strided++;
              expect([from, to, input, output, pieces, ours]).toEqual([
                from,
                to,
                input,
                output,
                pieces,
                legal,
              ]);
            }
        }
    expect(checked).toBeGreaterThan(5000);
    expect(offered).toBeGreaterThan(500);
    expect(strided).toBeGreaterThan(100);
  });
});
