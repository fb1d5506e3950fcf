/**
 * Decides the order in which the exported program makes its calls: that of the plan, or that of the
 * faster simulated step. It also says which collectives become one call, and what that is worth.
 */
import type { ExportSource, OrderOptions } from '../../backend/target.ts';
import { ShardwrightError } from '../../errors.ts';
import { nodesByName, typesByName } from '../../graph/nodes.ts';
import type { Node } from '../../graph/types.ts';
import { isRef } from '../../graph/value.ts';
import { readCollective } from '../../lower/program/collectives.ts';
import type { DeviceProgram } from '../../lower/program/program.ts';
import type { CollectiveKind } from '../../mesh/collective-kinds.ts';
import { type CalledStep, issueOrder, playCalls } from '../../simulate/call-order/issue-order.ts';
import {
  type CallOrder,
  callOrder,
  callsByTask,
  inOrder,
} from '../../simulate/call-order/order-calls.ts';
import { type PlanSchedule, planSchedule } from '../../simulate/timeline/from-plan.ts';
import { checkSchedule, type Schedule, type Task } from '../../simulate/timeline/schedule.ts';
import { simulate } from '../../simulate/timeline/simulate.ts';
import { bytesText, secondsText } from '../../units.ts';
import { withPads } from './padded.ts';
import { isExchanged } from './program/arguments.ts';
import { type SplitProgram, splitProgram } from './program/split.ts';

/** The order of a program. */
export interface ProgramOrder {
  readonly name: 'program' | 'simulated';
  /** Absent: as the plan lists the calls, one by one. */
  readonly order?: TaskOrder;
  /**
   * The step of the calls in this order, and the most bytes of its tensors, counting each
   * collective's operands together with its results; absent where nothing was simulated.
   */
  readonly seconds?: number;
  readonly peakBytes?: number;
  /** Why it is this one, for people. */
  readonly note: string;
}

/**
 * The tasks of a plan in the order in which they are called. Programs of the plan at any sizes have
 * these tasks; the names of their calls may differ.
 */
interface TaskOrder {
  /** The schedule as the plan has it. */
  readonly written: PlanSchedule;
  readonly tasks: readonly Task[];
}

function callsOfOrder(program: DeviceProgram, { written, tasks }: TaskOrder): CallOrder {
  return callOrder(callsByTask(program, written), tasks);
}

/** Kinds that PyTorch has a coalesced form of. */
const COALESCED: ReadonlySet<CollectiveKind> = new Set<CollectiveKind>([
  'all_reduce',
  'all_gather',
  'reduce_scatter',
]);

/**
 * Simulates both orders and takes the faster one, or the one that is asked for. Both are priced as
 * a host calls them: a collective starts after the kernels that are called before it.
 *
 * @throws E_USAGE where the simulated order is asked for and the plan states no memory, or buckets
 *   are asked of the other; E_UNSUPPORTED where the simulated order is asked for and the program
 *   cannot have it
 */
export function chooseOrder(source: ExportSource, options: OrderOptions = {}): ProgramOrder {
  const { order: asked, bucketBytes } = options;
  if (asked === 'program' && bucketBytes !== undefined && bucketBytes !== 0)
    throw new ShardwrightError(
      'E_USAGE',
      '--order program calls collectives one by one, and --bucket is given',
      {
        hint: 'buckets are those of the simulation: give --order simulated.',
      },
    );
  const { memory } = source.plan;
  if (memory !== undefined) return fasterOrder(source, memory, options);
  if (asked === 'simulated')
    throw new ShardwrightError(
      'E_USAGE',
      'the plan states no memory, so there is no simulated order',
      {
        hint: 'give --order program, or make the plan again.',
      },
    );
  return {
    name: 'program',
    note: 'order  program: the plan states no memory, so nothing is simulated',
  };
}

