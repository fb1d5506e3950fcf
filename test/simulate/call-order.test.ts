import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { lower } from '../../src/lower/lower.ts';
import { collectiveKind, readCollective } from '../../src/lower/program/collectives.ts';
import type { DeviceProgram } from '../../src/lower/program/program.ts';
import { flat } from '../../src/ndarray/array.ts';
import { decode, stateMemory } from '../../src/plan/choice/decode.ts';
import { randomChoice } from '../../src/plan/choice/random-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { issueOrder, playCalls } from '../../src/simulate/call-order/issue-order.ts';
import {
  type CallOrder,
  callOrder,
  callsByTask,
  inOrder,
} from '../../src/simulate/call-order/order-calls.ts';
import { drawInputs } from '../../src/simulate/inputs.ts';
import { runDevices } from '../../src/simulate/ranks/devices.ts';
import { layOut } from '../../src/simulate/ranks/laid-out.ts';
import { bucket } from '../../src/simulate/timeline/bucket.ts';
import { planSchedule, type SimulatedPlan } from '../../src/simulate/timeline/from-plan.ts';
import { serialPeakBytes } from '../../src/simulate/timeline/headroom.ts';
import { sumsOf } from '../../src/simulate/timeline/needs.ts';
import { play } from '../../src/simulate/timeline/play.ts';
import { prefetch } from '../../src/simulate/timeline/prefetch.ts';
import { checkSchedule, type Schedule } from '../../src/simulate/timeline/schedule.ts';
import { simulate, type SimulateOptions } from '../../src/simulate/timeline/simulate.ts';
import { ListWork } from '../../src/simulate/timeline/urgent-first.ts';
import { COMPUTE } from '../../src/simulate/work/streams.ts';
import { small } from '../export/programs.ts';
import { load, request, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';
import { gatheredLayers, programs } from './random-schedules.ts';

/** By stream: names of its tasks in order. */
const queues = ({ tasks, streams }: Schedule): string[][] =>
  streams.map((_, s) => tasks.filter(({ stream }) => stream === s).map(({ name }) => name));

describe('the order in which a host calls', () => {
  it('a gather that ran beside a kernel is called before it', () => {
    const layers = gatheredLayers(3, 8, 10);
    const names = issueOrder(layers, play(layers)).tasks.map(({ name }) => name);
    // The second gather runs from 8 to 16, beside the first kernel (8 to 18); so does the start of
    // the third.
    expect(names).toEqual([
      'gather 0',
      'gather 1',
      'gather 2',
      'compute 0',
      'compute 1',
      'compute 2',
    ]);
    const onDemand = prefetch(layers, { distance: 0 }).schedule;
    expect(issueOrder(onDemand, play(onDemand)).tasks.map(({ name }) => name)).toEqual([
      'gather 0',
      'compute 0',
      'gather 1',
      'compute 1',
      'gather 2',
      'compute 2',
    ]);
    // As the program lists them, each gather waits for the kernel before it.
    expect(play(layers).seconds).toBe(38);
    expect(playCalls(layers, layers.tasks.length).seconds).toBe(54);
    const called = issueOrder(layers, play(layers));
    expect(playCalls(called, called.tasks.length).seconds).toBe(38);
    // A forward function that ends after two layers returns with the third weight gathered.
    expect(playCalls(onDemand, 4).seconds).toBe(54);
  });

  it('no collective starts later than in the step that was simulated, streams keep their order, and no more is alive', () => {
    const seconds = (_kind: string, bytes: number): number => 1 + bytes;
    fc.assert(
      fc.property(
        programs,
        fc.constantFrom('none', 'bucket', 'prefetch', 'urgent', 'long'),
        (schedule, pass) => {
          const passed =
            pass === 'bucket'
              ? bucket(schedule, { bucketBytes: 60, seconds, sums: sumsOf(schedule) })
              : pass === 'prefetch'
                ? prefetch(schedule, { distance: 1 }).schedule
                : pass === 'long'
                  ? new ListWork(schedule, { bucketBytes: 60, seconds }).ordered({
                      patience: 4,
                      sumsFirst: 'long',
                    })
                  : pass === 'urgent'
                    ? new ListWork(schedule, { bucketBytes: 60, seconds }).ordered({
                        patience: 1,
                        sumsFirst: 'made',
                      })
                    : schedule;
          const timeline = play(passed);
          const called = issueOrder(passed, timeline);
          checkSchedule(called);
          expect(playCalls(called, called.tasks.length).seconds).toBeLessThanOrEqual(
            timeline.seconds + 1e-9,
          );
          expect(serialPeakBytes(called)).toBeLessThanOrEqual(timeline.memory.peakBytes);
          expect(queues(called)[COMPUTE]).toEqual(queues(passed)[COMPUTE]);
        },
      ),
      { numRuns: 500, seed: 1 },
    );
  });
});

function outputs(graph: Graph, program: DeviceProgram): string {
  const inputs = drawInputs(TABLE, graph, 0);
  const placeholders = graph.nodes.filter((node) => node.kind === 'placeholder');
  const laid = placeholders.map((node, i) => {
    const value = program.values.find((v) => v.name === node.name);
    return layOut(program.space, value?.sharding ?? program.space.replicated, inputs[i]);
  });
  return JSON.stringify(
    runDevices(TABLE, program, laid, { seed: 0 }).outputs.map((arrays) =>
      arrays?.map((array) => [...flat(array)]),
    ),
  );
}

/** Kind and group of every collective, in order. */
const collectives = ({ graph, mesh }: DeviceProgram): string[] =>
  graph.nodes.flatMap(({ target, args, name }) =>
    collectiveKind(target) === undefined
      ? []
      : [`${name} ${readCollective(mesh, target, args).meshDims.join()}`],
  );

/** A plan drawn at random: it communicates more than an optimum. */
function drawn(graph: Graph, mesh: string, seed: number): SimulatedPlan {
  const prepared = prepare(graph, request(mesh, { uneven: 'forbid' }), TABLE);
  const choice = randomChoice(prepared.model, seed);
  const { nodes, outputs } = decode(prepared.model, choice);
  const memory = {
    ...stateMemory(prepared.model, choice),
    budgetBytes: prepared.question.budgetBytes,
  };
  return { request: prepared.question.request, nodes, outputs, memory };
}

describe('the program in a simulated order', () => {
  const BUCKETS: SimulateOptions = { bucketBytes: 2 ** 20 };
  const ORDERS: readonly SimulateOptions[] = [{}, BUCKETS, { prefetch: 1, order: 'program' }];

  const each = [
    ['torch/mlp-loss/joint.expanded', 'd=4', FULL ? [0, 1, 2, 3] : [0, 1], ORDERS],
    ['torch/mlp/joint.expanded', 'a=2,b=2', FULL ? [0, 1, 2, 3] : [0, 1], ORDERS],
    ['torch/llama-tiny/joint.expanded', 'a=2,b=2', [0], ORDERS],
  ] as const;
  it.each(FULL ? each : each.slice(0, 2))(
    '%s on %s: the same numbers, the collectives in the order of the simulation',
    (name, mesh, seeds, orders) => {
      const graph = small(load(name), mesh);
      for (const plan of seeds.map((seed) => drawn(graph, mesh, seed))) {
        const program = lower(graph, plan, { table: TABLE });
        const written = planSchedule(graph, plan, TABLE);
        const wanted = outputs(graph, program);
        for (const options of orders) {
          const { schedule, timeline } = simulate(graph, plan, { ...options, table: TABLE });
          const order = callOrder(
            callsByTask(program, written),
            issueOrder(schedule, timeline).tasks,
          );
          const ordered = inOrder(program, order);
          expect(outputs(graph, ordered)).toBe(wanted);
          expect(new Set(ordered.graph.nodes)).toEqual(new Set(program.graph.nodes));
          const isCollective = new Map(
            program.graph.nodes.map((node) => [
              node.name,
              collectiveKind(node.target) !== undefined,
            ]),
          );
          expect(collectives(ordered).map((text) => text.split(' ')[0])).toEqual(
            order.calls.filter((call) => isCollective.get(call)),
          );
          for (const members of order.buckets) {
            const at = ordered.graph.nodes.findIndex((node) => node.name === members[0]);
            expect(
              ordered.graph.nodes.slice(at, at + members.length).map((node) => node.name),
            ).toEqual(members);
          }
        }
      }
    },
  );

  it('a call that needs a collective of later is refused', () => {
    const graph = small(load('torch/mlp-loss/joint.expanded'), 'd=4');
    const plan = drawn(graph, 'd=4', 1);
    const program = lower(graph, plan, { table: TABLE });
    const written = planSchedule(graph, plan, TABLE);
    const order = callOrder(callsByTask(program, written), written.tasks);
    expect(inOrder(program, order).graph.nodes.length).toBe(program.graph.nodes.length);
    const latestFirst: CallOrder = { calls: [...order.calls].reverse(), buckets: [] };
    expect(() => inOrder(program, latestFirst)).toThrow(
      /needs \S+, which the simulation has later/,
    );
  });
});
