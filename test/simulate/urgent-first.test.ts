import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { justified } from '../../src/simulate/timeline/justify.ts';
import { play, playTasks } from '../../src/simulate/timeline/play.ts';
import {
  type Buffer,
  checkSchedule,
  type Schedule,
  type Task,
} from '../../src/simulate/timeline/schedule.ts';
import { type ListOrder, ListWork } from '../../src/simulate/timeline/urgent-first.ts';
import { judge, programs } from './random-schedules.ts';

/**
 * Kernels (`k`) and moves in program order; each reads what those named in it made. `far` moves run
 * between hosts, `q` in another dtype.
 */
function steps(
  list: readonly (readonly [name: string, seconds: number, ...reads: string[]])[],
): Schedule {
  const names = list.map(([name]) => name);
  const buffers = names.map((name): Buffer => ({
    name,
    bytes: 1,
    kind: 'activation',
    given: false,
    kept: false,
    weight: false,
  }));
  const tasks = list.map(([name, seconds, ...reads], id): Task => {
    const common = {
      id,
      name,
      seconds,
      kernels: 1,
      reads: reads.map((r) => names.indexOf(r)),
      writes: [id],
      phase: 'backward' as const,
    };
    if (/^k/.test(name)) return { ...common, kind: 'compute', stream: 0 };
    const stream = /^far/.test(name) ? 2 : 1;
    return {
      ...common,
      kind: 'collective',
      stream,
      collective: {
        kind: 'all_reduce',
        meshDims: [stream - 1],
        bytes: seconds - 1,
        key: /^q/.test(name) ? 'bf16' : 'f32',
      },
    };
  });
  return { tasks, buffers, streams: ['compute', 'links', 'between hosts'], launchSeconds: 0 };
}

/** A second of latency, and a second for each byte. */
const seconds = (_: string, bytes: number): number => 1 + bytes;
const ordered = (
  schedule: Schedule,
  bucketBytes: number,
  patience: number,
  sumsFirst: ListOrder['sumsFirst'] = 'made',
): Schedule => {
  const out = new ListWork(schedule, { bucketBytes, seconds }).ordered({ patience, sumsFirst });
  checkSchedule(out);
  return out;
};
const played = (schedule: Schedule): number => play(schedule).seconds;

