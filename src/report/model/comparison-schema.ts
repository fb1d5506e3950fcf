/**
 * Reads the output of `compare --json`, for `report` and for `compare --merge`. The type of the
 * schema is that of the record, so that a key that is added there and forgotten here does not
 * compile. Further keys are kept.
 */

import * as z from 'zod';

import { ShardwrightError } from '../../errors.ts';
import { itemAt } from '../../item-at.ts';
import type { Comparison } from '../../recipes/compare/comparison.ts';
import { PIPELINE_SCHEDULES } from '../../simulate/pipeline/schedules.ts';
import { POLICIES, RECOMPUTE_MODULES } from '../../step/checkpoints.ts';

const MOST_PLANS = 100_000;

const stage = z.looseObject({
  first: z.int().nonnegative(),
  end: z.int().nonnegative(),
  embedding: z.boolean(),
  head: z.boolean(),
  seconds: z.number().nonnegative(),
  forwardSeconds: z.number().nonnegative(),
  backwardInputSeconds: z.number().nonnegative(),
  backwardWeightSeconds: z.number().nonnegative(),
  peakBytes: z.number(),
  inFlight: z.int(),
  idleShare: z.number(),
});

const boundary = z.looseObject({
  bytes: z.number().nonnegative(),
  seconds: z.number().nonnegative(),
});

/** The recomputation: a policy, or modules joined by `+`. */
export const checkpointSchema = z.union([
  z.enum(POLICIES),
  z.enum(RECOMPUTE_MODULES),
  z.templateLiteral([z.enum(RECOMPUTE_MODULES), '+', z.string()]),
]);

/** A range, low and high. */
const band = z.tuple([z.number().nonnegative(), z.number().nonnegative()]);

/** The layout of a plan that was composed from priced layers. */
const layout = z.looseObject({
  computeSeconds: z.number(),
  exposedCommunicationSeconds: z.number(),
  bubbleSeconds: z.number(),
  tokensPerSecond: z.number(),
  mfu: z.number(),
  memory: z.looseObject({
    parameterBytes: z.number(),
    gradientBytes: z.number(),
    optimizerBytes: z.number(),
    activationBytes: z.number(),
    temporaryBytes: z.number(),
  }),
  sizes: z.looseObject({
    pp: z.int().positive(),
    dp_replicate: z.int().positive(),
    dp_shard: z.int().positive(),
    cp: z.int().positive(),
    tp: z.int().positive(),
    ep: z.int().positive(),
    etp: z.int().positive().exactOptional(),
  }),
  microbatch: z.int().positive(),
  microbatches: z.int().positive(),
  schedule: z.enum(PIPELINE_SCHEDULES),
  chunks: z.int().positive(),
  checkpoint: checkpointSchema,
  recomputes: z.array(z.string()).exactOptional(),
  unitsAgain: z.int().nonnegative().exactOptional(),
  stated: z.string().exactOptional(),
  gathersOnce: z.literal(true).exactOptional(),
  pairsMicrobatches: z.literal(true).exactOptional(),
  stages: z.array(stage).max(4096),
  boundaries: z.array(boundary).max(4096),
  pointToPointBytes: z.number().nonnegative(),
  pricedLayers: z.number(),
  placements: z.string().exactOptional(),
  shallowProof: z
    .looseObject({ status: z.string(), bound: z.number(), gap: z.number(), objective: z.number() })
    .exactOptional(),
});

const traffic = z.looseObject({
  kind: z.string(),
  axes: z.string(),
  count: z.number(),
  sentBytes: z.number(),
  seconds: z.number(),
  exposedSeconds: z.number().exactOptional(),
});

const certainty = z.looseObject({
  p10: z.number().nonnegative(),
  p90: z.number().nonnegative(),
  from: z.string(),
  runs: z.int().nonnegative(),
  families: z.array(z.string()),
  alikeShare: z.number().nonnegative(),
  alikeGroups: z.int().nonnegative(),
  alike: z.array(z.string()).max(MOST_PLANS),
  simplest: z.string().nullable().exactOptional(),
  recommended: z.string().nullable(),
  order: z.array(z.string()),
});

/** Keys that every answer has for a step: its time, the range of that, the trainer. */
export const stepKeys = {
  stepSeconds: z.number().nonnegative().exactOptional(),
  stepBand: band.nullable().exactOptional(),
  trainer: z.string().exactOptional(),
};

