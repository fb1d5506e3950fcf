/** Small random programs and requests for them. Comes out: the prepared request, and its plan. */
import fc from 'fast-check';

import type { Graph } from '../../src/graph/types.ts';
import { decode, type Decoded } from '../../src/plan/choice/decode.ts';
import { randomChoice } from '../../src/plan/choice/random-plan.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { DEFAULT_REQUEST, type Pin, type PlanRequest } from '../../src/plan/request/request.ts';
import { drawOf, ProgramBuilder, TABLE } from '../simulate/random/builder.ts';
import { grow } from '../simulate/random/control.ts';
import { withBackward } from '../simulate/random/program.ts';

/** Kernels and collectives that start at once: small tensors are worth cutting and moving. */
const EAGER = JSON.stringify({
  base: 'dgx-a100-80gb',
  launchSeconds: 1e-12,
  matmulLaunchSeconds: 1e-12,
  baseLatencySeconds: 1e-12,
});

export interface Asked {
  readonly graph: Graph;
  readonly request: PlanRequest;
}

/**
 * Programs of 1 to `calls` calls, half of them with their backward pass. A smaller one is the
 * beginning of a larger one.
 */
export function requests(calls: number): fc.Arbitrary<Asked> {
  return fc
    .record({
      seed: fc.noShrink(fc.nat(1_000_000)),
      calls: fc.integer({ min: 1, max: calls }),
      backward: fc.boolean(),
      mesh: fc.constantFrom('d=2', 'd=3', 'a=2,b=2', 'a=2,b=3', 'a=4,b=2', 'a=2,b=2,c=2'),
      cluster: fc.constantFrom('dgx-h100', EAGER, EAGER),
      strided: fc.constantFrom('off' as const, 'all' as const),
    })
    .map(({ seed, calls: most, backward, ...asked }) => {
      const builder = new ProgramBuilder(drawOf(seed));
      grow(builder, most);
      const forward = builder.build('random');
      const graph = backward ? (withBackward(forward) ?? forward) : forward;
      return {
        graph,
        request: { ...DEFAULT_REQUEST, ...asked },
        [fc.toStringMethod]: () => JSON.stringify({ seed, calls: most, backward, ...asked }),
      };
    });
}

/** The plan of a request that must have one. */
export async function planOf({ graph, request }: Asked): Promise<Plan> {
  const result = await leastCostPlan(graph, request, { table: TABLE });
  if (result.status !== 'planned') throw new Error(`infeasible: ${result.conflict.join(', ')}`);
  return result.plan;
}

/** A random plan of a request, and pins that it obeys: those of the calls and inputs at `picks`. */
export function randomPins(
  { graph, request }: Asked,
  random: number,
  picks: readonly number[],
): { readonly drawn: Decoded; readonly pins: readonly Pin[] } {
  const { model } = prepare(graph, request, TABLE);
  const drawn = decode(model, randomChoice(model, random));
  const tensors = new Set(
    model.graph.nodes.filter(({ type }) => type.kind === 'tensor').map(({ name }) => name),
  );
  const single = drawn.nodes.filter(({ name, outputs }) => tensors.has(name) && outputs[0] !== '-');
  return {
    drawn,
    pins: picks
      .map((at) => single[at % single.length])
      .map(({ name, outputs }) => ({ node: name, spec: outputs[0] })),
  };
}

/** Requests with the seed of a random plan, and places of pins in it. */
export const pinnedRequests = (
  calls: number,
): fc.Arbitrary<{ asked: Asked; random: number; picks: number[] }> =>
  fc.record({
    asked: requests(calls),
    random: fc.noShrink(fc.nat(1_000_000)),
    picks: fc.array(fc.nat(1000), { minLength: 1, maxLength: 4 }),
  });
