import { readFileSync } from 'node:fs';

import { describe, expect, test } from 'vitest';

import { computeCost } from '../../../src/cost/compute.ts';
import { parseCalibration } from '../../../src/cost/hardware/calibration.ts';
import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import type { DType } from '../../../src/graph/types.ts';
import { importGraph } from '../../../src/import/import.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { bindCall, withOutputs } from '../../../src/ops/record/context.ts';
import { turnedOperands } from '../../../src/passes/turned.ts';

const TABLE = builtinOperators();
const mm = TABLE.get('aten.mm.default')!;
const TABLE_OF_H100 = new URL('../../../data/calibration/h100-sxm-80gb.json', import.meta.url);

/** Seconds of a product of [m, k] and [k, n]. */
function seconds(
  [m, k, n]: readonly [number, number, number],
  turned?: readonly boolean[],
  dtype: DType = 'bf16',
  cluster = 'dgx-h100',
): number {
  const metas = { a: { dtype, shape: [m, k] }, b: { dtype, shape: [k, n] } };
  const call = bindCall(
    mm,
    [
      { kind: 'value', name: 'a' },
      { kind: 'value', name: 'b' },
    ],
    {},
    (name) => metas[name as 'a' | 'b'],
  );
  return computeCost(mm, withOutputs(call, mm.infer(call)), loadCluster(cluster), { turned })
    .seconds;
}

describe('rows of an odd number of 16-bit elements', () => {
  test('take what an H100 took for them, within a third', () => {
    const products = parseCalibration(readFileSync(TABLE_OF_H100, 'utf8')).kernels.filter(
      ({ op, args }) => op === 'aten.mm.default' && JSON.stringify(args).includes('50257'),
    );
    expect(products.length).toBe(6);
    for (const { args, seconds: measured } of products) {
      const [a, b] = args.map(
        (arg) => arg as { readonly shape: readonly number[]; readonly turned: boolean },
      );
      const ratio = seconds([a.shape[0], a.shape[1], b.shape[1]], [a.turned, b.turned]) / measured;
      expect(ratio).toBeGreaterThan(0.74);
      expect(ratio).toBeLessThan(1.34);
    }
  });

  test('are seen where they lie in memory', () => {
    const aligned = seconds([8192, 8192, 8192]);
    for (const [sizes, turned, isSlow] of [
      [[8192, 8192, 8193], undefined, true],
      [[8192, 8193, 8192], undefined, false],
      [[8192, 8193, 8192], [false, false], true],
      [[8192, 8193, 8192], [true, false], false],
      [[8192, 8193, 8192], [false, true], true],
      [[8193, 8192, 8192], [false, true], false],
      [[8193, 8192, 8192], [true, false], true],
    ] as const)
      expect(seconds(sizes, turned) > 2 * aligned, `${sizes.join()} ${String(turned)}`).toBe(
        isSlow,
      );
    expect(seconds([8192, 8192, 8193], undefined, 'f32')).toBeLessThan(
      2 * seconds([8192, 8192, 8192], undefined, 'f32'),
    );
    // Of these devices the multiprocessors are not known.
    expect(seconds([8192, 8192, 8193], undefined, 'bf16', 'mi300x-platform')).toBeLessThan(
      2 * seconds([8192, 8192, 8192], undefined, 'bf16', 'mi300x-platform'),
    );
  });

  test('operands are turned by views that exchange their last dims, an odd number of times', () => {
    const graph = importGraph(`swgraph 1
graph @g {
  in %x: bf16[6, 5] input "x"
  in %y: bf16[3, 6, 5] input "y"
  %t = aten.t.default(%x): bf16[5, 6]
  %back = aten.t.default(%t): bf16[6, 5]
  %permuted = aten.permute.default(%y, [0, 2, 1]): bf16[3, 5, 6]
  %moved = aten.transpose.int(%y, 0, 1): bf16[6, 3, 5]
  %moved_back = aten.transpose.int(%moved, 0, 1): bf16[3, 6, 5]
  %once = aten.mm.default(%t, %x): bf16[5, 5]
  %twice = aten.mm.default(%t, %back): bf16[5, 5]
  %stack = aten.bmm.default(%permuted, %moved_back): bf16[3, 5, 5]
  out %once output 0
  out %twice output 1
  out %stack output 2
}
`);
    expect(Object.fromEntries(turnedOperands(graph, TABLE, 2))).toEqual({
      once: [true, false],
      twice: [true, false],
      stack: [true, false],
    });
    // 64 pieces of 128 are even.
    const even = importGraph(
      'swgraph 1\ngraph @g {\n  in %x: bf16[128, 128] input "x"\n  %mm = aten.mm.default(%x, %x): bf16[128, 128]\n  out %mm output 0\n}\n',
    );
    expect(turnedOperands(even, TABLE, 64).size).toBe(0);
  });
});
