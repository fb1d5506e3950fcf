import { readFileSync } from 'node:fs';

import { describe, expect, test } from 'vitest';

import { FULL } from '../support/full.ts';
import {
  caseName,
  expectAsOneProcess,
  type Outcome,
  RUNNING,
  type RunningCase,
} from './running-matrix.ts';
import { runningPlans } from './running-plans.ts';

/**
 * What real processes made of exported programs (`npm run test:engines` with SHARDWRIGHT_RECORD=1),
 * beside one process.
 */
interface Recorded extends Outcome {
  readonly name: string;
  readonly program: string;
}
const results = JSON.parse(
  readFileSync(new URL('../fixtures/running/results.json', import.meta.url), 'utf8'),
) as Record<string, Recorded>;

describe('recorded runs on PyTorch 2.13 with gloo', () => {
  test.each(Object.entries(results))('%s', (name, outcome) =>
    expectAsOneProcess(name, outcome.name, outcome),
  );

  /** Small models always; all of them with SHARDWRIGHT_FULL=1. */
  const ran = (one: RunningCase): boolean =>
    Object.keys(results).some((name) => name === caseName(`${one.model} ${one.mesh} optimum`, one));
  const cases = RUNNING.filter((one) => ran(one) && (FULL || one.model === 'mlp'));
  test.each(cases)(
    '$model on $mesh: the programs that ran are those that are written now',
    async (one) => {
      for (const { name, program, plannedBytes } of await runningPlans(
        one.model,
        one.mesh,
        one.known,
        one.request,
        one.order,
      )) {
        const then = results[caseName(name, one)];
        expect(program, caseName(name, one)).toBe(then.program);
        if (then.refused === undefined)
          expect(plannedBytes, caseName(name, one)).toBe(then.plannedBytes);
      }
    },
  );
});