describe('urgent moves first', () => {
  it('a move that a kernel waits for does not stand behind a sum of gradients', () => {
    const step = steps([
      ['k1', 1],
      ['sum', 3, 'k1'],
      ['move', 1, 'k1'],
      ['k2', 1, 'move'],
    ]);
    expect(played(step)).toBe(6);
    const out = ordered(step, 0, 1);
    expect(out.tasks.map((t) => t.name)).toEqual(['k1', 'move', 'k2', 'sum']);
    expect(played(out)).toBe(5);
  });

  it('a stream stays idle for a move that is soon ready, unless the wait is longer than the delay it saves', () => {
    // The sum would end at 4; the move is ready at 2, and its kernel is late by 2 for a stream that
    // would idle for 1.
    const step = steps([
      ['k1', 1],
      ['sum', 3, 'k1'],
      ['k2', 1],
      ['move', 1, 'k2'],
      ['k3', 4, 'move'],
    ]);
    expect(played(step)).toBe(9);
    expect(played(ordered(step, 0, 2))).toBe(9);
    expect(played(ordered(step, 0, 1))).toBe(7);
    expect(played(ordered(step, 0, 0))).toBe(7);
  });

  it('sums that are ready together are one collective, as long as the stream has time for', () => {
    const step = steps([
      ['k1', 2],
      ['a', 2, 'k1'],
      ['b', 2, 'k1'],
      ['c', 2, 'k1'],
      ['k2', 6, 'k1'],
    ]);
    const out = ordered(step, 25, 0);
    expect(out.tasks.filter((t) => t.kind === 'collective').map((t) => t.name)).toEqual([
      '3 x all_reduce (a ..)',
    ]);
    expect(played(out)).toBe(8);
    expect(play(out).communicationSeconds).toBe(4);
    expect(ordered(step, 2, 0).tasks.filter((t) => t.kind === 'collective')).toHaveLength(2);
    // A move is ready at 4.5 whose kernel waits: only one sum ends before it.
    const hurry = steps([
      ['k1', 2],
      ['a', 2, 'k1'],
      ['b', 2, 'k1'],
      ['c', 2, 'k1'],
      ['k2', 2.5, 'k1'],
      ['move', 1, 'k2'],
      ['k3', 6, 'move'],
    ]);
    expect(ordered(hurry, 25, 0).tasks.map((t) => t.name)).toEqual([
      'k1',
      'k2',
      'a',
      'move',
      'k3',
      '2 x all_reduce (b ..)',
    ]);
    expect(played(ordered(hurry, 25, 0))).toBe(11.5);
    expect(played(hurry)).toBe(15);
  });

  it('of sums that are ready, those that something follows may go first, and then the fullest bucket', () => {
    const step = steps([
      ['k1', 1],
      ['a', 3, 'k1'],
      ['q', 3, 'k1'],
      ['far', 5, 'q'],
    ]);
    expect(played(ordered(step, 25, 0, 'made'))).toBe(12);
    expect(played(ordered(step, 25, 0, 'long'))).toBe(9);
    // One small sum of one kind, two of another: what is left gets company, and one latency is
    // saved.
    const more = steps([
      ['k1', 1],
      ['a', 2, 'k1'],
      ['q1', 2, 'k1'],
      ['q2', 2, 'k1'],
      ['k2', 2, 'k1'],
      ['b', 2, 'k2'],
    ]);
    expect(played(ordered(more, 25, 0, 'made'))).toBe(8);
    expect(played(ordered(more, 25, 0, 'long'))).toBe(7);
  });

  it('on any program: the same tasks, kernels in their order, data before its readers, never below the busiest stream', () => {
    fc.assert(
      fc.property(
        programs,
        fc.constantFrom(0, 60),
        fc.constantFrom(0, 1, Infinity),
        fc.constantFrom('made', 'long'),
        (schedule, bucketBytes, patience, sumsFirst) => {
          const out = ordered(schedule, bucketBytes, patience, sumsFirst);
          const timeline = play(out);
          judge(out, timeline);
          const kernels = ({ tasks }: Schedule): readonly Task[] =>
            tasks.filter(({ kind }) => kind === 'compute');
          expect(kernels(out)).toEqual(kernels(schedule));
          const written = ({ tasks }: Schedule): readonly number[] =>
            tasks.flatMap(({ writes }) => writes).sort((a, b) => a - b);
          expect(written(out)).toEqual(written(schedule));
          if (bucketBytes === 0)
            expect([...out.tasks].sort((a, b) => a.id - b.id)).toEqual(schedule.tasks);
        },
      ),
      { seed: 11 },
    );
  });

  it('late and then early: on any program the same tasks, kernels in their order, and no longer', () => {
    fc.assert(
      fc.property(
        programs,
        fc.constantFrom(0, 60),
        fc.constantFrom(0, 1, Infinity),
        fc.constantFrom('made', 'long'),
        (schedule, bucketBytes, patience, sumsFirst) => {
          const before = ordered(schedule, bucketBytes, patience, sumsFirst);
          const run = playTasks(before);
          const longest = run.seconds;
          const after = justified(before, run);
          checkSchedule(after);
          const timeline = play(after);
          judge(after, timeline);
          const byId = ({ tasks }: Schedule): readonly Task[] =>
            [...tasks].sort((a, b) => a.id - b.id);
          expect(byId(after)).toEqual(byId(before));
          const kernels = ({ tasks }: Schedule): readonly Task[] =>
            tasks.filter(({ kind }) => kind === 'compute');
          expect(kernels(after)).toEqual(kernels(before));
          // What waits for a start alone is not held in reversed time.
          if (before.tasks.every(({ afterStart }) => afterStart === undefined))
            expect(timeline.seconds).toBeLessThanOrEqual(longest * (1 + 1e-9));
        },
      ),
      { seed: 12 },
    );
  });

  it('late and then early: a stream that took the wrong move first takes the other', () => {
    // Both moves are ready at 1. The kernel of `b` needs it for 6 seconds of work; that of `a`
    // comes after.
    const step = steps([
      ['k1', 1],
      ['a', 3, 'k1'],
      ['b', 3, 'k1'],
      ['k2', 6, 'b'],
      ['k3', 1, 'a'],
    ]);
    const before = playTasks(step);
    expect(before.seconds).toBe(14);
    const after = justified(step, before);
    expect(after.tasks.map((t) => t.name)).toEqual(['k1', 'b', 'a', 'k2', 'k3']);
    expect(played(after)).toBe(11);
  });
});