/** The order of the plan, or the simulated one where that is asked for or faster. */
function fasterOrder(
  source: ExportSource,
  memory: NonNullable<ExportSource['plan']['memory']>,
  { order: asked, bucketBytes }: OrderOptions,
): ProgramOrder {
  const { program, plan, table } = source;
  const whole = { ...plan, memory };
  const written = planSchedule(program, whole, table);
  // The plan's own peak knows what loops hold.
  const listed = { ...playCalls(written, written.tasks.length), peakBytes: memory.peakBytes };
  const asListed = (why: string): ProgramOrder => ({
    name: 'program',
    ...listed,
    note: `order  program, ${priceText(listed)}${why}`,
  });
  if (asked === 'program') return asListed('');
  try {
    const { schedule, timeline } = simulate(program, whole, {
      table,
      bucketBytes: bucketBytes ?? 'auto',
    });
    const called = issueOrder(schedule, timeline);
    const { order, ...simulated } = inFunctions(source.lowered(), written, called);
    if (asked === undefined && simulated.seconds >= listed.seconds)
      return asListed('; no simulated order is faster');
    return {
      name: 'simulated',
      order,
      ...simulated,
      note:
        `order  simulated, ${priceText(simulated)}; as the plan lists the calls ` +
        priceText(listed),
    };
  } catch (error) {
    const isRefused = error instanceof ShardwrightError && error.code === 'E_UNSUPPORTED';
    if (asked === 'simulated' || !isRefused) throw error;
    return asListed(`; ${error.message}`);
  }
}

/**
 * The order of both functions, and what their calls take: what only outputs need is called before
 * the backward function.
 */
function inFunctions(
  program: DeviceProgram,
  written: PlanSchedule,
  called: Schedule,
): CalledStep & { readonly order: TaskOrder } {
  const callsOf = callsByTask(program, written);
  const order = { written, tasks: called.tasks };
  const ordered = inOrder(program, callOrder(callsOf, called.tasks));
  const forward = new Set(splitProgram(ordered.graph, true).forward.map(({ name }) => name));
  const isForward = ({ id, members, phase }: Task): boolean => {
    const names = (members ?? [id]).flatMap((member) => callsOf.get(member) ?? []);
    return names.length === 0 ? phase === 'forward' : names.some((name) => forward.has(name));
  };
  const first = called.tasks.filter(isForward);
  const tasks = [...first, ...called.tasks.filter((task) => !isForward(task))];
  checkSchedule({ ...called, tasks });
  const split = { ...called, tasks };
  return {
    order,
    ...playCalls(split, first.length, withPads(program, callsOf, written.tasks, split)),
  };
}

function priceText({ seconds, peakBytes }: CalledStep): string {
  return `${secondsText(seconds)} a step and ${bytesText(peakBytes)} at most`;
}

/** The program as two functions, each in the order. */
export function splitInOrder(program: DeviceProgram, tasks: TaskOrder | undefined): SplitProgram {
  if (tasks === undefined) return splitProgram(program.graph);
  const order = callsOfOrder(program, tasks);
  const split = splitProgram(inOrder(program, order).graph, true);
  const buckets = new Map<string, readonly Node[]>();
  const arranged = (nodes: readonly Node[]): readonly Node[] => {
    const byName = nodesByName({ nodes });
    for (const names of order.buckets)
      for (const members of alike(
        program,
        names.flatMap((name) => byName.get(name) ?? []),
      ))
        for (const { name } of members) buckets.set(name, members);
    // The members of a simulated bucket are neighbours; in a bucket of several kinds, those of each
    // kind are.
    const isWritten = new Set<string>();
    return nodes.flatMap((node) => {
      if (isWritten.has(node.name)) return [];
      const members = buckets.get(node.name) ?? [node];
      for (const { name } of members) isWritten.add(name);
      return members;
    });
  };
  return {
    ...split,
    forward: arranged(split.forward),
    backward: arranged(split.backward),
    buckets,
  };
}

/**
 * Collectives of a simulated bucket that one call can do: equal in kind, reduction, group and
 * dtype; groups of two at least.
 */
function alike({ graph, mesh }: DeviceProgram, nodes: readonly Node[]): (readonly Node[])[] {
  const types = typesByName(graph);
  const groups = new Map<string, Node[]>();
  for (const node of nodes) {
    const { kind, op, meshDims } = readCollective(mesh, node.target, node.args);
    const [input] = node.args;
    const type = isRef(input) ? types.get(input.name) : undefined;
    if (!COALESCED.has(kind) || type?.kind !== 'tensor' || !isExchanged(type.dtype)) continue;
    const key = `${kind} ${op ?? ''} ${meshDims.join()} ${type.dtype}`;
    groups.set(key, [...(groups.get(key) ?? []), node]);
  }
  return [...groups.values()].filter((members) => members.length > 1);
}
