import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  blockBytes,
  chunkSizes,
  liveIntervals,
  localShardBytes,
  memoryTimeline,
  peakOf,
} from '../../src/cost/memory-timeline.ts';

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
        const intervals = list.map(({ start, length, bytes }) => ({ start, end: start + length, bytes }));
        let most = 0;
        for (let step = 0; step <= 31; step++) {
          const sum = intervals.filter((i) => i.start <= step && step <= i.end).reduce((a, i) => a + i.bytes, 0);
          most = Math.max(most, sum);
          const span = memoryTimeline(intervals).find((s) => s.start <= step && step <= s.end);
          expect(span?.bytes ?? 0).toBe(sum);
        }
        expect(peakOf(intervals).peakBytes).toBe(most);
      }),
    );
  });

  test('liveness of a schedule: views share storage, unread values live one step, parameters stay', () => {
    const intervals = liveIntervals(
      [
        { name: 'w', bytes: 8, producer: -1, readers: [0], persistent: true, kind: 'parameter' },
        { name: 'y', bytes: 4, producer: 0, readers: [1] },
        { name: 'view', bytes: 4, producer: 1, readers: [3], storageOf: 'y' },
        { name: 'unread', bytes: 2, producer: 2, readers: [] },
      ],
      5,
    );
    expect(intervals).toEqual([
      { start: 0, end: 4, bytes: 8, name: 'w', kind: 'parameter' },
      { start: 0, end: 3, bytes: 4, name: 'y' },
      { start: 2, end: 2, bytes: 2, name: 'unread' },
    ]);
    expect(peakOf(intervals).peakBytes).toBe(14);
    expect(() => liveIntervals([{ name: 'v', bytes: 1, producer: 0, readers: [], storageOf: 'u' }], 1)).toThrow(
      /no value of the schedule/,
    );
    const ring = [
      { name: 'a', bytes: 1, producer: 0, readers: [], storageOf: 'b' },
      { name: 'b', bytes: 1, producer: 0, readers: [], storageOf: 'a' },
    ];
    expect(() => liveIntervals(ring, 1)).toThrow(/ring/);
    expect(() => memoryTimeline([{ start: 3, end: 2, bytes: 1 }])).toThrow(/lives from step 3 to 2/);
  });

  test('CM-45 uneven shards count the largest', () => {
    expect(chunkSizes(10, 4)).toEqual([3, 3, 3, 1]);
    expect(chunkSizes(9, 4)).toEqual([3, 3, 3, 0]);
    expect(chunkSizes(5, 4)).toEqual([2, 2, 1, 0]);
    expect(chunkSizes(3, 4)).toEqual([1, 1, 1, 0]);
    expect(chunkSizes(17, 8)).toEqual([3, 3, 3, 3, 3, 2, 0, 0]);
    expect(localShardBytes([10, 3], [4, 1], 4)).toBe(36);
    expect(chunkSizes(chunkSizes(10, 2)[0], 2)[0] * 3 * 4).toBe(36);
    expect([blockBytes(0), blockBytes(1), blockBytes(512), blockBytes(513)]).toEqual([0, 512, 512, 1024]);
  });
});
