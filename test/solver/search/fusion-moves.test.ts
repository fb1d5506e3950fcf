/** Fused choices against enumeration. */
import { expect, test } from 'vitest';

import { evaluatePositions } from '../../../src/solver/dual/rounding.ts';
import { ProblemBuilder } from '../../../src/solver/problem/builder.ts';
import { PreparedProblem } from '../../../src/solver/search/prepared.ts';
import { Fusion } from '../../../src/solver/search/primal/fusion-moves.ts';
import { makeWorkspace } from '../../../src/solver/search/workspace.ts';
import type { Problem } from '../../../src/solver/types.ts';
import { mulberry32 } from '../support.ts';

/** A complete graph of equal variables with random tables. */
function complete(variables: number, values: number, random: () => number): Problem {
  const builder = new ProblemBuilder();
  for (let i = 0; i < variables; i++) builder.addVariable(new Float64Array(values));
  for (let i = 0; i < variables; i++)
    for (let j = i + 1; j < variables; j++)
      builder.addEdge(
        i,
        j,
        Float64Array.from({ length: values * values }, () => Math.floor(random() * 1000)),
      );
  return builder.build();
}

test('the fused choice is the cheapest of all that the choices take, variables of equal content sharing what they take', () => {
  const random = mulberry32(8);
  for (let round = 0; round < 20; round++) {
    const prepared = new PreparedProblem(complete(5, 6, random));
    const { net } = prepared;
    const fusion = new Fusion(net, makeWorkspace(prepared));
    const taken = new Set<number>();
    const offered: Int32Array[] = [];
    for (let k = 0; k < 4; k++) {
      const at = Int32Array.from({ length: 5 }, () => Math.floor(random() * (k + 1)));
      at.forEach((a) => taken.add(a));
      fusion.add(at, (found) => offered.push(found));
    }
    let least = Infinity;
    const values = [...taken];
    for (let code = 0; code < values.length ** 5; code++)
      least = Math.min(
        least,
        evaluatePositions(
          net,
          Int32Array.from(
            { length: 5 },
            (_, i) => values[Math.floor(code / values.length ** i) % values.length],
          ),
        ),
      );
    expect(offered).toHaveLength(1);
    expect(evaluatePositions(net, offered[0]), `round ${round}`).toBe(least);
  }
});
