/**
 * Puts the calls of a lowered program into the order of a simulated step, and lists the collectives
 * that are one call.
 */
import { ShardwrightError } from '../../errors.ts';
import { runsBodies } from '../../graph/control.ts';
import { lintGraph } from '../../graph/lint.ts';
import { type GraphIndex, indexGraph } from '../../graph/order.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { isRef } from '../../graph/value.ts';
import { collectiveKind, readCollective } from '../../lower/program/collectives.ts';
import type { DeviceProgram, Redistributed } from '../../lower/program/program.ts';
import type { PlanSchedule } from '../timeline/from-plan.ts';
import { INSIDE, type Task } from '../timeline/schedule.ts';

/**
 * Calls of a per-device program by name; those that no name is given of are made where the first of
 * these needs them.
 */
export interface CallOrder {
  readonly calls: readonly string[];
  /** Collectives that travel together, of two members at least; they are neighbours in `calls`. */
  readonly buckets: readonly (readonly string[])[];
}

/** Calls of the program, by task (id). */
export type TaskCalls = ReadonlyMap<number, readonly string[]>;

/** Names the calls of tasks in their order. */
export function callOrder(callsOf: TaskCalls, tasks: readonly Task[]): CallOrder {
  const buckets: string[][] = [];
  const calls = tasks.flatMap(({ id, members }) => {
    const names = (members ?? [id]).flatMap((member) => callsOf.get(member) ?? []);
    if (members !== undefined && names.length > 1) buckets.push(names);
    return names;
  });
  return { calls, buckets };
}

/**
 * The calls that tasks are.
 *
 * @param written the schedule as the plan has it
 * @throws E_UNSUPPORTED where schedule and program do not have the same collectives and moves one
 *   by one: in loops and branches
 */
export function callsByTask(program: DeviceProgram, { tasks, moves }: PlanSchedule): TaskCalls {
  const { graph, mesh } = program;
  const refuse = (why: string): never => {
    throw new ShardwrightError(
      'E_UNSUPPORTED',
      `the simulated order is not that of this program: ${why}`,
      {
        hint: 'give --order program, in which calls stand as the plan lists them.',
      },
    );
  };
  if (runsBodies(graph)) refuse('it has loops or branches, whose runs are simulated as one');
  const out = new Map<number, readonly string[]>();
  const locals = new Map<string, string[]>();
  for (const { name, local } of program.values)
    locals.set(name, [...(locals.get(name) ?? []), local]);
  const kernels = new Map<string, number>();
  for (const { id, kind, name } of tasks) {
    if (kind !== 'compute') continue;
    kernels.set(name, id);
    out.set(id, locals.get(name) ?? []);
  }
  // Both have moves and collectives in the order of the plan.
  const lowered: readonly Redistributed[] = program.moves ?? [];
  const kinds = (list: readonly { readonly kind: string }[]): string =>
    list.map(({ kind }) => kind).join();
  if (kinds(lowered) !== kinds(moves))
    refuse(`it moves ${lowered.length} times, the simulation ${moves.length} times`);
  const collectives = graph.nodes.filter(({ target }) => collectiveKind(target) !== undefined);
  const isCollective = new Set(collectives.map(({ name }) => name));
  moves.forEach((move, k) => {
    const { local } = lowered[k];
    // Where pieces are copied before a collective alone, it needs the copy, which comes before it.
    for (const id of move.tasks) if (!isCollective.has(local)) out.set(id, [local]);
  });
  const simulated = tasks.filter(({ collective }) => collective !== undefined);
  if (collectives.length !== simulated.length)
    refuse(`it has ${collectives.length} collectives, the simulation ${simulated.length}`);
  simulated.forEach(({ id, name, collective: work }, k) => {
    const node = collectives[k];
    const { kind, meshDims } = readCollective(mesh, node.target, node.args);
    if (kind !== work?.kind || meshDims.join() !== work.meshDims.join())
      refuse(`${node.name} is another collective than the simulation has there`);
    out.set(id, [node.name]);
    // A call whose rule communicates is done when its collectives are: its kernels are what the
    // first of those reads.
    const kernel = kernels.get(name);
    const [read] = node.args;
    if (work?.key !== INSIDE || kernel === undefined || !isRef(read)) return;
    kernels.delete(name);
    out.set(kernel, [read.name]);
  });
  return out;
}

