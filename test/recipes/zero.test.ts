import { describe, expect, it } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { sgd } from '../../src/passes/training/optimizer.ts';
import { trainStep } from '../../src/passes/training/train-step.ts';
import { decode } from '../../src/plan/choice/decode.ts';
import { randomChoice } from '../../src/plan/choice/random-plan.ts';
import { planMemoryTimeline } from '../../src/plan/choice/timeline.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { Prepared } from '../../src/plan/prepare/prepared.ts';
import { priceRestriction } from '../../src/recipes/compare/price.ts';
import { applyRecipe, meshRecipes } from '../../src/recipes/recipes.ts';
import { zeroFromData } from '../../src/recipes/zero.ts';
import { input, parameter, trace } from '../../src/trace/trace.ts';
import { load, request, TABLE } from '../plan/support.ts';

/**
 * Gradients of a loss of three rows, by weights whose elements three devices cannot share evenly and
 * beside which activations are small.
 */
const gradients = (): Graph =>
  jointGraph(
    trace(({ x, w, v }) => x.matmul(w).relu().matmul(v).square().mean(), {
      x: input([3, 10]),
      w: parameter([10, 70]),
      v: parameter([70, 500]),
    }),
  );

/** The choice of plain data parallelism over devices that divide no weight evenly. */
async function dataParallel(
  program: Graph,
  activations: 'constraint' | 'off' = 'constraint',
  cost: 'alpha-beta' | 'nccl' = 'alpha-beta',
): Promise<[Prepared, Int32Array]> {
  const asked = request('d=3', { activations, cost, optimizer: 'adam' });
  const prepared = prepare(program, asked, TABLE);
  const recipe = meshRecipes(prepared.model).find(({ name }) => name === 'data parallel (d)');
  const applied = recipe === undefined ? undefined : applyRecipe(prepared.model, recipe);
  if (applied === undefined) throw new Error('no data parallelism');
  if ('refused' in applied) throw new Error(applied.refused);
  const priced = await priceRestriction(prepared, applied.restriction);
  if ('refused' in priced) throw new Error(priced.refused);
  return [prepared, priced.choice];
}

/** Bytes of a third, of which the largest counts. */
const third = (bytes: number): number => Math.ceil(bytes / 3);

/** The same with most bytes in the first weight, whose gradient is made last. */
const lastIsLargest = (): Graph =>
  jointGraph(
    trace(({ x, w, v }) => x.matmul(w).relu().matmul(v).square().mean(), {
      x: input([3, 500]),
      w: parameter([500, 70]),
      v: parameter([70, 10]),
    }),
  );

