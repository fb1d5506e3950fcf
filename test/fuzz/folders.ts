/**
 * Plan folders with one or two fields changed, with and without the hashes of the plan. Each is
 * refused with a code, or the check names a difference; what it accepts states no other seconds
 * than the plan that was written.
 */
import fc from 'fast-check';
import { expect } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { checkPlan } from '../../src/plan/questions/check-plan.ts';
import { type PlanTexts, planTexts, readPlanFolder } from '../../src/plan/record/folder.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { TABLE } from '../simulate/random/builder.ts';
import { requests } from './programs.ts';
import { fuzzer } from './runner.ts';

type Json = Record<string, unknown> | unknown[];

const VALUES = [
  null,
  0,
  -1,
  1e-12,
  1e300,
  0.5,
  '',
  'R',
  'S(0)',
  'P(sum)',
  '__proto__',
  'optimal',
  true,
  [],
  {},
];
const examples = fc.record({
  asked: requests(3),
  edits: fc.array(
    fc.record({
      at: fc.nat(100_000),
      other: fc.nat(100_000),
      kind: fc.constantFrom('value', 'other', 'delete', 'double'),
    }),
    { minLength: 1, maxLength: 2 },
  ),
  file: fc.constantFrom('plan' as const, 'plan' as const, 'plan' as const, 'certificate' as const),
  hashed: fc.boolean(),
});

/** Every place in a JSON value: what holds it, and its key. */
function places(value: unknown, found: [Json, string][] = []): [Json, string][] {
  if (typeof value === 'object' && value !== null)
    for (const [key, inner] of Object.entries(value)) {
      found.push([value as Json, key]);
      places(inner, found);
    }
  return found;
}

export const FOLDERS = fuzzer(
  'plan folders',
  40,
  examples,
  async ({ asked, edits, file, hashed }) => {
    const made = await leastCostPlan(asked.graph, asked.request, { table: TABLE });
    if (made.status !== 'planned') throw new Error('no plan');
    const written = planTexts(made.plan, made.prepared.question.program, made.certificate);
    const json = JSON.parse(written[file]) as Json & { hashes?: Plan['hashes'] };
    for (const { at, other, kind } of edits) {
      const all = places(json);
      const [[holder, key], [from, name]] = [all[at % all.length], all[other % all.length]];
      const slot = holder as Record<string, unknown>;
      if (kind === 'delete') delete slot[key];
      else if (kind === 'double')
        slot[key] = typeof slot[key] === 'number' ? slot[key] * 2 : [slot[key], slot[key]];
      else
        slot[key] = structuredClone(
          kind === 'other'
            ? (from as Record<string, unknown>)[name]
            : VALUES[other % VALUES.length],
        );
    }
    if (JSON.stringify(json) === JSON.stringify(JSON.parse(written[file]))) return 'unchanged';
    const texts: PlanTexts = { ...written, [file]: JSON.stringify(json) };
    // The forger leaves the hashes out.
    const forged = hashed
      ? texts
      : {
          ...texts,
          plan: JSON.stringify({ ...(JSON.parse(texts.plan) as object), hashes: undefined }),
        };
    try {
      const { program, request, ...folder } = readPlanFolder(forged, 'plan.json');
      const { differences } = checkPlan({ ...folder, program: program!, request: request! }, TABLE);
      if (differences.length > 0) return 'differences';
      expect(hashed, 'a changed plan with its hashes is accepted').toBe(false);
      const { objective, proof } = folder.plan;
      expect(objective.seconds).toBeCloseTo(made.plan.objective.seconds, 12);
      expect(proof.bound).toBeLessThanOrEqual(made.plan.objective.seconds * (1 + 1e-9));
      return 'accepted without hashes';
    } catch (error) {
      if (!(error instanceof ShardwrightError) || error.code === 'E_INTERNAL') throw error;
      return error.code;
    }
  },
);
