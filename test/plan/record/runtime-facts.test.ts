import { describe, expect, test } from 'vitest';

import { printGraph } from '../../../src/graph/text/write.ts';
import { dimAtRank } from '../../../src/lower/program/rank-int.ts';
import { planSchema } from '../../../src/plan/record/schema.ts';
import type { PlannedNode } from '../../../src/plan/record/types.ts';
import { runningPlans } from '../../export/running-plans.ts';

/**
 * A line of graph.swg as a program reads it that knows no planner: names, operator, arguments as
 * text, tags.
 */
interface Line {
  readonly name: string;
  readonly target: string;
  readonly args: string;
  readonly reads: readonly string[];
}

function readLines(text: string): Map<string, Line> {
  const lines = [...text.matchAll(/^ +%(\S+) = ([\w.]+)\((.*)\): (?:[a-z]\w*\[|\().*$/gm)];
  return new Map(
    lines.map(([, name, target, args]) => [
      name,
      { name, target, args, reads: [...args.matchAll(/%([\w.]+)/g)].map(([, read]) => read) },
    ]),
  );
}

/**
 * Sizes that the device at a place in the mesh has: ceil chunks, one mesh dim after the other, `_S`
 * within each of its chunks.
 */
function localSizes(
  shape: readonly number[],
  placement: string,
  mesh: readonly number[],
  at: readonly number[],
): number[] {
  const words = placement.match(/_S\(\d+, \d+\)|S\(\d+\)|P\(\w+\)|R/g) ?? [];
  expect(words.length, placement).toBe(mesh.length);
  const sizes = [...shape];
  words.forEach((word, m) => {
    const [dim, chunks = 1] = (/\((.*)\)/.exec(word)?.[1].split(', ') ?? []).map(Number);
    if (!word.includes('S(')) return;
    const piece = (rows: number): number =>
      Math.max(0, Math.min(Math.ceil(rows / mesh[m]), rows - Math.ceil(rows / mesh[m]) * at[m]));
    const rows = sizes[dim];
    const chunk = Math.ceil(rows / chunks);
    sizes[dim] = Array.from({ length: chunks }, (_, k) =>
      piece(Math.max(0, Math.min(chunk, rows - chunk * k))),
    ).reduce((a, b) => a + b, 0);
  });
  return sizes;
}

describe('plan.json and graph.swg say what a runtime needs', () => {
  test.each([
    ['dropout', 'dp=2,tp=2', {}],
    ['uneven', 'dp=2,tp=2', {}],
    ['llama-sdpa', 'dp=2,tp=2', { checkpoint: 'full' as const }],
  ])(
    '%s on %s %o',
    async (model, mesh, request) => {
      const sizes = mesh.split(',').map((dim) => Number(dim.split('=')[1]));
      let copies = 0;
      for (const { plan, source } of await runningPlans(
        model,
        mesh,
        ['FSDP (dp) + Megatron (tp)'],
        request,
      )) {
        const nodes = JSON.parse(JSON.stringify(plan.nodes)) as PlannedNode[];
        expect(planSchema.shape.nodes.parse(nodes)).toEqual(nodes);
        const lines = readLines(printGraph(source.program));
        const byName = new Map(nodes.map((node) => [node.name, node]));
        /** The value behind a name, through its aliases. */
        const valueOf = (name: string): string => byName.get(name)?.aliasOf ?? name;

        // Operands: the names that the line reads, through other names of one value, in the order
        // of the call.
        let operands = 0;
        for (const { name, target, inputs, operands: read = [], aliasOf } of nodes) {
          const line = lines.get(name);
          if (line === undefined) {
            expect(target).toBe('placeholder');
            continue;
          }
          expect(line.target).toBe(target);
          if (aliasOf !== undefined) {
            const [maker] = aliasOf.split('[');
            const first = line.reads[0];
            if (target === 'operator.getitem')
              expect(aliasOf).toBe(`${valueOf(first)}[${line.args.split(', ')[1]}]`);
            else expect(lines.get(maker)?.target).toBe(target);
            continue;
          }
          expect(read.length, name).toBe(inputs.length);
          expect(read, name).toEqual(line.reads.map(valueOf));
          operands += read.length;
        }
        expect(operands).toBeGreaterThan(10);

        // Copies are shared by uses of one pass.
        const phases = new Map<number, string>();
        for (const { phase, redistributions } of nodes)
          for (const { copyId } of redistributions) {
            if (copyId === undefined) continue;
            expect(phases.get(copyId) ?? phase).toBe(phase);
            phases.set(copyId, phase ?? '');
          }
        copies += phases.size;
        const first = nodes.findIndex(({ phase }) => phase === 'backward');
        expect(nodes.slice(first).every(({ phase }) => phase === 'backward')).toBe(true);

        // Local sizes: as the reader cuts them, and as every device of the lowered program has
        // them.
        const program = source.lowered();
        const types = new Map(program.graph.nodes.map((node) => [node.name, node.type]));
        let tensors = 0;
        for (const { name, result, local, shape } of program.values) {
          const node = byName.get(name);
          const type = types.get(local);
          if (
            node?.outputs[result] === undefined ||
            type?.kind !== 'tensor' ||
            node.outputs[result].includes(']')
          )
            continue;
          for (let rank = 0; rank < program.mesh.size; rank++) {
            const own = localSizes(
              shape,
              node.outputs[result],
              sizes,
              program.mesh.coordinates(rank),
            );
            expect(own, `${name} on ${rank}`).toEqual(
              type.shape.map((dim) => dimAtRank(dim, program.symbols, rank)),
            );
            if (rank === 0) expect(node.local?.[result], name).toEqual(own);
          }
          tensors++;
        }
        expect(tensors).toBeGreaterThan(10);

        // Random streams are those that the devices draw from.
        const draws = nodes.filter(({ random }) => random !== undefined);
        expect(draws.length).toBe(model === 'dropout' ? 1 : 0);
        const pieces = [...program.random.values()];
        for (const { random, outputs } of draws) {
          const piece = pieces.find(({ stream }) => stream === random?.stream);
          expect({
            shape: piece?.shape,
            sharding: program.space.text(piece?.sharding ?? -1),
          }).toEqual({ shape: random?.shape, sharding: outputs[0] });
        }

        // What is computed again is the same call, of the same values or of ones that are computed
        // again themselves.
        const origin = (name: string): string => valueOf(byName.get(name)?.repeats ?? name);
        const plain = (line: Line): string =>
          line.args.replace(/%([\w.]+)/g, (_, read: string) => `%${origin(read)}`);
        const again = nodes.filter(({ repeats }) => repeats !== undefined);
        expect(again.length).toBeGreaterThan('checkpoint' in request ? 200 : 0);
        for (const { name, repeats, phase } of again) {
          const [own, other] = [lines.get(name), lines.get(repeats ?? '')];
          if (own === undefined || other === undefined)
            throw new Error(`${name} repeats ${repeats}, which is not there`);
          expect([own.target, plain(own)], name).toEqual([other.target, plain(other)]);
          expect([phase, byName.get(repeats ?? '')?.phase]).toEqual(['backward', 'forward']);
        }

        // Numbers that JSON cannot hold stand in the text of the program, to the last digit.
        if (model !== 'llama-sdpa') continue;
        const literals = [...lines.values()].flatMap(({ args }) => args.split(', '));
        expect(literals.filter((text) => text === '9223372036854775807').length).toBeGreaterThan(0);
        expect(literals.filter((text) => text === '-inf').length).toBeGreaterThan(0);
      }
      expect(copies).toBeGreaterThan(0);
    },
    120_000,
  );
});