/**
 * The program with its calls in an order. Calls that the order does not name come right before the
 * first that needs them; those that only the return needs come after their operands, or at the end
 * where that is a collective, which nothing waits for sooner.
 *
 * @throws E_UNSUPPORTED where a call needs a collective that comes later
 */
export function inOrder(program: DeviceProgram, { calls, buckets }: CallOrder): DeviceProgram {
  const { graph } = program;
  const orderer = new CallOrderer(graph);
  const bucketOf = new Map(buckets.flatMap((names) => names.map((name) => [name, names] as const)));
  for (const name of calls) orderer.add(name, bucketOf.get(name) ?? [name]);
  const ordered = { ...graph, nodes: orderer.finish() };
  lintGraph(ordered);
  return { ...program, graph: ordered };
}

/** Puts the calls of a graph in an order. */
class CallOrderer {
  private readonly index: GraphIndex;
  private readonly isCollective: Uint8Array;
  /** Place of each node in the order; -1: none yet. */
  private readonly place: Int32Array;
  private readonly order: number[] = [];

  /** The order begins with the inputs. */
  constructor(private readonly graph: Graph) {
    const { nodes } = graph;
    this.index = indexGraph(graph);
    this.isCollective = Uint8Array.from(nodes, ({ target }) =>
      Number(collectiveKind(target) !== undefined),
    );
    this.place = new Int32Array(nodes.length).fill(-1);
    nodes.forEach(({ kind }, at) => {
      if (kind === 'placeholder') this.put(at);
    });
  }

  /** Puts a call and its bucket next, with the calls that they need. */
  add(name: string, bucket: readonly string[]): void {
    const { position } = this.index;
    const at = position.get(name);
    if (at === undefined || this.place[at] >= 0) return;
    const together = bucket.flatMap((member) => position.get(member) ?? []);
    for (const member of together)
      for (const operand of this.operandsOf(member)) this.bring(operand, member);
    for (const member of together) this.bring(member, member);
  }

  /** All nodes in order, with those that only the return needs. */
  finish(): Node[] {
    const { place, isCollective } = this;
    const { nodes } = this.graph;
    const after = new Map<number, number[]>();
    const last: number[] = [];
    const isLast = new Uint8Array(nodes.length);
    nodes.forEach((_, at) => {
      if (place[at] >= 0) return;
      let [behind, waits] = [-1, false];
      for (const operand of this.operandsOf(at)) {
        waits ||= isCollective[operand] === 1 || isLast[operand] === 1;
        behind = Math.max(behind, place[operand]);
      }
      if (waits || behind < 0) {
        isLast[at] = 1;
        last.push(at);
      } else {
        place[at] = behind;
        after.set(behind, [...(after.get(behind) ?? []), at]);
      }
    });
    return [...this.order.flatMap((at, k) => [at, ...(after.get(k) ?? [])]), ...last].map(
      (at) => nodes[at],
    );
  }

  private put(at: number): void {
    this.place[at] = this.order.length;
    this.order.push(at);
  }

  /** Puts a call after its operands. Only a collective that is wanted itself may come now. */
  private bring(at: number, wanted: number): void {
    if (this.place[at] >= 0) return;
    const { nodes } = this.graph;
    if (this.isCollective[at] === 1 && at !== wanted)
      throw new ShardwrightError(
        'E_UNSUPPORTED',
        `${nodes[wanted].name} needs ${nodes[at].name}, which the simulation has later`,
        { node: nodes[at].name },
      );
    for (const operand of this.operandsOf(at)) this.bring(operand, wanted);
    this.put(at);
  }

  private operandsOf(at: number): GraphIndex['operands'] {
    const { operandStart, operands } = this.index;
    return operands.subarray(operandStart[at], operandStart[at + 1]);
  }
}
