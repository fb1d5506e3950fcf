/**
 * Defines the proof of a plan's bound: the certificates of the problems behind it, as plain data.
 * The problems themselves are built again from the graph and the request. In a plan folder it is
 * `certificate.json.gz`.
 */
import * as z from 'zod';

import { ShardwrightError } from '../../errors.ts';
import type { Certificate, Problem } from '../../solver/types.ts';
import { parseJson } from '../../text/json.ts';
import { schemaOf } from './schema-type.ts';

/**
 * A part is absent where its bound was not needed. Without any, only the sum of all least prices is
 * proven.
 */
export interface PlanCertificate {
  readonly version: 1;
  /** The certificate of the problem without rows of peak memory. */
  readonly free?: Certificate;
  /** With `objective: 'parameter-memory'`: that no plan needs fewer bytes of parameters. */
  readonly leastBytes?: Certificate;
  /** For a peak memory that binds, the problem with the memory at some program points as rows. */
  readonly within?: {
    /** Nodes at which memory is a row. */
    readonly moments: readonly string[];
    /**
     * The nodes of `moments` whose rows count the largest of all tensors that share a storage;
     * absent where no row does.
     */
    readonly storages?: readonly string[];
    readonly certificate: Certificate;
  };
  /**
   * Text of the program without recomputed nodes, where the program of the plan has some; the
   * problems are those of this one.
   */
  readonly program?: string;
}

const numbers = z.custom<number[]>(
  (v) => Array.isArray(v) && v.every((x) => typeof x === 'number'),
  'not a list of numbers',
);
/**
 * A list of which all fit: zod reports every member that does not, which takes seconds for the
 * millions that a stranger's file may have.
 */
function listOf<S extends z.ZodType>(member: S) {
  return z.array(z.unknown()).transform((list, ctx): z.output<S>[] => {
    const read: z.output<S>[] = [];
    for (const [k, value] of list.entries()) {
      const parsed = member.safeParse(value);
      if (!parsed.success) {
        const [{ message, path }] = parsed.error.issues;
        ctx.addIssue({ code: 'custom', message, path: [k, ...path] });
        return z.NEVER;
      }
      read.push(parsed.data);
    }
    return read;
  });
}
const row = z.union([z.strictObject({ row: z.int() }), z.strictObject({ time: z.int() })]);
const certificate = schemaOf<Certificate>()(
  z.strictObject({
    version: z.literal(2, 'only format 2 of certificates is read: solve or plan again'),
    problem: z.string(),
    rows: listOf(row),
    steps: numbers,
    lists: listOf(numbers),
  }),
);

const planCertificate = schemaOf<PlanCertificate>()(
  z.strictObject({
    version: z.literal(1),
    free: certificate.exactOptional(),
    leastBytes: certificate.exactOptional(),
    within: z
      .strictObject({
        moments: z.array(z.string()),
        storages: z.array(z.string()).exactOptional(),
        certificate,
      })
      .exactOptional(),
    program: z.string().exactOptional(),
  }),
);

/**
 * Reads the file that `solve --certificate` writes. @throws E_TYPE with the path of the field that
 * does not fit
 */
export function asCertificate(value: unknown, file: string): Certificate {
  return checked(certificate, value, file);
}

/** @throws E_SYNTAX for text that is not JSON, E_TYPE with the path of what does not fit */
export function readCertificate(text: string, file: string): PlanCertificate {
  return checked(planCertificate, parseJson(text, { file }), file);
}

function checked<T>(schema: z.ZodType<T>, value: unknown, file: string): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const path = jsonPath(issue.path);
  throw new ShardwrightError('E_TYPE', `${path}: ${issue.message}`, { file, path });
}

/** `$.nodes[3].inputs`. */
export function jsonPath(keys: readonly PropertyKey[]): string {
  const steps = keys.map((key) => (typeof key === 'number' ? `[${key}]` : `.${String(key)}`));
  return `$${steps.join('')}`;
}

/**
 * The problem with its memory row bounded by so many bytes. Values that exceed the bound beside the
 * least of all others cost Infinity, so that a solver meets the row only where several variables
 * can exceed it together.
 */
export function withMemoryBound(problem: Problem, bytes: number): Problem {
  const [row] = problem.rows ?? [];
  if (row === undefined) return problem;
  const bound = Math.min(row.bound, bytes);
  const least = row.amounts.map((amounts) => amounts.reduce((a, b) => Math.min(a, b), Infinity));
  const spare = bound - least.reduce((a, b) => a + b, 0);
  const unary = Int32Array.from(problem.unary);
  const vectors = [...problem.vectors];
  row.amounts.forEach((amounts, k) => {
    const fits = amounts.map((bytesOf) => Number(bytesOf - least[k] <= spare));
    if (fits.every((fit) => fit === 1)) return;
    const v = row.variables[k];
    const costs = vectors[unary[v]].map((cost, value) => (fits[value] === 1 ? cost : Infinity));
    unary[v] = vectors.push(costs) - 1;
  });
  return { ...problem, unary, vectors, rows: [{ ...row, bound }] };
}
