import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { peakOf } from '../../src/cost/memory/peak.ts';
import type { Graph } from '../../src/graph/types.ts';
import { lower, plannedProgram } from '../../src/lower/lower.ts';
import { collectiveKind, readCollective } from '../../src/lower/program/collectives.ts';
import { promisedCollectives } from '../../src/lower/promised.ts';
import { decode, stateMemory } from '../../src/plan/choice/decode.ts';
import { randomChoice } from '../../src/plan/choice/random-plan.ts';
import { planMemoryTimeline } from '../../src/plan/choice/timeline.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { priceRestriction } from '../../src/recipes/compare/price.ts';
import { applyRecipe } from '../../src/recipes/recipes.ts';
import { asyncTensor } from '../../src/simulate/timeline/async-tensor.ts';
import { bucket } from '../../src/simulate/timeline/bucket.ts';
import {
  type PlanSchedule,
  planSchedule,
  type SimulatedPlan,
} from '../../src/simulate/timeline/from-plan.ts';
import { sumsOf } from '../../src/simulate/timeline/needs.ts';
import { play, type Timeline } from '../../src/simulate/timeline/play.ts';
import { prefetch } from '../../src/simulate/timeline/prefetch.ts';
import {
  type Buffer,
  checkSchedule,
  type Schedule,
  taskSeconds,
} from '../../src/simulate/timeline/schedule.ts';
import { simulate } from '../../src/simulate/timeline/simulate.ts';
import { timelineTrace, type TraceEvent } from '../../src/simulate/timeline/trace.ts';
import { COMPUTE } from '../../src/simulate/work/streams.ts';
import { load, planFor, request, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';
import { serial } from '../support/serial-schedule.ts';
import { gatheredLayers, judge, programs } from './random-schedules.ts';

/** Largest busy time of one stream. */
function busiestSeconds(timeline: Timeline, streams: number): number {
  const busy = new Float64Array(Math.max(streams, COMPUTE + 1));
  for (const { task, start, end } of timeline.spans) busy[task.stream] += end - start;
  return busy.reduce((most, t) => Math.max(most, t), 0);
}

describe('two streams', () => {
  it('three gathered layers: unlimited, one ahead, none ahead', () => {
    const cases = [
      [10, [38, 38, 54], [8, 8, 24]],
      [5, [29, 29, 39], [14, 14, 24]],
    ] as const;
    for (const [compute, totals, exposed] of cases) {
      const layers = gatheredLayers(3, 8, compute);
      const runs = [
        layers,
        prefetch(layers, { distance: 1 }).schedule,
        prefetch(layers, { distance: 0 }).schedule,
      ].map((s) => {
        checkSchedule(s);
        const timeline = play(s);
        judge(s, timeline);
        return timeline;
      });
      expect(runs.map((r) => r.seconds)).toEqual(totals);
      expect(runs.map((r) => r.exposedCommunicationSeconds)).toEqual(exposed);
    }
    const free = play(gatheredLayers(3, 8, 10)).memory;
    expect([free.peakBytes, free.peakAt]).toEqual([3, 16]);
    expect(free.points.find((p) => p.at > 16)).toEqual({ at: 18, bytes: 2 });
    const ahead = prefetch(gatheredLayers(3, 8, 10), { distance: 1 }).schedule;
    expect(play(ahead).memory.peakBytes).toBe(2);
  });

  it('the distance may be any, and bytes may bound it', () => {
    const peak = (options: Parameters<typeof prefetch>[1]): number =>
      play(prefetch(gatheredLayers(12, 1, 10), options).schedule).memory.peakBytes;
    for (let distance = 1; distance < 9; distance++) expect(peak({ distance })).toBe(distance + 1);
    // The gathers that wait, and the one that is being read.
    for (let limitBytes = 1; limitBytes < 9; limitBytes++)
      expect(peak({ distance: Infinity, limitBytes })).toBe(limitBytes + 1);
    expect(() => prefetch(gatheredLayers(1, 1, 1), { distance: -1 })).toThrow(/distance of -1/);
    expect(() => prefetch(gatheredLayers(1, 1, 1), { distance: 0.5 })).toThrow(/distance of 0.5/);
  });

  it('random programs: every rule of the timeline, at least the busiest stream, at most one after another', () => {
    fc.assert(
      fc.property(programs, (schedule) => {
        checkSchedule(schedule);
        const timeline = play(schedule);
        judge(schedule, timeline);
        const sum = schedule.tasks.reduce((n, t) => n + taskSeconds(schedule, t), 0);
        expect(timeline.serialSeconds).toBe(sum);
        expect(timeline.seconds).toBeLessThanOrEqual(sum);
        expect(timeline.seconds).toBeGreaterThanOrEqual(busiestSeconds(timeline, 3));
        expect(timeline.computeSeconds + timeline.communicationSeconds).toBe(sum);
        expect(play(serial(schedule)).seconds).toBe(sum);
      }),
      { numRuns: FULL ? 300 : 50 },
    );
  });

  it('prefetch and buckets keep every result, and data in order; buckets are never more expensive', () => {
    const seconds = (_: string, bytes: number): number => (bytes > 60 ? 100 : 4 + bytes / 20);
    fc.assert(
      fc.property(
        programs,
        fc.integer({ min: 0, max: 4 }),
        fc.integer({ min: 0, max: 100 }),
        (given, distance, bucketBytes) => {
          // Prices must be those of the model that the buckets ask.
          const tasks = given.tasks.map((t) =>
            t.collective === undefined
              ? t
              : { ...t, kernels: 1, seconds: seconds('', t.collective.bytes) },
          );
          const schedule = { ...given, tasks };
          const written = (s: Schedule): number[] =>
            s.tasks.flatMap((t) => [...t.writes]).sort((a, b) => a - b);
          const communication = (s: Schedule): number =>
            s.tasks.reduce((n, t) => (t.collective === undefined ? n : n + t.seconds), 0);
          const bytes = (s: Schedule): number =>
            s.tasks.reduce((n, t) => n + (t.collective?.bytes ?? 0), 0);
          const ahead = prefetch(schedule, { distance }).schedule;
          expect(ahead.tasks.map((t) => t.id).sort((a, b) => a - b)).toEqual(
            schedule.tasks.map((t) => t.id),
          );
          const packed = bucket(schedule, { bucketBytes, seconds, sums: sumsOf(schedule) });
          const both = prefetch(packed, { distance }).schedule;
          for (const s of [ahead, packed, both]) {
            checkSchedule(s);
            judge(s, play(s));
            expect(written(s)).toEqual(written(schedule));
            expect(bytes(s)).toBe(bytes(schedule));
          }
          expect(communication(packed)).toBeLessThanOrEqual(communication(schedule) + 1e-9);
          for (const t of packed.tasks) {
            const merged = t.collective !== undefined && t.writes.length > 1;
            if (merged) expect(t.collective.bytes).toBeLessThanOrEqual(bucketBytes);
          }
        },
      ),
      { numRuns: FULL ? 300 : 50 },
    );
  });

  it('chunks of asynchronous tensor parallelism keep every result and all communication', () => {
    let changed = 0;
    fc.assert(
      fc.property(programs, fc.integer({ min: 2, max: 4 }), (schedule, n) => {
        const apart = asyncTensor(schedule, { matmulLaunchSeconds: 0, groupSize: () => n });
        checkSchedule(apart);
        judge(apart, play(apart));
        const sum = (s: Schedule, collective: boolean): number =>
          s.tasks.reduce(
            (total, t) => ((t.collective !== undefined) === collective ? total + t.seconds : total),
            0,
          );
        expect(sum(apart, true)).toBeCloseTo(sum(schedule, true), 9);
        expect(sum(apart, false)).toBeCloseTo(sum(schedule, false), 9);
        const made = new Set(apart.tasks.flatMap((t) => [...t.writes]));
        for (const t of schedule.tasks) for (const b of t.writes) expect(made.has(b)).toBe(true);
        if (apart.tasks.length > schedule.tasks.length) changed++;
      }),
      { numRuns: FULL ? 800 : 150 },
    );
    expect(changed).toBeGreaterThan(5);
  });

  it('a chunk is multiplied while the next one travels', () => {
    const collective = { kind: 'all_gather', meshDims: [0], bytes: 4, key: 'f32' } as const;
    const buffer = (name: string, given = false): Buffer => ({
      name,
      bytes: 1,
      kind: 'activation',
      given,
      kept: false,
      weight: false,
    });
    const schedule: Schedule = {
      tasks: [
        {
          id: 0,
          name: 'gather',
          kind: 'collective',
          stream: 1,
          seconds: 6,
          kernels: 1,
          reads: [0],
          writes: [1],
          phase: 'forward',
          collective,
        },
        {
          id: 1,
          name: 'mm',
          target: 'aten.mm.default',
          kind: 'compute',
          stream: 0,
          seconds: 8,
          kernels: 1,
          reads: [1],
          writes: [2],
          phase: 'forward',
        },
        {
          id: 2,
          name: 'relu',
          kind: 'compute',
          stream: 0,
          seconds: 1,
          kernels: 1,
          reads: [2],
          writes: [3],
          phase: 'forward',
        },
      ],
      buffers: [buffer('x', true), buffer('gathered'), buffer('y'), buffer('z')],
      streams: ['compute', 'links'],
      launchSeconds: 0,
    };
    expect(play(schedule).seconds).toBe(15);
    // Four chunks of 2 s, three messages of 2 s: the first chunk is at hand.
    expect(
      play(asyncTensor(schedule, { matmulLaunchSeconds: 0, groupSize: () => 4 })).seconds,
    ).toBe(9);
  });

  it('compute under communication takes longer by the stated factor', () => {
    const layers = gatheredLayers(2, 8, 10);
    // The second gather, from 8 to 16, lies beside the first layer: 8 s of it do 8 / 1.25 s of
    // work.
    expect(play(layers, { overlapSlowdown: 1.25 }).seconds).toBeCloseTo(
      16 + (10 - 8 / 1.25) + 10,
      12,
    );
    expect(() => play(layers, { overlapSlowdown: 0.5 })).toThrow(/expected 1 or more/);
  });
});

interface Simulated {
  readonly graph: Graph;
  readonly plan: SimulatedPlan;
  readonly seconds: number;
  readonly peakBytes: number;
  readonly schedule: PlanSchedule;
}

/** Several tests look at the same plans. */
const simulated = new Map<string, Simulated>();
function randomSimulated(name: string, mesh: string, seed: number): Simulated {
  const key = `${name} on ${mesh}, seed ${seed}`;
  const made = simulated.get(key) ?? newSimulated(load(name), mesh, seed);
  simulated.set(key, made);
  return made;
}

/** A plan with a random strategy for every node. */
function newSimulated(graph: Graph, mesh: string, seed: number): Simulated {
  const prepared = prepare(graph, request(mesh), TABLE);
  const { model } = prepared;
  const choice = randomChoice(model, seed);
  const { nodes, outputs, computeSeconds, communicationSeconds } = decode(model, choice);
  const memory = { ...stateMemory(model, choice), budgetBytes: prepared.question.budgetBytes };
  const plan = { request: prepared.question.request, nodes, outputs, memory };
  return {
    graph,
    plan,
    schedule: planSchedule(graph, plan, TABLE),
    seconds: computeSeconds + communicationSeconds,
    peakBytes: peakOf(planMemoryTimeline(model, choice).intervals).peakBytes,
  };
}

const kernels = (s: Schedule): number => s.tasks.reduce((n, t) => n + t.kernels, 0);

describe('schedules of plans', () => {
  const graphs = [
    'torch/mlp/joint.expanded',
    'torch/mlp-loss/joint.expanded',
    'torch/llama-tiny/joint.expanded',
  ];
  /** Each on both meshes with SHARDWRIGHT_FULL, the large one on one of them without. */
  const cases = graphs.flatMap((name) =>
    (FULL || !name.includes('llama') ? ['d=4', 'dp=2,tp=2'] : ['d=4']).map(
      (mesh) => [name, mesh] as const,
    ),
  );

  it('without overlap a plan takes its objective and the launches, whatever the placements', () => {
    for (const [name, mesh] of cases) {
      for (let seed = 0; seed < (FULL ? 2 : 1); seed++) {
        const { schedule, seconds } = randomSimulated(name, mesh, seed);
        checkSchedule(schedule);
        const alone = play(serial(schedule));
        const expected = seconds + kernels(schedule) * 1e-6;
        expect(Math.abs(alone.seconds - expected)).toBeLessThan(1e-9 * expected);
        const beside = play(schedule);
        expect(beside.seconds).toBeLessThanOrEqual(alone.seconds);
        expect(beside.seconds).toBeGreaterThanOrEqual(busiestSeconds(beside, 3));
      }
    }
  });

  it('in program order the peak is that of the memory timeline, worked out by other code, byte for byte', () => {
    for (const [name, mesh] of cases) {
      for (let seed = 0; seed < (FULL ? 2 : 1); seed++) {
        const { graph, plan, peakBytes } = randomSimulated(name, mesh, seed);
        const { memory } = play(serial(planSchedule(graph, plan, TABLE, { launchSeconds: 1e-6 })));
        expect([name, mesh, seed, memory.peakBytes]).toEqual([name, mesh, seed, peakBytes]);
      }
    }
  });

  it('the collectives are those of the lowered program, by kind, group and bytes', () => {
    for (const name of graphs) {
      const mesh = !FULL && name.includes('llama') ? 'd=4' : 'dp=2,tp=2';
      for (let seed = 0; seed < (FULL ? 2 : 1); seed++) {
        const { graph, plan, schedule } = randomSimulated(name, mesh, seed);
        const text = (kind: string, dims: readonly number[]): string =>
          `${kind} ${[...dims].sort().join()}`;
        const ours = schedule.tasks.flatMap((t) =>
          t.collective === undefined ? [] : [text(t.collective.kind, t.collective.meshDims)],
        );
        const program = lower(graph, plan, { table: TABLE });
        const lowered = program.graph.nodes.flatMap((node) => {
          if (collectiveKind(node.target) === undefined) return [];
          const { kind, meshDims } = readCollective(program.mesh, node.target, node.args);
          return [text(kind, meshDims)];
        });
        expect(ours.sort()).toEqual(lowered.sort());
        const promised = promisedCollectives(plannedProgram(graph, plan, TABLE), plan, TABLE);
        const bytes = (list: readonly { readonly bytes: number | null }[]): number =>
          list.reduce((n, c) => n + (c.bytes ?? 0), 0);
        const inRules = schedule.tasks
          .filter((t) => t.collective?.key === 'inside')
          .map((t) => t.collective!);
        const all = schedule.tasks.flatMap((t) =>
          t.collective === undefined ? [] : [t.collective],
        );
        expect(bytes(all) - bytes(inRules)).toBe(bytes(promised));
      }
    }
  });

  it('passes on a sharded data-parallel plan: the fastest distance is taken, buckets save latency', async () => {
    const graph = load('torch/llama-tiny/joint.expanded');
    const prepared = prepare(graph, request('dp=2'), TABLE);
    const applied = applyRecipe(prepared.model, { name: 'fsdp', parts: ['fsdp'] });
    if ('refused' in applied) throw new Error(applied.refused);
    const priced = await priceRestriction(prepared, applied.restriction);
    if ('refused' in priced) throw new Error(priced.refused);
    const { nodes, outputs } = decode(prepared.model, priced.choice);
    const memory = {
      ...stateMemory(prepared.model, priced.choice),
      budgetBytes: prepared.question.budgetBytes,
    };
    const plan: SimulatedPlan = { request: prepared.question.request, nodes, outputs, memory };
    const best = simulate(graph, plan, { table: TABLE, bucketBytes: 0 });
    judge(best.schedule, best.timeline);
    const { tasks, buffers } = best.schedule;
    const gathers = tasks.filter(
      (t) => t.collective?.kind === 'all_gather' && t.writes.every((b) => buffers[b].weight),
    );
    expect(gathers.length).toBeGreaterThan(20);
    const at = (options: Parameters<typeof simulate>[2]): Timeline => {
      const { schedule, timeline } = simulate(graph, plan, { ...options, table: TABLE });
      judge(schedule, timeline);
      return timeline;
    };
    const none = at({ bucketBytes: 0, prefetch: 0 });
    for (const prefetch of [1, 4, 16]) {
      const ahead = at({ bucketBytes: 0, prefetch });
      expect(ahead.seconds).toBeLessThan(none.seconds);
      expect(best.timeline.seconds).toBeLessThanOrEqual(ahead.seconds);
    }
    const packed = at({ bucketBytes: 2 ** 20 });
    expect(packed.communicationSeconds).toBeLessThan(best.timeline.communicationSeconds);
    expect(at({}).seconds).toBeLessThanOrEqual(best.timeline.seconds);
  });
});

describe('traces', () => {
  const planned = async (name: string): Promise<Pick<Simulated, 'graph' | 'plan'>> => ({
    graph: load(name),
    plan: await planFor(load(name), 'dp=2,tp=2'),
  });

  it('valid events, no overlap on a thread, ends at the step time, peak and compute as reported', async () => {
    const given = 'torch/mlp-loss/joint.expanded';
    const { graph, plan } = FULL
      ? await planned('torch/llama-tiny/joint.expanded')
      : randomSimulated(given, 'dp=2,tp=2', 0);
    for (const options of [{}, { asyncTensor: true }, { prefetch: 1, overlapSlowdown: 1.2 }]) {
      const { schedule, timeline } = simulate(graph, plan, { ...options, table: TABLE });
      checkTrace(schedule, timeline);
    }
  });
});

function checkTrace(schedule: PlanSchedule, timeline: Timeline): void {
  const { displayTimeUnit, traceEvents } = JSON.parse(
    JSON.stringify(timelineTrace(schedule, timeline)),
  ) as {
    displayTimeUnit: string;
    traceEvents: TraceEvent[];
  };
  expect(displayTimeUnit).toBe('ms');
  expect(new Set(traceEvents.map((e) => e.ph))).toEqual(new Set(['M', 'X', 'C']));
  const threads = new Map<string, number>();
  let [last, compute] = [0, 0];
  for (const e of traceEvents.filter((event) => event.ph === 'X')) {
    const key = `${e.pid} ${e.tid}`;
    expect(e.ts).toBeGreaterThanOrEqual((threads.get(key) ?? 0) - 1e-6);
    threads.set(key, e.ts! + e.dur!);
    last = Math.max(last, e.ts! + e.dur!);
    expect(['compute', 'collective']).toContain(e.cat);
    expect(e.tid === 0).toBe(e.cat === 'compute');
    if (e.tid === 0) compute += e.dur!;
  }
  const near = (a: number, b: number): void =>
    expect(Math.abs(a - b)).toBeLessThanOrEqual(1e-9 * b);
  near(last, timeline.seconds * 1e6);
  near(compute, timeline.computeSeconds * 1e6);
  const counters = traceEvents.filter((e) => e.ph === 'C').map((e) => Number(e.args?.MiB));
  expect(Math.max(...counters) * 2 ** 20).toBe(timeline.memory.peakBytes);
  const named = traceEvents.filter((e) => e.name === 'thread_name').map((e) => e.args?.name);
  expect(named[0]).toBe('compute');
  expect(named.length).toBe(new Set(threads.keys()).size);
}