const plan = z.looseObject({
  name: z.string(),
  plan: z.string(),
  origin: z.enum(['ilp', 'zoo']),
  mesh: z.string(),
  ...stepKeys,
  seconds: z.number(),
  simulatedSeconds: z.number().nonnegative().exactOptional(),
  communicationSeconds: z.number(),
  peakBytes: z.number(),
  fits: z.boolean(),
  overBytes: z.number().exactOptional(),
  secondsBand: band.exactOptional(),
  fitProbability: z.number().min(0).max(1).nullable().exactOptional(),
  choice: z.boolean(),
  proof: z
    .looseObject({
      status: z.string(),
      bound: z.number(),
      gap: z.number(),
      goodEnough: z.number().exactOptional(),
    })
    .exactOptional(),
  traffic: z.array(traffic).exactOptional(),
  why: z.string().exactOptional(),
  cause: z.string().exactOptional(),
  dominatedBy: z.string().exactOptional(),
  layout: layout.exactOptional(),
  pipeline: z
    .looseObject({
      schedule: z.enum(PIPELINE_SCHEDULES),
      microbatches: z.int().positive(),
      cuts: z.array(z.string()),
      bubbleSeconds: z.number().nonnegative(),
      gap: z.number().nonnegative(),
    })
    .exactOptional(),
});

const refused = z.looseObject({
  plan: z.string(),
  mesh: z.string(),
  code: z.string().exactOptional(),
  reason: z.string(),
});

const finding = z.looseObject({
  plan: z.string(),
  mesh: z.string(),
  code: z.string(),
  severity: z.enum(['error', 'warn', 'info']),
  message: z.string(),
  values: z.record(z.string(), z.number()),
  nearest: z.array(z.number()),
});

const mesh = z.looseObject({
  mesh: z.string(),
  hosts: z.array(z.int().positive()),
  status: z.enum([
    'solved',
    'beaten',
    'refused',
    'infeasible',
    'not asked',
    'not reached',
    'not found',
  ]),
  boundSeconds: z.number().exactOptional(),
  code: z.string().exactOptional(),
  reason: z.string().exactOptional(),
  smallestBudgetBytes: z.number().exactOptional(),
  neededBytes: z.number().exactOptional(),
});

const whatIf = z.looseObject({
  change: z.string(),
  best: z.string().nullable(),
  mesh: z.string().exactOptional(),
  seconds: z.number().exactOptional(),
  same: z.boolean(),
  settings: z.string().exactOptional(),
  next: z.string().exactOptional(),
});

export const riskierSchema = z.looseObject({
  plan: z.string(),
  mesh: z.string(),
  settings: z.string().exactOptional(),
  seconds: z.number().nonnegative(),
  peakBytes: z.number().nonnegative(),
  fitProbability: z.number().min(0).max(1),
  faster: z.number().nullable(),
});

const question = z.looseObject({
  model: z.string(),
  sequence: z.number(),
  globalBatch: z.number(),
  cost: z.string(),
  layers: z.number(),
  pricedLayers: z.number(),
  layerKinds: z.number(),
  mfuConvention: z.string(),
  trainer: z.string().exactOptional(),
  adapters: z
    .looseObject({ text: z.string(), trained: z.number(), parameters: z.number() })
    .exactOptional(),
});

const padding = z.looseObject({
  multiple: z.int().positive(),
  vocabulary: z.int().positive(),
  byTensor: z.array(
    z.looseObject({
      tensor: z.int().positive(),
      rows: z.int().positive(),
      parameters: z.int().nonnegative(),
    }),
  ),
});

/** The cost of a run. */
export const runSchema = z.looseObject({
  tokens: z.number().positive(),
  steps: z.number().positive(),
  stepsSeconds: z.number().nonnegative(),
  wallSeconds: z.number().nonnegative(),
  wallSecondsBand: band.nullable().exactOptional(),
  goodput: z.number().min(0).max(1),
  deviceHours: z.number().nonnegative(),
  price: z.looseObject({ amount: z.number().nonnegative(), currency: z.string() }).exactOptional(),
  priceBand: band.nullable().exactOptional(),
  energyMegawattHours: z.number().nonnegative().exactOptional(),
  kilowatts: z.number().nonnegative().exactOptional(),
  carbonTonnes: z.number().nonnegative().exactOptional(),
  tokensPerSecond: z.number().nonnegative(),
  tokensPerCurrency: z.number().nonnegative().exactOptional(),
  betweenFailuresSeconds: z.number().positive(),
  checkpointEverySeconds: z.number().positive(),
  checkpointWriteSeconds: z.number().positive(),
  restartSeconds: z.number().nonnegative(),
  assumptions: z.array(z.string()),
});

