import type { ExportSource } from '../../src/backend/target.ts';
import type { Instruction } from '../../src/export/hlo/code.ts';
import { hloProgram } from '../../src/export/hlo/program.ts';
import { TABLE } from '../plan/support.ts';

/**
 * Collectives that are left when equal instructions on equal operands are one, as every compiler
 * makes them: a plan brings a value to the same placement once in each phase. Counted by HLO's
 * names.
 */
export function distinctCollectives(source: ExportSource): Record<string, number> {
  const { graph, symbols, mesh } = source.lowered();
  const counts: Record<string, number> = {};
  const numbers = new Map<number, number>();
  const walk = (
    code: readonly Instruction[],
    known: ReadonlyMap<string, readonly number[]>,
  ): void => {
    const seen = new Map(known);
    for (const { op, inputs, attributes, outputs, bodies } of code) {
      const own = inputs.map(({ id }) => numbers.get(id) ?? id).join();
      const types = outputs.map(({ dtype, shape }) => `${dtype}[${shape.join()}]`).join();
      const values = JSON.stringify(attributes, (_, v: unknown) =>
        typeof v === 'bigint' ? `${v}n` : Object.is(v, -0) ? '-0' : v,
      );
      const key = `${op}(${own}) ${types} ${values}`;
      const before = bodies.length > 0 ? undefined : seen.get(key);
      if (before !== undefined) {
        outputs.forEach(({ id }, k) => numbers.set(id, before[k]));
        continue;
      }
      seen.set(
        key,
        outputs.map(({ id }) => id),
      );
      for (const body of bodies) walk(body.code, seen);
      if (op !== 'collective') continue;
      const reduce = attributes['reduce'];
      const isExtreme =
        attributes['kind'] === 'reduce_scatter' && reduce !== 'sum' && reduce !== 'avg';
      const kind = isExtreme ? 'all-to-all' : String(attributes['kind']).replaceAll('_', '-');
      counts[kind] = (counts[kind] ?? 0) + 1;
    }
  };
  walk(hloProgram(graph, TABLE, { symbols, mesh }).code, new Map());
  return Object.fromEntries(Object.entries(counts).sort());
}
