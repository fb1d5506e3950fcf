/** What `plan` says of a limit that it exceeded. The clock counts what the test says: none measures. */
import { expect, it } from 'vitest';

import { StepTimes } from '../../../../src/cli/commands/planning/plan-overrun.ts';
import { Deadline } from '../../../../src/plan/request/deadline.ts';

function timesOf(limitSeconds: number | undefined, taken: readonly [string, number][]): StepTimes {
  let now = 0;
  const times = new StepTimes(new Deadline(limitSeconds, { clock: { now: () => now } }));
  for (const [name, seconds] of taken) {
    now += 1e3 * seconds;
    times.end(name);
  }
  return times;
}

it('a limit that is exceeded by more than a tenth is said, with what each step took', () => {
  const taken: readonly [string, number][] = [
    ['reading', 4],
    ['preparing', 2],
    ['search', 6],
  ];
  expect(timesOf(10, taken).overrunText(10)).toMatch(
    /^time limit of 10\.0 s exceeded by 20\.0 %, for reading 4\.00 s, preparing 2\.00 s, search 6\.00 s:/,
  );
  expect(timesOf(11, taken).overrunText(11)).toBeUndefined();
  expect(timesOf(undefined, taken).overrunText(undefined)).toBeUndefined();
});

it('a limit that the check will exceed is said before the search', () => {
  const taken: readonly [string, number][] = [
    ['reading', 1],
    ['preparing', 6],
  ];
  // The check prepares the program anew: 7 s are used, and 6 s follow.
  expect(timesOf(10, taken).aheadText(10)).toBe(
    'time limit of 10.0 s: reading and preparing took 7.00 s; checking and writing the plan, ' +
      'which no limit ends, take at least 6.00 s more',
  );
  expect(timesOf(12, taken).aheadText(12)).toBeUndefined();
  expect(timesOf(undefined, taken).aheadText(undefined)).toBeUndefined();
});

it('the time before the clock of the command was read counts, too', () => {
  const deadline = new Deadline(10, { clock: { now: () => 5_000 }, since: 2_000 });
  expect(deadline.usedSeconds).toBe(3);
});
