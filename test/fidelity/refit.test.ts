import { beforeAll, describe, expect, it } from 'vitest';

import { publicRuns } from '../../scripts/validation-figures.ts';
import { FITTED } from '../../src/cost/kernels/fitted.ts';
import { parseCsv } from '../../src/fidelity/csv.ts';
import { RunPredictor } from '../../src/fidelity/predict-run.ts';
import { refitOn } from '../../src/fidelity/refit.ts';
import { parseRuns } from '../../src/fidelity/runs.ts';
import { TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';

const { columns, rows } = parseCsv(publicRuns(), []);
const written = (list: readonly ReadonlyMap<string, string>[]): string =>
  [columns, ...list.map((cells) => columns.map((c) => cells.get(c) ?? ''))]
    .map((row) => row.map((c) => (/[",\n]/.test(c) ? `"${c.replaceAll('"', '""')}"` : c)).join(','))
    .join('\n');
/**
 * Runs of one small model on one host, which share a program; the time of the host shows in them.
 */
const few = rows
  .filter(
    ({ cells }) =>
      cells.get('model')?.startsWith('GPT-16L-1024h') === true &&
      cells.get('tp') === '1' &&
      cells.get('mbs') === '1',
  )
  .slice(0, 6);

/** The runs as a machine of these constants would have measured them, by the model itself. */
async function measuredBy(constants: typeof FITTED): Promise<string> {
  const predictor = new RunPredictor(TABLE, { constants });
  const cells: Map<string, string>[] = [];
  for (const [i, run] of parseRuns(written(few.map((r) => r.cells))).runs.entries()) {
    const found = await predictor.predict(run);
    if ('reason' in found) throw new Error(`${run.id}: ${found.reason}`);
    cells.push(new Map([...few[i].cells, ['step_time_s', String(found.seconds)]]));
  }
  return written(cells);
}

describe('constants fitted on runs of a user', () => {
  const planted = { ...FITTED, eagerHostSeconds: 2 * FITTED.eagerHostSeconds };
  let slowHost = '';
  beforeAll(async () => {
    slowHost = await measuredBy(planted);
  });

  it.runIf(FULL)(
    'a host that is twice as slow is found, and left-out runs are predicted',
    async () => {
      const { constants, refit } = await refitOn(slowHost, 'dgx-a100-80gb', TABLE);
      expect(refit).toMatchObject({ runs: few.length, taken: true, elsewhere: 0, notPriced: [] });
      expect(refit.before.mape).toBeGreaterThan(0.2);
      expect(refit.leftOut.mape).toBeLessThan(refit.before.mape / 3);
      expect(refit.after.mape).toBeLessThan(0.05);
      expect(constants.eagerHostSeconds / planted.eagerHostSeconds).toBeGreaterThan(0.9);
      expect(constants.eagerHostSeconds / planted.eagerHostSeconds).toBeLessThan(1.1);
      // Constants that these runs do not show stay.
      expect(constants.compiledHostSeconds).toBe(FITTED.compiledHostSeconds);
    },
  );

  it('constants stay where nothing is to be gained', async () => {
    const { constants, refit } = await refitOn(await measuredBy(FITTED), 'dgx-a100-80gb', TABLE);
    expect(refit.taken).toBe(false);
    expect(constants).toEqual(FITTED);
    expect(refit.after).toEqual(refit.before);
    expect(refit.before.mape).toBeLessThan(1e-6);
  });

  it.each([
    [
      'a cell that is not a number',
      (t: string) => t.replace(/\n(r\d+,.*?),1024,/, '\n$1,wide,'),
      'E_CSV',
      /'hidden' holds 'wide'/,
    ],
    [
      'a column that is not there',
      (t: string) => t.replace(',gpu_type,', ',gpu,'),
      'E_CSV',
      /no column 'gpu_type'/,
    ],
    [
      'a column with a slip',
      (t: string) => t.replace(',framework,', ',framwork,'),
      'E_CSV',
      /'framwork', which is not read/,
    ],
    [
      'too few runs',
      (t: string) => t.split('\n').slice(0, 3).join('\n'),
      'E_INPUT',
      /2 runs .* needs 3/,
    ],
  ] as const)('%s is refused with its place', async (_, spoil, code, message) => {
    await expect(refitOn(spoil(slowHost), 'dgx-a100-80gb', TABLE)).rejects.toMatchObject({
      code,
      message: expect.stringMatching(message) as string,
    });
  });
});
