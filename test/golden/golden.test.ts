/**
 * The golden requests keep their answers to the byte, and every plan passes its check.
 * `SHARDWRIGHT_RECORD=1 SHARDWRIGHT_FULL=1 npx vitest run test/golden` writes the answers: say in the
 * commit which changed, and why.
 */
import { readFileSync, writeFileSync } from 'node:fs';

import { afterAll, describe, expect, test } from 'vitest';

import { FULL } from '../support/full.ts';
import { type Golden, LONG, QUICK } from './requests.ts';

const FILE = new URL('golden.json', import.meta.url);
const RECORDS = process.env.SHARDWRIGHT_RECORD === '1';
const recorded = JSON.parse(readFileSync(FILE, 'utf8')) as Record<string, Golden>;

afterAll(() => {
  if (RECORDS) writeFileSync(FILE, `${JSON.stringify(recorded, null, 2)}\n`);
});

async function answersAsRecorded(name: string, answer: () => Promise<Golden>): Promise<void> {
  const found = await answer();
  expect(found['differences'] ?? 0).toBe(0);
  if (RECORDS) recorded[name] = found;
  else expect(found).toEqual(recorded[name]);
}

describe('a golden request has the answer that was recorded', () => {
  test.each(Object.keys(QUICK))('%s', (name) => answersAsRecorded(name, QUICK[name]), 60_000);
  test.runIf(FULL).each(Object.keys(LONG))(
    '%s',
    (name) => answersAsRecorded(name, LONG[name]),
    900_000,
  );
});
