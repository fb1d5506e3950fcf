import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { describe, expect, it } from 'vitest';

import { builtinOperators } from '../../src/entries/ops.ts';
import { compareRun } from '../../src/export/torch/run/doctor.ts';
import { type LostTime, lostTime } from '../../src/export/torch/run/lost-time.ts';
import { readTrace, type TraceSpan } from '../../src/export/torch/run/trace.ts';
import { planSchedule } from '../../src/simulate/timeline/from-plan.ts';
import { runningPlans } from './running-plans.ts';

/**
 * A recorded step of one rank (`test/engines/running/trace.py`), changed so that it is known what
 * is lost: the ranks of a run are copies of it. `test/engines/doctor.test.ts` has a run whose rank 2
 * really comes late.
 */
const recorded = readTrace(
  gunzipSync(
    readFileSync(new URL('../fixtures/running/llama-sdpa.trace.json.gz', import.meta.url)),
  ).toString(),
  'trace.json',
);
const [, PLANNED] = await runningPlans('llama-sdpa', 'dp=2,tp=2', ['FSDP (dp) + Megatron (tp)']);
const { plan, source } = PLANNED;
const { collectives } = planSchedule(source.program, plan, builtinOperators());
const mesh = source.lowered().mesh;

function lost(ranks: readonly (readonly TraceSpan[])[]): LostTime[] {
  return lostTime(
    plan,
    mesh,
    ranks.map((spans, rank) => ({
      rank,
      spans,
      report: compareRun(source, plan, collectives, spans),
    })),
  );
}

/** The losses of one kind, of which there is at most one. */
const ofKind = (found: readonly LostTime[], kind: LostTime['kind']): LostTime | undefined =>
  found.find((one) => one.kind === kind);

const lastStep = recorded.filter(({ name }) => name === 'Step').at(-1);
const isLast = ({ ts }: TraceSpan): boolean => ts >= (lastStep?.ts ?? Infinity);
const collectivesOf = (spans: readonly TraceSpan[]): TraceSpan[] =>
  spans.filter((span) => isLast(span) && span.name.startsWith('gloo:'));

/** The trace with its collectives longer by so many microseconds. */
const waiting = (micros: number): TraceSpan[] =>
  recorded.map((span) =>
    isLast(span) && span.name.startsWith('gloo:') ? { ...span, dur: span.dur + micros } : span,
  );

describe('lostTime', () => {
  it('says nothing of waits for ranks where all traces are one, or where there is one', () => {
    expect(ofKind(lost([recorded, recorded]), 'waiting for ranks')).toBeUndefined();
    expect(ofKind(lost([recorded]), 'waiting for ranks')).toBeUndefined();
  });

  it('names the rank for which the others wait, and for how long', () => {
    const rows = JSON.parse(
      PLANNED.files.find(({ name }) => name === 'collectives.json')?.text ?? '',
    ) as { collectives: { meshDims: string[] }[] };
    // In the group of rank 2 all others wait: one over a dim of two ranks, three over both dims.
    const waits = rows.collectives.reduce((n, { meshDims }) => n + 2 ** meshDims.length - 1, 0);
    const late = ofKind(
      lost([waiting(5000), waiting(5000), recorded, waiting(5000)]),
      'waiting for ranks',
    );
    expect(late?.seconds).toBeCloseTo((waits * 5000e-6) / 4, 9);
    expect(late?.what).toBe('the others wait for rank 2, the last to come in 100 % of the waiting');
  });

  it('names no rank where they come last by turns', () => {
    let turn = 0;
    const inTurns = [0, 1, 2, 3].map((rank) => {
      turn = 0;
      return recorded.map((span) => {
        if (!isLast(span) || !span.name.startsWith('gloo:')) return span;
        return turn++ % 4 === rank ? span : { ...span, dur: span.dur + 5000 };
      });
    });
    expect(ofKind(lost(inTurns), 'waiting for ranks')?.what).toBe(
      'ranks wait for each other by turns',
    );
  });

  it('takes for a slow collective what it takes on its last rank', () => {
    const before = ofKind(lost([recorded, recorded]), 'collectives')?.seconds ?? 0;
    const after = ofKind(lost([waiting(5000), waiting(5000)]), 'collectives')?.seconds ?? 0;
    expect(after - before).toBeCloseTo(collectivesOf(recorded).length * 5000e-6, 9);
  });

  it('names the data loader, pauses, and calls of the driver for memory', () => {
    const pause = 400_000;
    const tid = lastStep?.tid ?? 0;
    const before = lastStep?.ts ?? 0;
    const added = (name: string, cat: string, ts: number, dur: number): TraceSpan => ({
      name,
      cat,
      tid,
      ts,
      dur,
      correlation: undefined,
    });
    const later = recorded.map((span) => (isLast(span) ? { ...span, ts: span.ts + pause } : span));
    const start = before + pause;
    const spans = [
      ...later,
      added(
        'enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__',
        'user_annotation',
        before,
        150_000,
      ),
      added('ProfilerStep#1', 'user_annotation', before, pause),
      added('cudaMalloc', 'cuda_runtime', start + 10, 60_000),
      added('cudaFree', 'cuda_runtime', start + 70_010, 30_000),
      added('cudaLaunchKernel', 'cuda_runtime', start + 110_000, 90_000),
    ].sort((a, b) => a.ts - b.ts || b.dur - a.dur);
    const plain = ofKind(lost([recorded]), 'between steps')?.seconds ?? 0;
    const found = lost([spans]);
    expect(ofKind(found, 'data')).toMatchObject({
      seconds: 0.15,
      what: 'rank 0 waits for its data loader before the step',
    });
    expect(ofKind(found, 'between steps')?.seconds).toBeCloseTo(plain + 0.25, 2);
    expect(ofKind(found, 'allocator')).toMatchObject({
      what: 'rank 0 asks the driver for memory 2 times in the step',
    });
    expect(ofKind(found, 'allocator')?.seconds).toBeCloseTo(0.09, 9);
    expect(found.map(({ seconds }) => seconds)).toEqual(
      found.map(({ seconds }) => seconds).sort((a, b) => b - a),
    );
  });
});