const errors = { bias: z.number(), mape: z.number() };
const refit = z.looseObject({
  runs: z.int().positive(),
  notPriced: z.array(z.looseObject({ line: z.int(), id: z.string(), reason: z.string() })),
  elsewhere: z.int().nonnegative(),
  taken: z.boolean(),
  constants: z.array(z.looseObject({ name: z.string(), before: z.number(), after: z.number() })),
  before: z.looseObject(errors),
  after: z.looseObject(errors),
  leftOut: z.looseObject({ ...errors, by: z.enum(['group', 'run']) }),
  range: z.looseObject({ p10: z.number(), p90: z.number() }).exactOptional(),
});

const asked = z.looseObject({
  text: z.string(),
  assumes: z.string().exactOptional(),
  from: z
    .looseObject({
      file: z.string(),
      format: z.string(),
      notPriced: z.array(z.looseObject({ key: z.string(), value: z.string(), why: z.string() })),
    })
    .exactOptional(),
  name: z.string(),
  mesh: z.string(),
  ...stepKeys,
  seconds: z.number().nonnegative(),
  tokensPerSecond: z.number().nonnegative(),
  peakBytes: z.number().nonnegative(),
  fits: z.boolean(),
  secondsBand: band.exactOptional(),
  fitProbability: z.number().min(0).max(1).exactOptional(),
  computeSeconds: z.number().nonnegative(),
  communicationSeconds: z.number().nonnegative(),
  bubbleSeconds: z.number().nonnegative(),
  microbatches: z.int().positive(),
  run: runSchema.exactOptional(),
  overBest: z.number().exactOptional(),
  edits: z.array(
    z.looseObject({
      change: z.string(),
      seconds: z.number(),
      peakBytes: z.number(),
      fitProbability: z.number().min(0).max(1).exactOptional(),
    }),
  ),
});

/** Hosts that a plan holds. */
export const allocationSchema = z.looseObject({
  hosts: z.int().positive(),
  usedPerHost: z.int().positive(),
  devicesPerHost: z.int().positive(),
  idleDevices: z.int().nonnegative(),
  heldDevices: z.int().positive(),
});

const comparisonSchema: z.ZodType<Comparison> = z.looseObject({
  stopped: z
    .looseObject({
      by: z.enum(['interrupted', 'time limit']),
      notAsked: z.array(z.string()),
      boundSeconds: z.number().positive().exactOptional(),
    })
    .exactOptional(),
  model: z.string().exactOptional(),
  microbatches: z.int().positive().exactOptional(),
  devices: z.int().positive(),
  cluster: z.string(),
  budgetBytes: z.number().nonnegative(),
  holds: z.enum(['peak', 'states']).exactOptional(),
  plans: z.array(plan).max(MOST_PLANS),
  refused: z.array(refused).max(MOST_PLANS),
  findings: z.array(finding).max(10 * MOST_PLANS),
  meshes: z.array(mesh).max(MOST_PLANS),
  risk: z.number().min(0).max(1).exactOptional(),
  safeBytes: z.number().nonnegative().exactOptional(),
  best: z.string().nullable(),
  safest: z.string().exactOptional(),
  riskier: riskierSchema.exactOptional(),
  held: allocationSchema.exactOptional(),
  pareto: z.array(z.string()),
  simulatedRanking: z.array(z.string()).exactOptional(),
  question: question.exactOptional(),
  padding: padding.exactOptional(),
  certainty: certainty.exactOptional(),
  unsure: z.string().exactOptional(),
  refit: refit.exactOptional(),
  notes: z.array(z.string()).exactOptional(),
  warnings: z.array(z.string()).exactOptional(),
  frontier: z
    .array(
      z.looseObject({
        peakBytes: z.number(),
        seconds: z.number(),
        gap: z.number().nullable(),
        name: z.string(),
      }),
    )
    .exactOptional(),
  priceOfMemory: z
    .array(z.looseObject({ fromBytes: z.number(), toBytes: z.number(), deltaSeconds: z.number() }))
    .exactOptional(),
  nextBest: z
    .array(
      z.looseObject({
        kind: z.string(),
        name: z.string(),
        mesh: z.string(),
        deltaSeconds: z.number(),
      }),
    )
    .exactOptional(),
  whatIf: z.array(whatIf).exactOptional(),
  smallestBudgetBytes: z.number().exactOptional(),
  neededBytes: z.number().exactOptional(),
  run: runSchema.exactOptional(),
  layout: asked.exactOptional(),
});

/**
 * A comparison from its JSON value.
 *
 * @param file where it comes from, for messages
 * @throws E_TYPE with the path of what does not fit
 */
export function asComparison(value: unknown, file: string): Comparison {
  const parsed = comparisonSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = itemAt(parsed.error.issues, 0);
  throw new ShardwrightError('E_TYPE', `$.${issue.path.join('.')}: ${issue.message}`, {
    file,
    hint: 'give what `shardwright compare ... --json` prints.',
  });
}
