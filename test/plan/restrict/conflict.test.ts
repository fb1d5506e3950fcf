import { describe, expect, it } from 'vitest';

import { leastCostPlanOf } from '../../../src/plan/least-cost-plan.ts';
import { prepare } from '../../../src/plan/prepare/prepare.ts';
import type { Prepared } from '../../../src/plan/prepare/prepared.ts';
import { Restriction } from '../../../src/plan/restrict/restriction.ts';
import { priceRestriction } from '../../../src/recipes/compare/price.ts';
import { input, parameter } from '../../../src/trace/record/spec.ts';
import type { Tensor } from '../../../src/trace/tensor/tensor.ts';
import { trace } from '../../../src/trace/trace.ts';
import { request, TABLE } from '../support.ts';

/** Where no choice is left, the node that is left none is named, never a number of the solver's. */

const graph = trace(({ x, w }: Record<'x' | 'w', Tensor>) => x.matmul(w).neg().gelu(), {
  x: input([8, 16]),
  w: parameter([16, 8]),
});

/**
 * The product left cut, its negation taken as a pending sum: no redistribution makes the one of the
 * other.
 */
function stuck(): { readonly prepared: Prepared; readonly restriction: Restriction } {
  const prepared = prepare(graph, request('a=2'), TABLE);
  const restriction = new Restriction(prepared.model);
  const { strategies, space, nodeVariable } = prepared.model;
  const keep = (name: string, column: number, wanted: string): void => {
    const n = prepared.model.graph.nodes.findIndex((node) => node.name === name);
    const { set } = strategies.nodes[n]!;
    const width = set.inputCount + set.outputCount;
    restriction.keep(
      nodeVariable[n],
      name,
      (a) => space.text(set.specs[a * width + column]) === wanted,
    );
  };
  keep('mm', 2, 'S(0)');
  keep('neg', 0, 'P(sum)');
  return { prepared, restriction };
}

describe('a problem without a choice', () => {
  it('is contradicted by no single node', () => {
    expect(stuck().restriction.contradictions()).toEqual([]);
  });

  it('says of a recipe which node is left no placement, though most variables were taken out before solving', async () => {
    const { prepared, restriction } = stuck();
    const priced = await priceRestriction(prepared, restriction);
    const refused = 'refused' in priced ? priced.refused : 'priced';
    expect(refused).toMatch(
      /^no placement of %(mm|neg) \(aten\.(mm|neg)\.default\) goes with those of the nodes around it$/,
    );
  });

  it('says it of a plan too', async () => {
    const { prepared, restriction } = stuck();
    const result = await leastCostPlanOf({
      ...prepared,
      left: {
        ...prepared.left,
        problem: restriction.problem(),
        compact: restriction.compact(),
      },
    });
    expect(result).toMatchObject({
      status: 'infeasible',
      conflict: [expect.stringMatching(/^no placement of %(mm|neg) /)],
    });
  });
});
