import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { memoryTimeline, mostLiveBytes, peakOf } from '../../../src/cost/memory/peak.ts';
import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { parseSharding } from '../../../src/mesh/sharding/parse.ts';
import { localShapeAt } from '../../../src/mesh/sharding/sharding.ts';
import { input, parameter } from '../../../src/trace/record/spec.ts';
import type { Tensor } from '../../../src/trace/tensor/tensor.ts';
import { trace } from '../../../src/trace/trace.ts';
import { planFor } from '../../plan/support.ts';

describe('memory over program time', () => {
  test('spans, peak, what is alive there', () => {
    const intervals = [
      { start: 0, end: 9, bytes: 100, kind: 'parameter', name: 'w' },
      { start: 1, end: 4, bytes: 10, kind: 'activation', name: 'a' },
      { start: 3, end: 6, bytes: 20, kind: 'activation', name: 'b' },
      { start: 4, end: 4, bytes: 5, name: 'scratch' },
    ] as const;
    expect(memoryTimeline(intervals)).toEqual([
      { start: 0, end: 0, bytes: 100 },
      { start: 1, end: 2, bytes: 110 },
      { start: 3, end: 3, bytes: 130 },
      { start: 4, end: 4, bytes: 135 },
      { start: 5, end: 6, bytes: 120 },
      { start: 7, end: 9, bytes: 100 },
    ]);
    const peak = peakOf(intervals);
    expect([peak.peakBytes, peak.step]).toEqual([135, 4]);
    expect(peak.byKind).toEqual({ parameter: 100, activation: 30, temporary: 5 });
    expect(peak.live.map((i) => i.name)).toEqual(['w', 'a', 'b', 'scratch']);
    expect(peakOf([])).toEqual({ peakBytes: 0, step: 0, live: [], byKind: {} });
  });

  test('the peak is the largest sum over steps, by brute force', () => {
    const interval = fc.record({ start: fc.nat(20), length: fc.nat(10), bytes: fc.nat(1000) });
    fc.assert(
      fc.property(fc.array(interval, { maxLength: 30 }), (list) => {
        const intervals = list.map(({ start, length, bytes }) => ({
          start,
          end: start + length,
          bytes,
        }));
        let most = 0;
        for (let step = 0; step <= 31; step++) {
          const sum = intervals
            .filter((i) => i.start <= step && step <= i.end)
            .reduce((a, i) => a + i.bytes, 0);
          most = Math.max(most, sum);
          const span = memoryTimeline(intervals).find((s) => s.start <= step && step <= s.end);
          expect(span?.bytes ?? 0).toBe(sum);
        }
        expect(peakOf(intervals).peakBytes).toBe(most);
        expect(mostLiveBytes(intervals, 31)).toBe(most);
      }),
    );
  });

  test('an interval that ends before it starts is refused', () => {
    expect(() => memoryTimeline([{ start: 3, end: 2, bytes: 1 }])).toThrow(
      /lives from step 3 to 2/,
    );
  });
});

describe('uneven shards count the largest', () => {
  const rowsOf = (rows: number, mesh: string, text: string): number[] => {
    const parsed = parseMesh(mesh);
    const sharding = parseSharding(text, parsed);
    return parsed.devices.map((_, rank) => localShapeAt(sharding, parsed, [rows, 3], rank)[0]);
  };
  test.each([
    [10, 4, [3, 3, 3, 1]],
    [9, 4, [3, 3, 3, 0]],
    [5, 4, [2, 2, 1, 0]],
    [3, 4, [1, 1, 1, 0]],
    [17, 8, [3, 3, 3, 3, 3, 2, 0, 0]],
  ])('%i rows on %i devices', (rows, devices, held) => {
    expect(rowsOf(rows, `d=${devices}`, 'S(0)')).toEqual(held);
  });

  test('10 rows by two mesh dims, left to right: 5 and 5, then 3 and 2 of each', () => {
    expect(rowsOf(10, 'a=2,b=2', 'S(0)S(0)')).toEqual([3, 2, 3, 2]);
  });

  test.each([
    ['d=4', 'S(0)', 36],
    ['a=2,b=2', 'S(0)S(0)', 36],
    ['a=2,b=2', 'S(0)R', 60],
    ['d=3', 'S(1)', 40],
    ['d=4', 'R', 120],
  ])('a parameter f32[10, 3] on %s as %s takes %i bytes in a plan', async (mesh, spec, bytes) => {
    const graph = trace((t: Record<string, Tensor>) => t.x.linear(t.w), {
      x: input([8, 3]),
      w: parameter([10, 3]),
    });
    const plan = await planFor(graph, mesh, { optimizer: 'none', pins: [{ node: 'w', spec }] });
    expect(plan.memory.parameterBytes).toBe(bytes);
  });
});
