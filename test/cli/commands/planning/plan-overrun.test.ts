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
    'time limit of 10.0 s: reading and preparing took 7.00 s; there will be no time to check the ' +
      'plan that is written, which takes at least 6.00 s more',
  );
  expect(timesOf(12, taken).aheadText(12)).toBeUndefined();
  expect(timesOf(undefined, taken).aheadText(undefined)).toBeUndefined();
});

it('a plan whose check the limit does not allow is written without it, and the line says so', () => {
  const taken: readonly [string, number][] = [
    ['reading', 1],
    ['preparing', 2],
    ['search and re-costing', 6],
    ['printing', 1],
  ];
  // 10 s are used, and 2 s would follow: a tenth more than the limit is allowed.
  expect(timesOf(10.5, taken).uncheckedText(10.5, 'out')).toBe(
    'time limit of 10.5 s: the plan is written without its check, which takes at least 2.00 s, ' +
      'and without the problems that it makes; check it with `shardwright check-plan out`',
  );
  expect(timesOf(11, taken).uncheckedText(11, 'out')).toBeUndefined();
  expect(timesOf(undefined, taken).uncheckedText(undefined, 'out')).toBeUndefined();
});

it('the time before the clock of the command was read counts, too', () => {
  const deadline = new Deadline(10, { clock: { now: () => 5_000 }, since: 2_000 });
  expect(deadline.usedSeconds).toBe(3);
});
