import { describe, expect, it } from 'vitest';

import { prepare } from '../../src/plan/prepare/prepare.ts';
import { runsOf } from '../../src/strategy/runs.ts';
import { load, planFor, request, TABLE } from './support.ts';

const MLP = load('torch/mlp/joint.expanded');
const FOUR = 'a=2,b=2,c=2,d=2';
const limited = (assumptions: readonly string[]): boolean =>
  assumptions.some((a) => a.startsWith('Mesh of 4 dims:'));

describe('meshes of four dims', () => {
  it('every strategy and copy keeps to the limit that the plan states', () => {
    const { model, notes: assumptions } = prepare(MLP, request(FOUR), TABLE);
    expect(limited(assumptions)).toBe(true);
    const { space, strategies, copies, variables } = model;
    for (const entry of strategies.nodes) {
      if (entry === null) continue;
      for (const id of entry.set.specs)
        if (id >= 0) expect(runsOf(space, id)).toBeLessThanOrEqual(3);
    }
    for (const v of variables)
      if (v.kind === 'output')
        for (const id of v.specs) expect(runsOf(space, id)).toBeLessThanOrEqual(3);
    expect(copies.length).toBeGreaterThan(0);
    for (const { owned, copy } of copies)
      copy.forEach((q, z) => {
        if (q < 0) return;
        expect(runsOf(space, q)).toBeLessThanOrEqual(2);
        expect(runsOf(space, owned[z])).toBeLessThanOrEqual(2);
      });
  });

  it('no mesh of three dims that it refines has a better plan', async () => {
    const fine = await planFor(MLP, FOUR, { sharing: false });
    expect(fine.proof.status).toBe('optimal');
    for (const mesh of ['ab=4,c=2,d=2', 'a=2,bc=4,d=2', 'a=2,b=2,cd=4']) {
      const coarse = await planFor(MLP, mesh, { sharing: false });
      expect(coarse.proof.status).toBe('optimal');
      expect(limited(coarse.assumptions)).toBe(false);
      // Costs are rounded to units once a term.
      expect(fine.objective.seconds).toBeLessThanOrEqual(coarse.objective.seconds * (1 + 1e-9));
    }
  }, 60_000);

  it('a pin beyond the limit lifts it, and every limited strategy is among the free ones', () => {
    const free = prepare(
      MLP,
      request(FOUR, { pins: [{ node: 'primals_1', spec: 'S(0)RS(0)R' }] }),
      TABLE,
    );
    expect(limited(free.notes)).toBe(false);
    expect(free.left.contradictions).toEqual([]);
    const few = prepare(MLP, request(FOUR), TABLE);
    const texts = ({ model }: typeof few, n: number): Set<string> => {
      const set = model.strategies.nodes[n]?.set;
      const out = new Set<string>();
      if (set === undefined) return out;
      const width = set.inputCount + set.outputCount;
      for (let s = 0; s < set.count; s++)
        out.add(
          Array.from(set.specs.subarray(s * width, (s + 1) * width), (id) =>
            id < 0 ? '-' : model.space.get(id).orderedText,
          ).join(' '),
        );
      return out;
    };
    for (let n = 0; n < few.model.graph.nodes.length; n++) {
      const known = texts(free, n);
      for (const text of texts(few, n)) expect(known).toContain(text);
    }
  });

  it('dims of one device do not count', () => {
    const { notes: assumptions } = prepare(MLP, request('a=2,b=1,c=2,d=2'), TABLE);
    expect(assumptions.some((a) => a.startsWith('Mesh of'))).toBe(false);
  });
});
