/**
 * Reads the JSON that `compare` prints for several points, for `report`. The type of the schema is
 * that of the record.
 */

import * as z from 'zod';

import { ShardwrightError } from '../../errors.ts';
import { itemAt } from '../../item-at.ts';
import type { Planning } from '../../sweep/planning/planning.ts';
import {
  allocationSchema,
  checkpointSchema,
  riskierSchema,
  runSchema,
  stepKeys,
} from './comparison-schema.ts';

const count = z.int().positive();

const probability = z.number().min(0).max(1).nullable();

const point = z.looseObject({
  model: z.string(),
  cluster: z.string(),
  devices: count,
  sequence: count,
  globalBatch: count,
  budgetBytes: z.number().nonnegative(),
  risk: z.number().min(0).max(1).exactOptional(),
  safest: z
    .looseObject({ plan: z.string(), mesh: z.string(), fitProbability: probability })
    .exactOptional(),
  riskier: riskierSchema.exactOptional(),
  best: z
    .looseObject({
      plan: z.string(),
      mesh: z.string(),
      ...stepKeys,
      seconds: z.number().positive(),
      peakBytes: z.number().nonnegative(),
      fitProbability: probability.exactOptional(),
      tokensPerSecond: z.number().positive(),
      tokensPerSecondPerDevice: z.number().positive(),
      mfu: z.number().nonnegative(),
      microbatch: count,
      microbatches: count,
      checkpoint: checkpointSchema,
      unitsAgain: z.int().nonnegative().exactOptional(),
    })
    .nullable(),
  held: allocationSchema.exactOptional(),
  warnings: z.array(z.string()).exactOptional(),
  run: runSchema.exactOptional(),
  stopped: z.enum(['interrupted', 'time limit']).exactOptional(),
});

/** The place of a point, null where there is none. */
const place = z.int().nonnegative().nullable();

const planningSchema: z.ZodType<Planning> = z
  .looseObject({
    version: z.literal(1),
    points: z.array(point).min(1).max(10_000),
    curves: z.array(
      z.looseObject({
        of: z.string(),
        axis: z.enum(['devices', 'sequence', 'globalBatch']),
        scaling: z.enum(['strong', 'weak']).exactOptional(),
        points: z.array(z.int().nonnegative()).min(1),
        efficiency: z.array(z.number().nonnegative().nullable()),
        changes: z.array(
          z.looseObject({ at: z.int().nonnegative(), from: z.string(), to: z.string() }),
        ),
      }),
    ),
    goals: z
      .looseObject({
        within: z
          .looseObject({
            withinSeconds: z.number().positive(),
            at: place,
            surely: place,
            wouldTake: z.looseObject({ devices: count, cluster: z.string() }).exactOptional(),
          })
          .exactOptional(),
        spend: z
          .looseObject({
            spend: z.looseObject({ amount: z.number().positive(), currency: z.string() }),
            at: place,
            tokens: z.number().nonnegative(),
            seconds: z.number().nonnegative(),
          })
          .exactOptional(),
      })
      .exactOptional(),
  })
  .refine(
    ({ points, curves }) =>
      curves.every(
        (c) => c.efficiency.length === c.points.length && c.points.every((i) => i < points.length),
      ),
    'a curve names a point that is not there',
  )
  .refine(
    ({ points, goals: { within, spend } = {} }) =>
      [within?.at, within?.surely, spend?.at].every((at) => (at ?? 0) < points.length),
    'a goal names a point that is not there',
  );

/** Points side by side from their JSON value. @throws E_TYPE with the path of what does not fit */
export function asPlanning(value: unknown, file: string): Planning {
  const parsed = planningSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = itemAt(parsed.error.issues, 0);
  throw new ShardwrightError('E_TYPE', `$.${issue.path.join('.')}: ${issue.message}`, {
    file,
    hint: 'give what `shardwright compare MODEL --cluster A --cluster B --json` prints.',
  });
}
