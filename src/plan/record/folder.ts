/**
 * Writes a plan, its program and certificate as the texts of a plan folder with hashes, and reads
 * and checks the texts of a folder.
 */
import * as z from 'zod';

import { checkKinds } from '../../arguments.ts';
import { GRADIENTS, OPTIMIZERS } from '../../cost/memory/state-bytes.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { parseGraph } from '../../graph/text/parse.ts';
import { printGraph } from '../../graph/text/write.ts';
import type { Graph } from '../../graph/types.ts';
import { builtinOperators } from '../../ops/builtin.ts';
import { openBodies } from '../../passes/plannable/open-bodies.ts';
import { sha256 } from '../../platform/platform.ts';
import { parseJson } from '../../text/json.ts';
import {
  ACTIVATIONS,
  CHECKPOINT_POLICIES,
  COPIES,
  MAPS,
  OBJECTIVES,
  type PlanRequest,
  type PricedRequest,
  SOLVERS,
  STRIDED,
  UNEVEN,
  UNKNOWN,
} from '../request/request.ts';
import { jsonPath, type PlanCertificate, readCertificate } from './certificate.ts';
import { paddingSchema, readPlan } from './schema.ts';
import { schemaOf } from './schema-type.ts';
import type { Plan } from './types.ts';

/** The texts of a plan folder; a plan file alone has only its own text. */
export interface PlanTexts {
  readonly plan: string;
  readonly graph?: string;
  readonly request?: string;
  /** The unpacked text of `certificate.json.gz`. */
  readonly certificate?: string;
  /** The text of `pipeline.json`: the stages of `plan --pp`. */
  readonly pipeline?: string;
}

/** A plan with what it was made from, as far as that is there. */
export interface PlanFolder {
  readonly plan: Plan;
  /**
   * The program that was planned, its bodies as bodies: what `prepare` takes to ask about the plan
   * again.
   */
  readonly program?: Graph;
  /** The nodes that the plan lists: the program with each body in line. */
  readonly graph?: Graph;
  readonly request?: PlanRequest;
  readonly certificate?: PlanCertificate;
  /** The contents of `pipeline.json`, and whether it is the file that was written with the plan. */
  readonly pipeline?: { readonly said: unknown; readonly isAsWritten: boolean };
  /** True if the plan is the one that was written, by its own hash; absent where it states none. */
  readonly isAsWritten?: boolean;
}

/**
 * The texts of a plan folder. The plan has the hashes of the other texts and of itself; clock times
 * are left out, so that equal requests give equal bytes.
 */
export function planTexts(
  plan: Plan,
  program: Graph,
  certificate: PlanCertificate,
  pipeline?: string,
): PlanTexts & Required<Omit<PlanTexts, 'pipeline'>> {
  checkKinds('planTexts', { plan: [plan, 'plan'], program: [program, 'graph'] });
  const graph = printGraph(program);
  const request = `${JSON.stringify(plan.request, null, 2)}\n`;
  const proof = `${JSON.stringify(certificate)}\n`;
  const still: Plan = {
    ...plan,
    proof: { ...plan.proof, solveSeconds: null },
    hashes: {
      graph: sha256(graph),
      request: sha256(request),
      certificate: sha256(proof),
      ...(pipeline === undefined ? {} : { pipeline: sha256(pipeline) }),
    },
  };
  const hashes = { ...still.hashes, plan: contentHash(still) };
  return {
    plan: `${JSON.stringify({ ...still, hashes }, null, 1)}\n`,
    graph,
    request,
    certificate: proof,
    ...defined({ pipeline }),
  };
}

/**
 * SHA-256 of a plan with the hashes of the files next to it, without its own. White space does not
 * count.
 */
function contentHash({ hashes, ...plan }: Plan): string {
  const { plan: _, ...others } = hashes ?? { plan: undefined };
  return sha256(JSON.stringify({ ...plan, hashes: others }));
}

const PIPELINE = 'pipeline.json';

/**
 * Largest `request.json`, in characters: a request may hold the text of a cluster file and
 * thousands of pins.
 */
const MAX_REQUEST_LENGTH = 16 * 2 ** 20;

