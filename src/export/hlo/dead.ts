/** Keeps the instructions that the returned values depend on, in their order. */
import type { HloBody, Instruction, Val } from './code.ts';

interface Living {
  readonly code: readonly Instruction[];
  /** Notes of the collectives that were dropped. */
  readonly unread: ReadonlySet<string>;
}

export function withoutDead(
  code: readonly Instruction[],
  outputs: readonly (Val | null)[],
): Living {
  const read = new Set<number>();
  for (const value of outputs) if (value !== null) read.add(value.id);
  const unread = new Set<string>();
  return { code: living(code, read, unread), unread };
}

/** @param read ids that are read by what follows; grows by what the living instructions read */
function living(
  code: readonly Instruction[],
  read: Set<number>,
  unread: Set<string>,
): Instruction[] {
  const kept: Instruction[] = [];
  for (const instruction of [...code].reverse()) {
    if (!instruction.outputs.some(({ id }) => read.has(id))) {
      drop(instruction, unread);
      continue;
    }
    for (const { id } of instruction.inputs) read.add(id);
    const bodies = instruction.bodies.map((body): HloBody => {
      for (const { id } of body.returns) read.add(id);
      return { ...body, code: living(body.code, read, unread) };
    });
    kept.push({ ...instruction, bodies });
  }
  return kept.reverse();
}

function drop({ op, note, bodies }: Instruction, unread: Set<string>): void {
  if (op === 'collective' && note !== undefined) unread.add(note);
  for (const body of bodies) for (const inner of body.code) drop(inner, unread);
}
