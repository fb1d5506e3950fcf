/**
 * The integer program as `--emit-ilp` writes it: HiGHS reads the text and ends at the optimum of
 * brute force, or of the plan.
 */
import loadHighs from 'highs';
import { expect } from 'vitest';

import { prepare } from '../../src/plan/prepare/prepare.ts';
import { encode, lpText, programSize } from '../../src/solver/milp/encode.ts';
import { TABLE } from '../simulate/random/builder.ts';
import { build, exhaust } from '../solver/support.ts';
import { problems } from './problems.ts';
import { pinnedRequests, planOf, randomPins } from './programs.ts';
import { fuzzer } from './runner.ts';

type Highs = Awaited<ReturnType<typeof loadHighs>>;
let loaded: Promise<Highs> | undefined;

async function solved(
  text: string,
): Promise<{ readonly Status: string; readonly ObjectiveValue: number }> {
  return (await (loaded ??= loadHighs())).solve(text, { mip_rel_gap: 0, mip_abs_gap: 0 });
}

// Tolerances of HiGHS are absolute: costs of billions would be beyond them.
export const ILP = fuzzer('integer programs', 50, problems([1, 7]), async (plain) => {
  const { objective } = exhaust(plain);
  const { Status, ObjectiveValue } = await solved(lpText(encode(build(plain, true))));
  if (objective === Infinity) expect(Status).toMatch(/nfeasible/);
  else expect([Status, Math.round(ObjectiveValue)]).toEqual(['Optimal', objective]);
  return Status;
});

/** HiGHS solves programs of so many binaries in milliseconds. */
const MOST_BINARIES = 300;

export const PLAN_ILP = fuzzer(
  'integer programs of plans',
  8,
  pinnedRequests(3),
  async ({ asked: { graph, request }, random, picks }) => {
    const asked = {
      graph,
      request: { ...request, pins: randomPins({ graph, request }, random, picks).pins },
    };
    const {
      model,
      left: { problem },
    } = prepare(asked.graph, asked.request, TABLE);
    if (programSize(problem).binaries > MOST_BINARIES) return 'too large';
    const { Status, ObjectiveValue } = await solved(lpText(encode(problem)));
    const { seconds, communicationSeconds } = (await planOf(asked)).objective;
    expect(Status).toBe('Optimal');
    expect(Math.abs(ObjectiveValue / model.unitsPerSecond - seconds)).toBeLessThanOrEqual(
      1e-6 * seconds,
    );
    return communicationSeconds > 0 ? 'communicates' : 'does not';
  },
);
