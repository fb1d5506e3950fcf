/** Loads the largest public IOPDDL file. It is read from a folder next to the checkout, and the test is skipped without it. */
import { existsSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { describe, expect, it } from 'vitest';

import { readIopddl } from '../../../src/contest/iopddl.ts';
import { FULL } from '../../support/full.ts';

const FILE = new URL('../../../../shared/fixtures/iopddl/A.json.gz', import.meta.url);
const full = FULL;

describe('IOPDDL: loading the largest public file (../shared/fixtures/iopddl)', () => {
  it.skipIf(!existsSync(FILE) || !full)(
    'counts are those published, equal tables are kept once',
    () => {
      const started = process.cpuUsage();
      const text = gunzipSync(readFileSync(FILE)).toString('latin1');
      const problem = readIopddl(JSON.parse(text));
      const { user, system } = process.cpuUsage(started);
      expect(text.length).toBeGreaterThan(90e6);
      expect(problem.domains).toHaveLength(34932);
      expect(problem.domains.reduce((a, b) => a + b, 0)).toBe(213736);
      expect(Math.max(...problem.domains)).toBe(129);
      expect(problem.edges.first).toHaveLength(54801);
      expect(problem.usage?.limit).toBe(472141920);
      expect(problem.tables.length).toBeLessThan(54801 / 10);
      // CPU seconds of the process, so that a busy machine does not fail it.
      expect((user + system) / 1e6).toBeLessThanOrEqual(3);
    },
    60_000,
  );
});
