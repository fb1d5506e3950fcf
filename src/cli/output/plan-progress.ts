/**
 * Writes and reads `progress.json` in a plan folder: the solver's steps on the way to the plan. It
 * is a file of its own because it has clock times, and equal requests give equal plan files.
 */

import { createHash } from 'node:crypto';
import { existsSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';

import * as z from 'zod';

import { ShardwrightError } from '../../errors.ts';
import { itemAt } from '../../item-at.ts';
import { readFileText } from '../../platform/read-file.ts';
import type { Incumbents, WrittenProgress } from '../../report/analysis/incumbents.ts';
import { parseJson } from '../../text/json.ts';

export const PROGRESS_FILE = 'progress.json';
const REMOVE = 'make the plan again, or remove progress.json.';

const progressSchema = z.strictObject({
  version: z.literal(1),
  /** SHA-256 of the `plan.json` that the steps led to. */
  plan: z.string(),
  steps: z
    .array(
      z.strictObject({
        phase: z.string(),
        /** Step time of the best plan so far; null before there is one. */
        seconds: z.number().nullable(),
        /** Proven: no plan takes less; null before there is a bound. */
        boundSeconds: z.number().nullable(),
        /** Seconds since the solver began. */
        clockSeconds: z.number().nonnegative(),
      }),
    )
    .min(1)
    .max(10_000),
});

/** The file of the steps on the way to the plan of this text; undefined where there are none. */
export function progressText(
  plan: string | Uint8Array,
  found: Incumbents | undefined,
): string | undefined {
  if (found === undefined) return undefined;
  const record: z.infer<typeof progressSchema> = {
    version: 1,
    plan: sha(plan),
    steps: found.steps.map(({ phase, seconds, bound }, k) => ({
      phase,
      seconds,
      boundSeconds: bound,
      clockSeconds: Number(itemAt(found.seconds, k).toPrecision(6)),
    })),
  };
  return `${JSON.stringify(record, null, 1)}\n`;
}

/**
 * The solver's steps in the folder of a plan, and whether they belong to this plan; undefined where
 * there are none.
 *
 * @param path plan folder, or the plan file in it
 * @throws E_SYNTAX, E_TYPE with the path of the field that does not fit
 */
export function readProgress(path: string): WrittenProgress | undefined {
  const folder = statSync(path).isDirectory() ? path : dirname(path);
  const file = join(folder, PROGRESS_FILE);
  if (!existsSync(file)) return undefined;
  const value = parseJson(readFileText(file), { file, hint: REMOVE });
  const parsed = progressSchema.safeParse(value);
  if (!parsed.success) {
    const issue = itemAt(parsed.error.issues, 0);
    throw new ShardwrightError('E_TYPE', `$.${issue.path.join('.')}: ${issue.message}`, {
      file,
      hint: REMOVE,
    });
  }
  const plan = folder === path ? join(folder, 'plan.json') : path;
  const { steps } = parsed.data;
  return {
    isOfPlan: parsed.data.plan === sha(readFileText(plan)),
    steps: steps.map(({ phase, seconds, boundSeconds }) => ({
      phase,
      seconds,
      bound: boundSeconds,
    })),
    seconds: steps.map((s) => s.clockSeconds),
  };
}

function sha(text: string | Uint8Array): string {
  return createHash('sha256').update(text).digest('hex');
}
