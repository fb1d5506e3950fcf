import { expect, test } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { planFor } from './support.ts';

/** `y` is made in rows, and the product needs it whole; the second program returns it too. */
const program = (returned: string): string => `swgraph 1
graph @main {
  in %x: f32[1024, 1024] input "x"
  in %w: f32[1024, 1024] parameter "w"
  %y = aten.relu.default(%x): f32[1024, 1024]
  %z = aten.mm.default(%y, %w): f32[1024, 1024]
${returned}
}
`;
const PINS = [
  { node: 'x', spec: 'S(0)' },
  { node: 'y', spec: 'S(0)' },
  { node: 'z', spec: 'S(1)' },
];

async function gathers(returned: string): Promise<Plan> {
  const graph = parseGraph(program(returned));
  return planFor(graph, 'tp=8', { pins: PINS, outputs: 'R', objective: 'serial' });
}

test('an output that is placed as a copy that a call reads costs nothing more', async () => {
  const once = await gathers('  out %z output 0');
  const both = await gathers('  out %z output 0\n  out %y output 1');
  // Both programs gather `y` for the product and `z` for the caller: two gathers, one price.
  expect(both.objective.seconds).toBe(once.objective.seconds);
  const kinds = (plan: Plan): string[] =>
    [...plan.nodes, ...plan.outputs].flatMap(({ redistributions }) =>
      redistributions.flatMap(({ collectives }) => collectives.map(({ kind }) => kind)),
    );
  expect(kinds(once)).toEqual(['all_gather', 'all_gather']);
  expect(kinds(both)).toEqual(['all_gather', 'all_gather']);
});
