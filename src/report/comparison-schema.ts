import { z } from 'zod';
import { PIPELINE_SCHEDULES } from '../simulate/pipeline/schedules.ts';

const trafficSchema = z.looseObject({
  kind: z.string(),
  axes: z.string(),
  count: z.number(),
  sentBytes: z.number(),
  seconds: z.number(),
});

/** Of a plan that was put together from priced layers. */
const layoutSchema = z.looseObject({
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
  sizes: z.looseObject({ pp: z.int().positive() }),
  microbatch: z.int().positive(),
  microbatches: z.int().positive(),
  schedule: z.enum(PIPELINE_SCHEDULES),
  chunks: z.int().positive(),
  checkpoint: z.string(),
  unitsAgain: z.int().nonnegative().optional(),
  pairsMicrobatches: z.boolean().optional(),
  stages: z
    .array(
      z.looseObject({
        first: z.int(),
        end: z.int(),
        embedding: z.boolean(),
        head: z.boolean(),
        seconds: z.number().nonnegative(),
        peakBytes: z.number(),
        inFlight: z.int(),
        idleShare: z.number(),
      }),
    )
    .max(4096),
  pricedLayers: z.number(),
  placements: z.string().optional(),
  shallowProof: z.looseObject({ status: z.string(), gap: z.number() }).optional(),
});

/** What a report reads of a comparison, as `compare --json` prints it; further keys are kept in the JSON and not read. */
export const comparisonSchema = z.looseObject({
  devices: z.int().positive(),
  cluster: z.string(),
  budgetBytes: z.number().nonnegative(),
  plans: z
    .array(
      z.looseObject({
        name: z.string(),
        plan: z.string(),
        origin: z.string(),
        mesh: z.string(),
        seconds: z.number(),
        communicationSeconds: z.number(),
        peakBytes: z.number(),
        fits: z.boolean(),
        overBytes: z.number().optional(),
        why: z.string().optional(),
        traffic: z.array(trafficSchema).optional(),
        layout: layoutSchema.optional(),
        proof: z.looseObject({ status: z.string(), bound: z.number(), gap: z.number() }).optional(),
      }),
    )
    .max(100_000),
  refused: z
    .array(z.looseObject({ plan: z.string(), mesh: z.string(), code: z.string().optional(), reason: z.string() }))
    .max(100_000),
  meshes: z
    .array(
      z.looseObject({
        mesh: z.string(),
        status: z.string(),
        reason: z.string().optional(),
        boundSeconds: z.number().optional(),
      }),
    )
    .max(100_000),
  best: z.string().nullable(),
  pareto: z.array(z.string()),
  nextBest: z.array(z.looseObject({ kind: z.string(), name: z.string(), deltaSeconds: z.number() })).optional(),
  priceOfMemory: z
    .array(z.looseObject({ fromBytes: z.number(), toBytes: z.number(), deltaSeconds: z.number() }))
    .optional(),
  question: z
    .looseObject({
      model: z.string(),
      sequence: z.number(),
      globalBatch: z.number(),
      layers: z.number(),
      pricedLayers: z.number(),
      mfuConvention: z.string(),
    })
    .optional(),
  notes: z.array(z.string()).optional(),
  frontier: z.array(z.looseObject({ name: z.string(), peakBytes: z.number(), seconds: z.number() })).optional(),
  whatIf: z
    .array(
      z.looseObject({
        change: z.string(),
        best: z.string().nullable(),
        mesh: z.string().optional(),
        seconds: z.number().optional(),
        same: z.boolean(),
        next: z.string().optional(),
      }),
    )
    .optional(),
  smallestBudgetBytes: z.number().nullable().optional(),
});

export type ReadComparison = z.infer<typeof comparisonSchema>;
export type ReadPlan = ReadComparison['plans'][number];
