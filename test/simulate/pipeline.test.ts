import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { keptByChunk, keptMicrobatches } from '../../src/simulate/pipeline/closed-forms.ts';
import {
  type PipelineRun,
  playPipeline,
  type StageSeconds,
} from '../../src/simulate/pipeline/play.ts';
import {
  parsePipelineSchedule,
  passOrder,
  PIPELINE_SCHEDULES,
  type PipelineSchedule,
  splitsBackward,
} from '../../src/simulate/pipeline/schedules.ts';
import { pipelineTrace } from '../../src/simulate/timeline/trace.ts';
import { interleavingFactor } from '../support/activation-memory.ts';
import { bubbleSeconds, pipelineSeconds } from '../support/pipeline-closed-forms.ts';

const THIRD: StageSeconds = { forward: 1, backwardInput: 1, backwardWeight: 1 };
/** One chunk of v: the same work in v parts. */
const part = (stage: StageSeconds, v: number): StageSeconds => ({
  forward: stage.forward / v,
  backwardInput: stage.backwardInput / v,
  backwardWeight: stage.backwardWeight / v,
});
const run = (schedule: PipelineSchedule, p: number, m: number, stage = THIRD, v = 1): PipelineRun =>
  playPipeline(schedule, { devices: p, microbatches: m, chunks: v }, { stages: part(stage, v) });
const kept = (r: PipelineRun): number[] => r.devices.map((d) => d.kept);
/** A stage of one microbatch of this length, a third of it forward. */
const stage = (seconds: number): StageSeconds => ({
  forward: seconds / 3,
  backwardInput: seconds / 3,
  backwardWeight: seconds / 3,
});

