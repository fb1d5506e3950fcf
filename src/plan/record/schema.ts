/**
 * The schema of plan files: it reads JSON text into a plan, or an error with its place in the text,
 * and is published as JSON Schema.
 */
import * as z from 'zod';

import { MEMORY_KINDS } from '../../cost/memory/peak.ts';
import { ShardwrightError } from '../../errors.ts';
import { parseJson } from '../../text/json.ts';
import { VERSION } from '../../version.ts';
import { jsonPath } from './certificate.ts';
import { schemaOf } from './schema-type.ts';
import { type Plan, PLAN_VERSION } from './types.ts';

const seconds = z.number().nonnegative();
const bytes = z.number().nonnegative();
const collective = z.object({ kind: z.string(), meshDims: z.array(z.string()), bytes, seconds });
const inside = collective.extend({
  node: z.string().exactOptional(),
  from: z.string().exactOptional(),
  to: z.string().exactOptional(),
  type: z.string().exactOptional(),
  source: z.string().exactOptional(),
  times: z.number().nonnegative().exactOptional(),
});
const step = z.object({
  kind: z.string(),
  meshDims: z.array(z.string()),
  to: z.string(),
  joinDim: z.int().nonnegative().exactOptional(),
  cutDim: z.int().nonnegative().exactOptional(),
  ops: z.array(z.string()).exactOptional(),
  pairs: z.array(z.tuple([z.int().nonnegative(), z.int().nonnegative()])).exactOptional(),
});
const redistribution = z.object({
  input: z.int().nonnegative(),
  value: z.string().exactOptional(),
  from: z.string(),
  to: z.string(),
  collectives: z.array(collective),
  steps: z.array(step).exactOptional(),
  seconds,
  executedSeconds: seconds.exactOptional(),
  times: z.number().nonnegative().exactOptional(),
  copy: z.enum(['made', 'reused']).exactOptional(),
  copyId: z.int().nonnegative().exactOptional(),
});

const stepFigures = z.object({
  trainer: z.string(),
  stepSeconds: seconds,
  peakBytes: bytes,
  recomputes: z.string().exactOptional(),
  parts: z
    .object({ forwardSeconds: seconds, backwardSeconds: seconds, onceSeconds: seconds })
    .exactOptional(),
});

const timeline = z.object({
  peakBytes: bytes,
  node: z.string(),
  phase: z.enum(['forward', 'backward']),
  activationBytes: bytes,
  byKind: z.partialRecord(z.enum(MEMORY_KINDS), bytes),
  largest: z.array(z.object({ name: z.string(), bytes, kind: z.enum(MEMORY_KINDS) })),
  curve: z.array(z.object({ bytes, node: z.int().nonnegative() })),
});

/** `PlanRequest.padVocabulary`. */
export const paddingSchema = z.strictObject({
  multiple: z.int().positive(),
  tensor: z.int().positive(),
  vocabulary: z.int().positive(),
  rows: z.int().positive(),
  parameters: z.int().nonnegative(),
});

/** The head of a request; `request.json` has its own schema. */
const requestHead = z.looseObject({
  mesh: z.string(),
  cluster: z.string(),
  padVocabulary: paddingSchema.exactOptional(),
});

