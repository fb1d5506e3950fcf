import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { serialBytes, serialPeakBytes } from '../../src/simulate/timeline/headroom.ts';
import { play } from '../../src/simulate/timeline/play.ts';
import { planSchedule } from '../../src/simulate/timeline/from-plan.ts';
import { prefetched } from '../../src/simulate/timeline/prefetch.ts';
import { checkSchedule } from '../../src/simulate/timeline/schedule.ts';
import { serial, simulate } from '../../src/simulate/timeline/simulate.ts';
import { load, planFor, TABLE } from '../plan/support.ts';
import { gatheredLayers, judge, programs } from './random-schedules.ts';

describe('a step within a limit on memory', () => {
  it('random programs: bytes one after another are those of the serial step, and no limit from there on is exceeded', () => {
    let [bound, shorter] = [0, 0];
    fc.assert(
      fc.property(programs, fc.integer({ min: 0, max: 60 }), (schedule, more) => {
        const alone = serialPeakBytes(schedule);
        const given = schedule.buffers.reduce((sum, b) => (b.given ? sum + b.bytes : sum), 0);
        expect(play(serial(schedule)).memory.peakBytes).toBe(Math.max(alone, given));
        const free = play(schedule);
        const held = play(schedule, { memoryBytes: alone + more });
        judge(schedule, held);
        expect(held.memory.peakBytes).toBeLessThanOrEqual(Math.max(alone + more, given));
        expect(held.seconds).toBeLessThanOrEqual(held.serialSeconds);
        // What fits without waiting does not wait.
        const enough = play(schedule, { memoryBytes: schedule.buffers.reduce((sum, b) => sum + b.bytes, 0) });
        expect(enough.spans).toEqual(free.spans);
        expect(enough.delayedTasks).toBe(0);
        if (held.delayedTasks > 0) bound++;
        if (held.delayedTasks > 0 && held.seconds > free.seconds) shorter++;
        if (free.memory.peakBytes > alone + more) expect(held.delayedTasks).toBeGreaterThan(0);
      }),
      { numRuns: 300 },
    );
    expect(bound).toBeGreaterThan(20);
    expect(shorter).toBeGreaterThan(5);
  });

  it('random programs: gathers are moved forward only as far as one after another allows', () => {
    fc.assert(
      fc.property(programs, fc.integer({ min: 1, max: 5 }), fc.integer({ min: 0, max: 60 }), (schedule, distance, more) => {
        const memoryBytes = serialPeakBytes(schedule) + more;
        const { schedule: ahead, heldBack } = prefetched(schedule, { distance, memoryBytes });
        checkSchedule(ahead);
        expect(serialPeakBytes(ahead)).toBeLessThanOrEqual(memoryBytes);
        const timeline = play(ahead, { memoryBytes });
        judge(ahead, timeline);
        expect(timeline.memory.peakBytes).toBeLessThanOrEqual(memoryBytes);
        const free = prefetched(schedule, { distance });
        if (heldBack === 0) expect(ahead).toEqual(free.schedule);
      }),
      { numRuns: 300 },
    ); // prettier-ignore
  });

  it('gathered layers: as many weights at once as fit, and the seconds that this takes', () => {
    // Compute takes 10 s, a gather 8: one gather beside each layer is enough, none beside any takes 18 a layer.
    const layers = gatheredLayers(5, 8, 10);
    expect(Array.from(serialBytes(layers))).toEqual(new Array(10).fill(1));
    const held = [1, 2, 3].map((memoryBytes) => play(layers, { memoryBytes }));
    expect(held.map((t) => t.memory.peakBytes)).toEqual([1, 2, 3]);
    expect(held.map((t) => t.seconds)).toEqual([90, 58, 58]);
    expect(held.map((t) => t.delayedTasks)).toEqual([4, 3, 0]);
  });

  it('a sharded data-parallel plan at its own peak: fewer gathers ahead, a little longer, and the note says so', async () => {
    const graph = load('torch/llama-tiny/joint.expanded');
    const pins = graph.nodes
      .filter((n) => n.meta.role === 'parameter' && n.type.kind === 'tensor' && n.type.shape.length > 1)
      .map((n) => ({ node: n.name, spec: 'S(0)' }));
    const plan = await planFor(graph, 'd=4', { pins });
    const alone = serialPeakBytes(planSchedule(graph, plan, TABLE));
    expect(alone).toBe(plan.memory.timeline?.peakBytes);
    const free = simulate(graph, plan, TABLE, { memoryBytes: 'none' });
    expect(free.bound).toBeUndefined();
    expect(free.timeline.memory.peakBytes).toBeGreaterThan(alone);
    const held = simulate(graph, plan, TABLE, { memoryBytes: alone });
    expect(held.timeline.memory.peakBytes).toBeLessThanOrEqual(alone);
    expect(held.timeline.seconds).toBeGreaterThanOrEqual(free.timeline.seconds);
    expect(held.bound).toMatchObject({ memoryBytes: alone });
    expect(held.bound!.unboundedPeakBytes).toBeGreaterThan(alone);
    expect(held.bound!.delayedTasks).toBeGreaterThan(0);
    expect(held.notes.join(' ')).toMatch(/later than without a limit/);
    // The budget of the plan is the device's, far above: nothing waits.
    expect(simulate(graph, plan, TABLE).bound).toMatchObject({ delayedTasks: 0, delayedSeconds: 0 });
    const less = simulate(graph, plan, TABLE, { memoryBytes: alone - 1 });
    expect(less.bound).toBeUndefined();
    expect(less.notes.join(' ')).toMatch(/nothing waits for memory/);
    expect(less.timeline.seconds).toBe(simulate(graph, plan, TABLE, { memoryBytes: 'none' }).timeline.seconds);
  });
});
