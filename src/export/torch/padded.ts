/**
 * Adds the memory that collectives allocate where parts are uneven: the padded parts that are sent
 * become tensors of their own in the list of tasks, and results have the size in which they arrive.
 */
import { nodesByName } from '../../graph/nodes.ts';
import { isRef } from '../../graph/value.ts';
import { collectiveKind } from '../../lower/program/collectives.ts';
import type { DeviceProgram } from '../../lower/program/program.ts';
import type { TaskCalls } from '../../simulate/call-order/order-calls.ts';
import type { Buffer, Schedule, Task } from '../../simulate/timeline/schedule.ts';
import { COMPUTE } from '../../simulate/work/streams.ts';
import { largestBytes } from './program/collective-list.ts';

const PAD = 'aten.constant_pad_nd.default';

/** @param written the tasks of the plan, which buckets are made of */
export function withPads(
  program: DeviceProgram,
  callsOf: TaskCalls,
  written: readonly Task[],
  schedule: Schedule,
): Schedule {
  const nodes = nodesByName(program.graph);
  const byId = new Map(written.map((task) => [task.id, task]));
  const buffers: Buffer[] = [...schedule.buffers];
  let id = written.reduce((most, task) => Math.max(most, task.id), 0);
  const tasks = schedule.tasks.flatMap((task): Task[] => {
    if (task.collective === undefined) return [task];
    const pads: Task[] = [];
    const replaced = new Map<number, number>();
    for (const member of task.members ?? [task.id]) {
      const node = (callsOf.get(member) ?? []).flatMap((name) => nodes.get(name) ?? [])[0];
      const own = byId.get(member);
      if (node === undefined || own === undefined || collectiveKind(node.target) === undefined)
        continue;
      const [sent] = node.args;
      const input = isRef(sent) ? nodes.get(sent.name) : undefined;
      if (input?.target !== PAD || input.type.kind !== 'tensor' || node.type.kind !== 'tensor')
        continue;
      const [result] = own.writes;
      const bytes = Math.max(buffers[result].bytes, largestBytes(program, node.type));
      buffers[result] = { ...buffers[result], bytes };
      const pad =
        buffers.push({
          name: input.name,
          bytes: largestBytes(program, input.type),
          kind: 'communication',
          given: false,
          kept: false,
          weight: false,
        }) - 1;
      pads.push({
        id: ++id,
        name: input.name,
        kind: 'copy',
        stream: COMPUTE,
        seconds: 0,
        kernels: 0,
        reads: own.reads,
        writes: [pad],
        phase: task.phase,
      });
      for (const b of own.reads) replaced.set(b, pad);
    }
    return pads.length === 0
      ? [task]
      : [...pads, { ...task, reads: task.reads.map((b) => replaced.get(b) ?? b) }];
  });
  return { ...schedule, buffers, tasks };
}