export const planSchema = schemaOf<Plan, 'request'>()(
  z.object({
    version: z.literal(PLAN_VERSION),
    producer: z.string().exactOptional(),
    model: z.string(),
    mesh: z
      .array(z.object({ name: z.string(), size: z.int().positive(), hosts: z.int().positive() }))
      .min(1),
    cluster: z.string(),
    request: requestHead,
    objective: z.object({
      seconds,
      computeSeconds: seconds,
      communicationSeconds: seconds,
      executedCommunicationSeconds: seconds.exactOptional(),
    }),
    proof: z.object({
      status: z.enum(['optimal', 'feasible', 'infeasible']),
      bound: seconds,
      gap: z.number(),
      solver: z.string(),
      solveSeconds: seconds.nullable(),
      recheckedSeconds: seconds,
      roundingSeconds: seconds.exactOptional(),
      evidence: z.array(z.string()),
    }),
    memory: z.object({
      peakBytes: bytes,
      budgetBytes: bytes,
      parameterBytes: bytes,
      gradientBytes: bytes,
      optimizerBytes: bytes,
      activationBytes: bytes.nullable(),
      timeline: timeline.exactOptional(),
    }),
    step: stepFigures.exactOptional(),
    parameters: z.array(
      z.object({
        name: z.string(),
        shape: z.array(z.int().nonnegative()),
        placement: z.string(),
        tiedTo: z.string().exactOptional(),
      }),
    ),
    paddedParameters: z.int().nonnegative().exactOptional(),
    nodes: z.array(
      z.object({
        name: z.string(),
        target: z.string(),
        inputs: z.array(z.string()),
        outputs: z.array(z.string()),
        phase: z.enum(['forward', 'backward']).exactOptional(),
        operands: z.array(z.string()).exactOptional(),
        aliasOf: z.string().exactOptional(),
        local: z.array(z.array(z.int().nonnegative()).nullable()).exactOptional(),
        repeats: z.string().exactOptional(),
        random: z
          .object({ stream: z.string(), shape: z.array(z.int().nonnegative()) })
          .exactOptional(),
        seconds,
        times: z.number().nonnegative().exactOptional(),
        internalSeconds: seconds.exactOptional(),
        inside: z.array(inside).exactOptional(),
        redistributions: z.array(redistribution),
      }),
    ),
    outputs: z.array(
      z.object({
        value: z.string(),
        role: z.string(),
        of: z.string().exactOptional(),
        placement: z.string(),
        redistributions: z.array(redistribution),
      }),
    ),
    greedySeconds: seconds.nullable(),
    assumptions: z.array(z.string()),
    hashes: z
      .object({
        graph: z.string(),
        request: z.string(),
        certificate: z.string().exactOptional(),
        pipeline: z.string().exactOptional(),
        plan: z.string().exactOptional(),
      })
      .exactOptional(),
  }),
);

/** The schema of plan files as JSON Schema (draft 2020-12); published as docs/plan.schema.json. */
export function planJsonSchema(): object {
  return { title: `Shardwright plan, version ${PLAN_VERSION}`, ...z.toJSONSchema(planSchema) };
}

/**
 * Largest plan file that is read, in characters: about the longest string of V8. The plan of a
 * chain of a million calls has 295 million.
 */
const MAX_PLAN_LENGTH = 500 * 2 ** 20;

/**
 * Reads a plan from its JSON text.
 *
 * @throws E_SYNTAX for text that is not JSON, E_VERSION for another version, E_TYPE with the path
 *   of what does not fit
 */
export function readPlan(text: string, file?: string): Plan {
  const place = file !== undefined ? { file } : {};
  if (text.length > MAX_PLAN_LENGTH)
    throw new ShardwrightError(
      'E_LIMIT',
      `plan of ${text.length} characters, the limit is ${MAX_PLAN_LENGTH}`,
      place,
    );
  const value = parseJson(text, place);
  const version = z
    .looseObject({ version: z.unknown(), producer: z.string().exactOptional() })
    .safeParse(value);
  if (
    version.success &&
    version.data.version !== undefined &&
    version.data.version !== PLAN_VERSION
  ) {
    const { producer } = version.data;
    const whose = producer === undefined ? '' : `, with the prices of ${producer}`;
    throw new ShardwrightError(
      'E_VERSION',
      `plan version ${JSON.stringify(version.data.version)}${whose}; this program, ` +
        `shardwright ${VERSION}, reads version ${PLAN_VERSION}`,
      { ...place, path: '$.version', hint: 'make the plan again with this version.' },
    );
  }
  const parsed = planSchema.safeParse(value);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const path = jsonPath(issue.path);
    throw new ShardwrightError('E_TYPE', `${path}: ${issue.message}`, { ...place, path });
  }
  // The schema keeps every key of `Plan`; the request's own keys are checked where the request is
  // used.
  return value as Plan;
}