const requestSchema = schemaOf<Omit<PlanRequest, 'cost'> & Pick<PricedRequest, 'cost'>>()(
  z.strictObject({
    mesh: z.string(),
    cluster: z.string(),
    memoryBytes: z.number().nonnegative().exactOptional(),
    headroom: z.number().min(0).max(1).exactOptional(),
    pins: z.array(z.strictObject({ node: z.string(), spec: z.string() })),
    optimizer: z.enum(OPTIMIZERS).exactOptional(),
    gradients: z.enum(GRADIENTS).exactOptional(),
    cost: z.string(),
    solver: z.enum(SOLVERS),
    gap: z.number().nonnegative(),
    budgetGap: z.number().exactOptional(),
    timeLimitSeconds: z.number().positive().exactOptional(),
    seed: z.int().nonnegative(),
    uneven: z.enum(UNEVEN),
    cuts: z.array(z.string()).exactOptional(),
    strided: z.enum(STRIDED).exactOptional(),
    shardings: z.literal('ignore').exactOptional(),
    unknown: z.enum(UNKNOWN),
    sharing: z.boolean(),
    copies: z.enum(COPIES).exactOptional(),
    joinedBodies: z.boolean().exactOptional(),
    compiled: z.literal(true).exactOptional(),
    accumulate: z.int().positive().exactOptional(),
    inputs: z.string(),
    outputs: z.string(),
    objective: z.enum(OBJECTIVES),
    activations: z.enum(ACTIVATIONS).exactOptional(),
    checkpoint: z.union([z.enum(CHECKPOINT_POLICIES), z.number().min(0).max(1)]).exactOptional(),
    recomputation: z.literal('chosen').exactOptional(),
    maps: z.enum(MAPS).exactOptional(),
    overlap: z.literal(true).exactOptional(),
    padVocabulary: paddingSchema.exactOptional(),
    recipe: z.string().exactOptional(),
    trainer: z.string().exactOptional(),
    trainerAssumed: z.literal(true).exactOptional(),
    risk: z.number().min(0).max(1).exactOptional(),
    inputDims: z
      .strictObject({
        batch: z.record(z.string(), z.int()).exactOptional(),
        sequence: z.record(z.string(), z.int()).exactOptional(),
      })
      .exactOptional(),
  }),
);

/**
 * Reads a plan folder from its texts, and checks its hashes: a graph or a request that was changed
 * after the plan was made is refused, because nothing said about the plan would be true of it.
 *
 * @param file where the texts come from, for messages
 * @throws E_SYNTAX, E_TYPE, E_VERSION for texts that cannot be read, E_PLAN for a folder whose
 *   parts do not belong together
 */
export function readPlanFolder(texts: PlanTexts, file: string): PlanFolder {
  checkKinds('readPlanFolder', { texts: [texts, ['plan']], file: [file, 'string'] });
  const plan = readPlan(texts.plan, file);
  const { graph, request, certificate, pipeline } = texts;
  const { hashes } = plan;
  if (hashes !== undefined && hashes.plan === undefined)
    throw new ShardwrightError(
      'E_PLAN',
      '$.hashes.plan is missing; a plan with hashes of its files needs its own hash too',
      { file, path: '$.hashes.plan', hint: 'make the plan again, or restore the file.' },
    );
  if (graph !== undefined) holdTo(hashes?.graph, graph, 'graph.swg', file);
  if (request !== undefined) holdTo(hashes?.request, request, 'request.json', file);
  if (certificate !== undefined)
    holdTo(hashes?.certificate, certificate, 'certificate.json.gz', file);
  if (pipeline !== undefined && hashes?.pipeline === undefined)
    holdTo(undefined, pipeline, PIPELINE, file);
  if (pipeline === undefined && graph !== undefined && hashes?.pipeline !== undefined)
    throw new ShardwrightError('E_PLAN', `${PIPELINE} is not next to the plan, which has stages`, {
      file,
      hint: 'make the plan again, or restore the file.',
    });
  const program = graph === undefined ? undefined : parseGraph(graph, 'graph.swg');
  return {
    plan,
    ...(program !== undefined
      ? { program, graph: openBodies(program, builtinOperators(), plan.request)?.graph ?? program }
      : {}),
    ...(request !== undefined ? { request: readRequest(request) } : {}),
    ...(certificate !== undefined
      ? { certificate: readCertificate(certificate, 'certificate.json.gz') }
      : {}),
    // The hash is not checked yet: the check names the field that differs.
    ...(pipeline !== undefined
      ? {
          pipeline: {
            said: jsonOf(pipeline, PIPELINE),
            isAsWritten: hashes?.pipeline === sha256(pipeline),
          },
        }
      : {}),
    ...(hashes?.plan !== undefined ? { isAsWritten: hashes.plan === contentHash(plan) } : {}),
  };
}

/** @throws E_SYNTAX for text that is not JSON, E_TYPE with the path of what does not fit */
export function readRequest(text: string, file = 'request.json'): PlanRequest {
  if (text.length > MAX_REQUEST_LENGTH)
    throw new ShardwrightError(
      'E_LIMIT',
      `request of ${text.length} characters, the limit is ${MAX_REQUEST_LENGTH}`,
      {
        file,
      },
    );
  const value = jsonOf(text, file);
  const parsed = requestSchema.safeParse(value);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const path = jsonPath(issue.path);
    throw new ShardwrightError('E_TYPE', `${path}: ${issue.message}`, { file, path });
  }
  // In the order of the file, which zod does not keep: what is written again has the same bytes.
  return value as PlanRequest;
}

function jsonOf(text: string, file: string): unknown {
  return parseJson(text, { file, hint: 'make the plan again, or restore the file.' });
}

function holdTo(expected: string | undefined, content: string, name: string, file: string): void {
  const got = sha256(content);
  if (expected === undefined)
    throw new ShardwrightError(
      'E_PLAN',
      `the plan states no hash of ${name}, so that file may be another plan's`,
      {
        file,
        hint: 'write the plan with `shardwright plan ... -o DIR`.',
      },
    );
  if (expected !== got)
    throw new ShardwrightError(
      'E_PLAN',
      `${name} is not the file the plan was made with: its SHA-256 is ` +
        `${got.slice(0, 12)}..., the plan says ${expected.slice(0, 12)}...`,
      { file, hint: 'make the plan again, or restore the file.' },
    );
}
