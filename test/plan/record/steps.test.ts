import { describe, expect, test } from 'vitest';

import { type DeviceMesh, parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { planSchema } from '../../../src/plan/record/schema.ts';
import type { PlannedStep } from '../../../src/plan/record/types.ts';
import { randomSource, small } from '../../export/programs.ts';
import { load } from '../support.ts';

/**
 * What a runtime that knows no planner makes of the listed steps: arrays on every device, moved
 * step by step.
 */
type Tensor = readonly Tensor[] | number;
const rows = (t: Tensor): readonly Tensor[] => (typeof t === 'number' ? [] : t);
const map = (t: Tensor, f: (x: number) => number): Tensor =>
  typeof t === 'number' ? f(t) : t.map((x) => map(x, f));
const add = (a: Tensor, b: Tensor): Tensor =>
  typeof a === 'number' ? a + Number(b) : a.map((x, i) => add(x, rows(b)[i]));
const at = (t: Tensor, dim: number, f: (t: readonly Tensor[]) => readonly Tensor[]): Tensor =>
  dim === 0 ? f(rows(t)) : rows(t).map((x) => at(x, dim - 1, f));
const chunk = (t: Tensor, dim: number, n: number, k: number): Tensor =>
  at(t, dim, (list) => list.slice((list.length / n) * k, (list.length / n) * (k + 1)));
const join = (list: readonly Tensor[], dim: number): Tensor =>
  dim === 0
    ? list.flatMap(rows)
    : rows(list[0]).map((_, i) =>
        join(
          list.map((t) => rows(t)[i]),
          dim - 1,
        ),
      );

/** Members of the group of a rank, the last of the listed mesh dims fastest. */
function group(mesh: DeviceMesh, dims: readonly string[], rank: number): number[] {
  const members = dims.reduce<number[][]>(
    (list, name) => {
      const d = mesh.indexOf(name);
      return list.flatMap((own) =>
        Array.from({ length: mesh.sizes[d] }, (_, c) => own.map((x, e) => (e === d ? c : x))),
      );
    },
    [[...mesh.coordinates(rank)]],
  );
  return members.map((own) => own.reduce((n, c, d) => n * mesh.sizes[d] + c, 0));
}

/**
 * The local tensor under plain words, a mesh dim after the other; of a pending sum the devices hold
 * parts of it.
 */
function placed(whole: Tensor, text: string, mesh: DeviceMesh, rank: number): Tensor {
  const words = text.match(/S\(\d+\)|R|P\(sum\)/g) ?? [];
  return words.reduce<Tensor>((own, word, d) => {
    const [n, c] = [mesh.sizes[d], mesh.coordinates(rank)[d]];
    if (word.startsWith('S')) return chunk(own, Number(word.slice(2, -1)), n, c);
    return word === 'R' ? own : map(own, (x) => (c === 0 ? x - (n - 1) * 0.25 * x : 0.25 * x));
  }, whole);
}

function run(step: PlannedStep, mesh: DeviceMesh, local: readonly Tensor[]): Tensor[] {
  return local.map((own, rank) => {
    const members = group(mesh, step.meshDims, rank);
    const [me, n] = [members.indexOf(rank), members.length];
    const sum = (): Tensor => members.map((r) => local[r]).reduce(add);
    switch (step.kind) {
      case 'all_gather':
        return join(
          members.map((r) => local[r]),
          step.joinDim ?? -1,
        );
      case 'all_reduce':
        return sum();
      case 'reduce_scatter':
        return chunk(sum(), step.cutDim ?? -1, n, me);
      case 'slice':
        return chunk(own, step.cutDim ?? -1, n, me);
      case 'to_partial':
        return me === 0 ? own : map(own, () => 0);
      case 'all_to_all':
        return join(
          members.map((r) => chunk(local[r], step.cutDim ?? -1, n, me)),
          step.joinDim ?? -1,
        );
      case 'collective_permute':
        return local[step.pairs?.find(([, target]) => target === rank)?.[0] ?? -1];
      default:
        return own;
    }
  });
}

const settled = (text: string, mesh: DeviceMesh, local: readonly Tensor[]): Tensor[] => {
  const pending = (text.match(/S\(\d+\)|R|P\(sum\)/g) ?? []).flatMap((word, d) =>
    word.startsWith('P') ? [mesh.names[d]] : [],
  );
  return local.map((_, rank) =>
    group(mesh, pending, rank)
      .map((r) => local[r])
      .reduce(add),
  );
};

const numbers = (shape: readonly number[], from = 1): Tensor => {
  const [rowsHere, ...rest] = shape;
  if (rowsHere === undefined) return from;
  const size = rest.reduce((a, b) => a * b, 1);
  return Array.from({ length: rowsHere }, (_, i) => numbers(rest, from + i * size));
};

describe.each(['a=2,b=2', 'a=2,b=3'])('steps of redistributions on %s', (text) => {
  const mesh = parseMesh(text);

  test('bring every tensor from its placement to the wanted one, by what the plan says alone', () => {
    const plain = /^(S\(\d+\)|R|P\(sum\))+$/;
    const kinds = new Set<string>();
    let moved = 0;
    for (let seed = 0; seed < 12; seed++) {
      const graph = small(load('torch/mlp-loss/joint.expanded'), text);
      const { plan } = randomSource(graph, text, seed);
      const types = new Map(graph.nodes.map(({ name, type }) => [name, type]));
      const copies = new Map<number, string>();
      for (const move of [...plan.nodes, ...plan.outputs].flatMap(
        ({ redistributions }) => redistributions,
      )) {
        const [name] = move.value?.split('[') ?? [];
        const type = types.get(name ?? '');
        if (move.copyId !== undefined) {
          const key = `${move.value} ${move.to}`;
          expect(copies.get(move.copyId) ?? key).toBe(key);
          expect(move.copy === 'made').toBe(!copies.has(move.copyId));
          copies.set(move.copyId, key);
        }
        if (
          move.steps === undefined ||
          type?.kind !== 'tensor' ||
          ![move.from, ...move.steps.map(({ to }) => to)].every((t) => plain.test(t))
        )
          continue;
        const whole = numbers(type.shape.map(Number));
        let local = mesh.devices.map((_, rank) => placed(whole, move.from, mesh, rank));
        let from = move.from;
        for (const step of move.steps) {
          local = run(step, mesh, local);
          kinds.add(step.kind);
          from = step.to;
          const wanted = mesh.devices.map((_, rank) =>
            placed(whole, from.replaceAll('P(sum)', 'R'), mesh, rank),
          );
          expect(settled(from, mesh, local), `${move.from} ${JSON.stringify(move.steps)}`).toEqual(
            wanted,
          );
        }
        expect(from).toBe(move.to);
        moved++;
      }
      expect(planSchema.shape.nodes.safeParse(plan.nodes).success).toBe(true);
    }
    expect(moved).toBeGreaterThan(20);
    expect([...kinds]).toEqual(
      expect.arrayContaining(['all_gather', 'reduce_scatter', 'slice', 'all_reduce']),
    );
  });
});