describe('ZeRO-1 and ZeRO-2 of a data-parallel plan', () => {
  it.each([
    [1, gradients],
    [2, gradients],
    [2, lastIsLargest],
  ] as const)('the peak of stage %d is that of its bytes at every time', async (stage, of) => {
    const [prepared, choice] = await dataParallel(of());
    const { intervals } = planMemoryTimeline(prepared.model, choice);
    const end = Math.max(...intervals.map((interval) => interval.end));
    // Of stage 2 a gradient is whole while it is made, and a part of it is kept.
    const bytesAt = (time: number): number =>
      intervals
        .filter(({ start, end: last }) => start <= time && time <= last)
        .reduce((sum, { kind, bytes, start }) => {
          const isCut =
            kind === 'optimizer' || (kind === 'gradient' && stage === 2 && time > start);
          return sum + (isCut ? third(bytes) : bytes);
        }, 0);
    const peak = Math.max(...Array.from({ length: end + 1 }, (_, time) => bytesAt(time)));
    expect(zeroFromData(prepared, choice, stage).peakBytes).toBe(peak);
  });

  it.each([
    ['that the program gives', gradients],
    ['that its optimizer reads', () => trainStep(gradients(), sgd({ lr: 0.1 }))],
  ])(
    'each all-reduce of a gradient %s becomes a reduce-scatter and an all-gather',
    async (_, of) => {
      // By measured times the two together take other times than the all-reduce.
      const [asked, data] = await dataParallel(of(), 'constraint', 'nccl');
      const { model } = asked;
      const plain = decode(model, data);
      const { step, seconds, communicationSeconds } = zeroFromData(asked, data, 1);
      const dims = model.space.mesh.resolve(['d']);
      let difference = 0;
      const before = [...plain.nodes, ...plain.outputs].flatMap((x) => x.redistributions);
      const after = [...step.nodes, ...step.outputs].flatMap((x) => x.redistributions);
      let changed = 0;
      before.forEach((move, k) => {
        const kinds = after[k].collectives.map(({ kind }) => kind);
        if (kinds.join() === move.collectives.map(({ kind }) => kind).join()) return;
        changed++;
        expect(move.collectives.map(({ kind }) => kind)).toEqual(['all_reduce']);
        expect(kinds).toEqual(['reduce_scatter', 'all_gather']);
        const [{ bytes }] = move.collectives;
        const price = (kind: 'all_reduce' | 'reduce_scatter' | 'all_gather'): number =>
          model.collectives.seconds(kind, bytes, dims);
        difference +=
          (price('reduce_scatter') + price('all_gather') - price('all_reduce')) * (move.times ?? 1);
      });
      // Every parameter has a gradient to sum; the loss is summed by a plain all-reduce.
      expect(changed).toBe(model.stateBytes.size);
      expect(Math.abs(difference)).toBeGreaterThan(1e-9);
      expect(communicationSeconds - plain.communicationSeconds).toBeCloseTo(difference, 15);
      expect(seconds - communicationSeconds).toBeCloseTo(plain.computeSeconds, 15);
    },
  );

  it('sums that a loop makes count as often as it runs', () => {
    const prepared = prepare(
      load('torch/hop-scan-joint/joint.expanded'),
      request('d=2', { cost: 'nccl', optimizer: 'adam' }),
      TABLE,
    );
    const { model } = prepared;
    const dims = model.space.mesh.resolve(['d']);
    let often = 0;
    for (let seed = 1; seed <= 12; seed++) {
      const choice = randomChoice(model, seed);
      const plain = decode(model, choice);
      let difference = 0;
      const sum = ({ redistributions }: (typeof plain.nodes)[number]): void => {
        for (const { collectives, times = 1 } of redistributions)
          for (const { kind, bytes } of collectives) {
            if (kind !== 'all_reduce') continue;
            if (times > 1) often++;
            const price = (one: 'all_reduce' | 'reduce_scatter' | 'all_gather'): number =>
              model.collectives.seconds(one, bytes, dims);
            difference += times * (price('reduce_scatter') + price('all_gather') - price(kind));
          }
      };
      plain.nodes.forEach((node, n) => {
        const isCall = model.graph.nodes[n].kind === 'call';
        if (isCall && model.flow.phases[n] !== 'forward') sum(node);
      });
      const scattered = zeroFromData(prepared, choice, 1);
      expect(scattered.communicationSeconds - plain.communicationSeconds).toBeCloseTo(
        difference,
        12,
      );
    }
    expect(often).toBeGreaterThan(0);
  });

  it('without activations it is the states alone, a third of what the stage cuts', async () => {
    const [{ model, question }, plain] = await dataParallel(gradients(), 'off');
    for (const stage of [1, 2] as const) {
      let bytes = 0;
      for (const [n, { localElements, parameter, gradient, optimizer }] of model.stateBytes) {
        const elements = localElements[plain[model.nodeVariable[n]]];
        const part = Math.ceil(elements / 3);
        bytes += parameter * elements + gradient * (stage === 2 ? part : elements);
        bytes += optimizer * part;
      }
      expect(zeroFromData({ model, question }, plain, stage).peakBytes).toBe(bytes);
    }
  });
});
