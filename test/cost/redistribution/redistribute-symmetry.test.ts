import { describe, expect, it } from 'vitest';

import type { CollectiveModel } from '../../../src/cost/collective-model.ts';
import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { collectiveModel } from '../../../src/cost/presets/presets.ts';
import { PathFinder } from '../../../src/cost/redistribution/paths.ts';
import { SlotPricing } from '../../../src/cost/redistribution/pricing.ts';
import { Redistributor } from '../../../src/cost/redistribution/redistribute.ts';
import { StateGraph } from '../../../src/cost/redistribution/states.ts';
import { AxisExchanges } from '../../../src/cost/redistribution/symmetry.ts';
import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { shardable } from '../../../src/mesh/sharding/sharding.ts';
import { ShardingSpace } from '../../../src/mesh/sharding/space.ts';

/** Every sharding of a tensor, and the state graph of them all with its slot prices. */
function setup(meshText: string, shape: readonly number[]) {
  const mesh = parseMesh(meshText);
  const space = new ShardingSpace(mesh);
  const model: CollectiveModel = collectiveModel('alpha-beta', loadCluster('dgx-h100'), mesh);
  const type = { shape, itemBytes: 2 };
  const ids = space
    .enumerate(shape.length, { partialOps: ['sum'], orders: true })
    .filter((id) => shardable(space.get(id), mesh, shape));
  const graph = new StateGraph(space, [...mesh.sizes.keys()], shape.length, ids, true);
  const prices = new SlotPricing(space, model).slots(graph, type);
  return { space, model, type, ids, graph, prices };
}

describe('mesh dims of equal size and equal links change places', () => {
  it.each([
    // One host: all links are equal. The third mesh has no two equal dims.
    ['a=2,b=2,c=2', [8, 8], 3],
    ['a=2,b=2,c=2', [8, 6, 5], 3],
    ['a=2,b=4', [8, 8], 0],
    // Two hosts: a crosses them, b and c do not.
    ['a=2,b=2,c=4', [16, 16], 0],
    ['a=4,b=2,c=2', [16, 16], 1],
    ['a=2,b=2,c=2,d=2', [16, 16], 3],
  ] as const)(
    '%s, tensor %o: every price is that of a search of its own',
    (mesh, shape, exchanges) => {
      const { space, model, type, ids, graph, prices } = setup(mesh, shape);
      expect(new AxisExchanges(graph).withEqualPrices(prices)).toHaveLength(exchanges);
      const finder = new PathFinder(graph.edgeStart, graph.edgeTarget, graph.edgeSlot);
      const matrix = new Redistributor(space, model).matrix(type, ids, ids);
      // Every source on small meshes, one in seven on the largest.
      const step = ids.length > 300 ? 7 : 1;
      for (let i = 0; i < ids.length; i += step) {
        const row = finder.from(graph.stateOf(ids[i]), prices);
        const own = ids.map((id) => row[graph.stateOf(id)]);
        const planned = [...matrix.subarray(i * ids.length, (i + 1) * ids.length)];
        // What the planner refuses outright has a price in the bare graph.
        expect(planned.map((seconds, j) => (seconds === Infinity ? own[j] : seconds))).toEqual(own);
      }
    },
  );

  it('an exchange leads every step to a step of the same kind and size', () => {
    const { graph } = setup('a=2,b=2,c=2', [8, 6, 5]);
    for (const [a, b] of [
      [0, 1],
      [0, 2],
      [1, 2],
    ]) {
      const states = graph.swapped(a, b);
      const slots = graph.swappedSlots(a, b);
      if (states === undefined || slots === undefined)
        throw new Error('the graph is closed under exchanges');
      for (let s = 0; s < graph.stateCount; s++) {
        const steps = (at: number): string[] => {
          const out: string[] = [];
          for (let e = graph.edgeStart[at]; e < graph.edgeStart[at + 1]; e++)
            out.push(`${graph.edgeTarget[e]} ${graph.edgeSlot[e]}`);
          return out.sort();
        };
        const image = steps(s).map((step) => {
          const [target, slot] = step.split(' ').map(Number);
          return `${states[target]} ${slots[slot]}`;
        });
        expect(image.sort()).toEqual(steps(states[s]));
      }
    }
  });
});