describe('pipeline schedules by events', () => {
  it('gpipe and 1f1b: one time, other memory', () => {
    for (const schedule of ['gpipe', '1f1b'] as const) {
      const r = run(schedule, 4, 8);
      expect([r.seconds, r.bubbleSeconds]).toEqual([33, 9]);
      expect(r.bubbleSeconds / 24).toBe(0.375);
      expect(r.bubbleSeconds / r.seconds).toBeCloseTo(0.273, 3);
    }
    expect(kept(run('gpipe', 4, 8))).toEqual([8, 8, 8, 8]);
    expect(kept(run('1f1b', 4, 8))).toEqual([4, 3, 2, 1]);
    const few = run('1f1b', 4, 2);
    expect(few.seconds).toBe(15);
    expect(kept(few)).toEqual([2, 2, 2, 1]);
  });

  it('messages on a boundary go one after another, each way', () => {
    const slow = playPipeline(
      'gpipe',
      { devices: 2, microbatches: 3 },
      { stages: { forward: 1, backwardInput: 1, backwardWeight: 0 }, hopSeconds: 5 },
    );
    const starts = (device: number, kind: string): number[] =>
      slow.devices[device].spans.filter((s) => s.kind === kind).map((s) => s.start);
    // Passes end at 1, 2 and 3; each message takes 5 and waits for the one before it.
    expect(starts(1, 'F')).toEqual([6, 11, 16]);
    const [first] = starts(1, 'B');
    expect(starts(0, 'B')).toEqual([first + 6, first + 11, first + 16]);
  });

  it('interleaved: the bubble by v, more chunks held', () => {
    const two = run('interleaved', 4, 8, THIRD, 2);
    expect([two.seconds, kept(two)]).toEqual([28.5, [11, 9, 7, 5]]);
    const four = run('interleaved', 4, 8, THIRD, 4);
    expect([four.seconds, kept(four)]).toEqual([26.25, [19, 17, 15, 13]]);
    expect(run('1f1b', 8, 32).seconds).toBe(117);
    expect(run('interleaved', 8, 32, THIRD, 2).seconds).toBe(106.5);
    expect(run('interleaved', 8, 32, THIRD, 4).seconds).toBe(101.25);
    // 11 chunks of half a stage where 1f1b holds 4 whole ones.
    expect(kept(two)[0] / 2 / 4).toBe(1.375);
    expect(interleavingFactor(4, 2)).toBe(1.375);
  });

  it('zero bubble: weights fill the gaps', () => {
    const h1 = run('zb-h1', 4, 8);
    expect([h1.seconds, h1.bubbleSeconds, kept(h1)]).toEqual([27, 3, [4, 4, 4, 4]]);
    expect(run('zb-h1', 8, 32).seconds).toBe(103);
    const uneven: StageSeconds = { forward: 3, backwardInput: 4, backwardWeight: 2 };
    expect(run('zb-h1', 4, 8, uneven).bubbleSeconds).toBe(15);
    const h2 = run('zb-h2', 4, 8);
    expect(Math.max(...h2.devices.map((d) => d.spans.at(-1)!.end - d.spans[0].start))).toBe(24);
    expect([h2.bubbleSeconds, h2.seconds, Math.max(...kept(h2))]).toEqual([0, 27, 7]);
    expect(run('zb-h2', 4, 8, uneven).bubbleSeconds).toBe(9);
  });

  it('uniform stages by events are the closed forms; uneven ones have them as a bound', () => {
    expect(run('1f1b', 4, 8).bubbleSeconds).toBe(9);
    expect(run('interleaved', 4, 8, THIRD, 2).seconds).toBe(28.5);
    expect(pipelineSeconds([3, 3, 3, 3], 8)).toBe(33);
    expect(pipelineSeconds([3, 3, 6, 3], 8)).toBe(57);
    const sizes = fc.record({
      p: fc.integer({ min: 1, max: 6 }),
      rounds: fc.integer({ min: 2, max: 4 }),
      v: fc.integer({ min: 1, max: 3 }),
    });
    const seconds = fc.integer({ min: 1, max: 6 });
    fc.assert(
      fc.property(sizes, seconds, seconds, ({ p, rounds, v }, f, b) => {
        const m = p * rounds;
        const whole: StageSeconds = { forward: f, backwardInput: b, backwardWeight: b };
        for (const schedule of ['gpipe', '1f1b', 'interleaved'] as const) {
          const chunks = schedule === 'interleaved' ? v : 1;
          const shape = { devices: p, microbatches: m, chunks };
          const r = run(schedule, p, m, whole, chunks);
          expect(r.bubbleSeconds).toBeCloseTo(bubbleSeconds(schedule, shape, whole), 9);
          expect(r.seconds).toBeCloseTo(m * (f + 2 * b) + r.bubbleSeconds, 9);
          expect(kept(r)).toEqual(r.devices.map((_, i) => keptMicrobatches(schedule, shape, i)));
        }
      }),
    );
  });

  it('interleaved: what is kept of each chunk at the worst moment is that of the order of passes', () => {
    const shapes = fc.record({
      p: fc.integer({ min: 1, max: 6 }),
      rounds: fc.integer({ min: 1, max: 4 }),
      v: fc.integer({ min: 1, max: 4 }),
    });
    fc.assert(
      fc.property(
        shapes,
        fc.array(fc.integer({ min: 0, max: 9 }), { minLength: 4, maxLength: 4 }),
        ({ p, rounds, v }, bytes) => {
          const shape = { devices: p, microbatches: p * rounds, chunks: v };
          passOrder('interleaved', shape).forEach((order, i) => {
            let [now, most] = [0, 0];
            for (const { kind, chunk } of order) {
              now += kind === 'F' ? bytes[chunk] : kind === 'B' ? -bytes[chunk] : 0;
              most = Math.max(most, now);
            }
            const said = keptByChunk(shape, i).map((mix) =>
              mix.reduce((sum, n, c) => sum + n * bytes[c], 0),
            );
            expect(Math.max(...said)).toBe(most);
          });
        },
      ),
    );
  });

  it('zero-bubble schedules of equal parts have the closed-form bubble and memory', () => {
    for (let p = 1; p <= 8; p++)
      for (let m = 2 * p; m <= 4 * p; m += p)
        for (const schedule of ['zb-h1', 'zb-h2'] as const) {
          const shape = { devices: p, microbatches: m };
          const r = run(schedule, p, m);
          expect([schedule, p, m, r.bubbleSeconds]).toEqual([
            schedule,
            p,
            m,
            bubbleSeconds(schedule, shape, THIRD),
          ]);
          expect(Math.max(...kept(r))).toBe(keptMicrobatches(schedule, shape, 0));
        }
  });

  it('uneven stages: the formula is an upper bound of 1f1b', () => {
    const simulated = (stages: readonly number[]): number =>
      playPipeline('1f1b', { devices: 4, microbatches: 8 }, { stages: stages.map(stage) }).seconds;
    expect(pipelineSeconds([5, 3, 3, 4], 8)).toBe(50);
    expect(simulated([5, 3, 3, 4])).toBeCloseTo(45, 9);
    expect(pipelineSeconds([2, 2, 2, 6], 8)).toBe(54);
    expect(simulated([2, 2, 2, 6])).toBeCloseTo(54, 9);
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 4, maxLength: 4 }),
        (stages) => {
          const seconds = simulated(stages);
          expect(seconds).toBeLessThanOrEqual(pipelineSeconds(stages, 8) + 1e-9);
          expect(seconds).toBeGreaterThanOrEqual(8 * Math.max(...stages) - 1e-9);
        },
      ),
    );
  });

  it('messages back may take another time than messages forward', () => {
    const [forward, backwardInput, hopSeconds, hopBackSeconds] = [1, 2, 5, 7];
    const times = { stages: { forward, backwardInput, backwardWeight: 0 }, hopSeconds };
    const one = { devices: 3, microbatches: 1 };
    const r = playPipeline('1f1b', one, { ...times, hopBackSeconds });
    expect(r.seconds).toBe(3 * (forward + backwardInput) + 2 * (hopSeconds + hopBackSeconds));
    expect(playPipeline('1f1b', one, times).seconds).toBe(3 * 3 + 4 * hopSeconds);
  });

  it('every pass runs once, after what it needs, one at a time', () => {
    for (const schedule of PIPELINE_SCHEDULES) {
      const v = schedule === 'interleaved' ? 2 : 1;
      const [p, m, hop] = [4, 8, 0.25];
      const times = Array.from({ length: p * v }, (_, k) => ({
        forward: 1 + (k % 3),
        backwardInput: 1,
        backwardWeight: 2,
      }));
      const r = playPipeline(
        schedule,
        { devices: p, microbatches: m, chunks: v },
        { stages: times, hopSeconds: hop },
      );
      const end = new Map<string, number>();
      r.devices.forEach((d, i) => {
        let free = 0;
        for (const s of d.spans) {
          expect(s.start).toBeGreaterThanOrEqual(free);
          free = s.end;
          end.set(`${s.kind} ${s.chunk * p + i} ${s.microbatch}`, s.end);
        }
      });
      expect(end.size).toBe((splitsBackward(schedule) ? 3 : 2) * p * v * m);
      r.devices.forEach((d, i) => {
        for (const s of d.spans) {
          const at = s.chunk * p + i;
          const need = (key: string, gap: number): void =>
            expect(s.start).toBeGreaterThanOrEqual(end.get(key)! + gap);
          if (s.kind === 'F' && at > 0) need(`F ${at - 1} ${s.microbatch}`, hop);
          if (s.kind === 'B' && at + 1 < p * v) need(`B ${at + 1} ${s.microbatch}`, hop);
          if (s.kind === 'B') need(`F ${at} ${s.microbatch}`, 0);
          if (s.kind === 'W') need(`B ${at} ${s.microbatch}`, 0);
        }
      });
    }
  });

  it('refuses what is not a pipeline, by name', () => {
    expect(() => passOrder('interleaved', { devices: 4, microbatches: 6, chunks: 2 })).toThrow(
      /6 microbatches mod 4/,
    );
    expect(() => passOrder('1f1b', { devices: 4, microbatches: 8, chunks: 2 })).toThrow(
      /one chunk a device/,
    );
    expect(() => passOrder('gpipe', { devices: 0, microbatches: 8 })).toThrow(/0 devices/);
    expect(() => passOrder('gpipe', { devices: 1e6, microbatches: 1e6 })).toThrow(/more than/);
    expect(() =>
      playPipeline('1f1b', { devices: 2, microbatches: 2 }, { stages: [THIRD] }),
    ).toThrow(/1 times for 2 stages/);
    expect(() => run('1f1b', 2, 2, { ...THIRD, forward: -1 })).toThrow(/-1 seconds/);
    expect(parsePipelineSchedule('Schedule1F1B')).toBe('1f1b');
    expect(() => parsePipelineSchedule('1f1f')).toThrow(/unknown pipeline schedule/);
  });

  it('a pipeline trace: stages as processes, no overlap, arrows from inside a pass to the start of the next', () => {
    const r = playPipeline(
      '1f1b',
      { devices: 4, microbatches: 8 },
      { stages: THIRD, hopSeconds: 0.5 },
    );
    const { traceEvents } = pipelineTrace(r);
    expect(new Set(traceEvents.map((e) => e.ph))).toEqual(new Set(['M', 'X', 's', 'f']));
    const times = traceEvents.flatMap(({ ph, ts }) => (ph === 'M' ? [] : [ts ?? 0]));
    expect(times).toEqual([...times].sort((a, b) => a - b));
    const slices = traceEvents.filter((e) => e.ph === 'X');
    expect(slices).toHaveLength(4 * 8 * 2);
    expect(Math.max(...slices.map((e) => e.ts! + e.dur!))).toBeCloseTo(r.seconds * 1e6, 6);
    for (let pid = 0; pid < 4; pid++) {
      const own = slices.filter((e) => e.pid === pid);
      own
        .slice(1)
        .forEach((e, i) => expect(e.ts!).toBeGreaterThanOrEqual(own[i].ts! + own[i].dur! - 1e-6));
    }
    const flows = new Map<
      string,
      { from?: (typeof traceEvents)[number]; to?: (typeof traceEvents)[number] }
    >();
    for (const e of traceEvents) {
      if (e.ph === 's') flows.set(e.id!, { ...flows.get(e.id!), from: e });
      if (e.ph === 'f') flows.set(e.id!, { ...flows.get(e.id!), to: e });
    }
    // Three boundaries, eight microbatches, there and back.
    expect(flows.size).toBe(48);
    for (const { from, to } of flows.values()) {
      expect(Math.abs(from!.pid - to!.pid)).toBe(1);
      expect(to!.ts!).toBeGreaterThan(from!.ts!);
      const inside = slices.some(
        (e) => e.pid === from!.pid && e.ts! <= from!.ts! && from!.ts! <= e.ts! + e.dur!,
      );
      const begins = slices.some((e) => e.pid === to!.pid && e.ts === to!.ts);
      expect([inside, begins]).toEqual([true, true]);
    }
  });
});
