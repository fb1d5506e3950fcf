/** Reads and writes plan folders, and checks a plan against its graph, request and certificate. */

import { createHash } from 'node:crypto';
import { existsSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { gzipSync, strToU8 } from 'fflate';

import { defined } from '../../defined.ts';
import { internalError, messageOf, ShardwrightError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { checkPlan, type PlanCheck, refuseDifferences } from '../../plan/questions/check-plan.ts';
import { differenceText } from '../../plan/questions/differences.ts';
import type { PlanCertificate } from '../../plan/record/certificate.ts';
import {
  type PlanFolder,
  type PlanTexts,
  planTexts,
  readPlanFolder,
} from '../../plan/record/folder.ts';
import type { Plan } from '../../plan/record/types.ts';
import { readFileBytes, readFileText } from '../../platform/read-file.ts';
import type { PlanPipeline } from '../../sweep/pipeline/plan.ts';
import type { CliIo } from '../output/io.ts';
import { NEXT } from '../output/write-file.ts';
import { madeAgain, PIPELINE_FILE, pipelineOf } from './pipeline-file.ts';
import { refuseStages } from './stages-folder.ts';

/** The files of a plan folder that `plan.json` has the hashes of. */
const GRAPH = 'graph.swg';
const REQUEST = 'request.json';
const CERTIFICATE = 'certificate.json.gz';
/** The problems for a second checker, which `check-plan` compares with those that it makes. */
/** The problems behind a plan, for a second checker; absent where the plan was not checked. */
export const PROBLEMS = 'problems.json.gz';

/** The names that `plan -o` writes; `plan.json` decides, so it comes first. */
export const PLAN_FILES = ['plan.json', GRAPH, REQUEST, CERTIFICATE, PROBLEMS] as const;

/** Largest certificate that is read, unpacked. */
const MOST_CERTIFICATE_BYTES = 2 ** 29 - 64;

/** How a plan folder is written. */
interface PlanFilesOptions {
  readonly stages?: PlanPipeline | undefined;
  /**
   * False leaves out the check, which prepares the program again, and with it the problems that it
   * makes for a second checker. Default true.
   */
  readonly checked?: boolean;
}

/**
 * A plan folder's files, which say what `check-plan` accepts; equal plans give equal bytes.
 *
 * @throws E_INTERNAL where the plan is not what follows from its graph, request and certificate
 */
export function planFiles(
  plan: Plan,
  program: Graph,
  proof: PlanCertificate,
  table: OperatorTable,
  { stages, checked = true }: PlanFilesOptions = {},
): readonly (readonly [string, string | Uint8Array])[] {
  const staged = stages === undefined ? undefined : `${JSON.stringify(stages, null, 1)}\n`;
  const texts = planTexts(plan, program, proof, staged);
  const problems = checked ? checkedAsWritten(texts, table).problems() : undefined;
  const { plan: text, graph, request, certificate, pipeline } = texts;
  return [
    ['plan.json', text],
    [GRAPH, graph],
    [REQUEST, request],
    [CERTIFICATE, gzipSync(strToU8(certificate), { mtime: 0 })],
    ...(problems === undefined
      ? []
      : [[PROBLEMS, gzipSync(strToU8(problems), { mtime: 0 })] as const]),
    ...(pipeline === undefined ? [] : [[PIPELINE_FILE, pipeline] as const]),
  ];
}

/** Reads the texts as a stranger would, and checks them before anything is written. */
function checkedAsWritten(texts: PlanTexts, table: OperatorTable): PlanCheck {
  const folder = readPlanFolder(texts, 'plan.json');
  if (!isWhole(folder)) throw internalError('a plan is written without its graph or request');
  const check = checkPlan(folder, table, madeAgain(table));
  const [first] = check.differences;
  if (first !== undefined)
    throw internalError(
      `the plan is not what it says, so it is not written: ${differenceText(first)}`,
    );
  return check;
}

/**
 * A `<plan>` argument: a plan folder, or a plan file; what lies beside `plan.json` is read with it.
 * @throws E_IO ...
 */
export function loadPlan(path: string): PlanFolder {
  refuseStages(path);
  const isFolder = existsSync(path) && statSync(path).isDirectory();
  const file = isFolder ? join(path, 'plan.json') : path;
  const plan = readText(file);
  // A plan file without hashes was never part of a folder: what lies beside it is another's.
  const folder = isFolder || /"hashes"\s*:/.test(plan.slice(-600)) ? dirname(file) : undefined;
  const beside = (name: string): string | undefined => {
    const found = [name, name + NEXT]
      .map((n) => join(folder ?? '', n))
      .filter((p) => folder !== undefined && existsSync(p));
    const texts = found.map((p) => (name === CERTIFICATE ? unpacked(p) : readText(p)));
    // A write that was cut short after `plan.json` was in its place: the file of this plan is still
    // under its next name.
    return (
      texts.find((text) => plan.includes(createHash('sha256').update(text).digest('hex'))) ??
      texts[0]
    );
  };
  const graph = beside(GRAPH);
  const request = beside(REQUEST);
  const certificate = beside(CERTIFICATE);
  // Of a plan without stages it is what an earlier one left when the writing was cut short.
  const pipeline = /"pipeline"\s*:\s*"/.test(plan.slice(-900)) ? beside(PIPELINE_FILE) : undefined;
  try {
    const read = readPlanFolder(
      {
        plan,
        ...defined({ graph, request, certificate, pipeline }),
      },
      file,
    );
    pipelineOf(read);
    return read;
  } catch (error) {
    refuseOthers(plan, file);
    throw error;
  }
}

/** The texts of `problems.json.gz` beside a plan: none, or two where a write was cut short. */
export function problemsBeside(path: string): readonly string[] {
  const folder = statSync(path).isDirectory() ? path : dirname(path);
  return [PROBLEMS, PROBLEMS + NEXT]
    .map((name) => join(folder, name))
    .filter((file) => existsSync(file))
    .map(unpacked);
}

function unpacked(path: string): string {
  try {
    return gunzipSync(readFileBytes(path, { what: 'certificate' }), {
      maxOutputLength: MOST_CERTIFICATE_BYTES,
    }).toString('utf8');
  } catch (error) {
    throw new ShardwrightError('E_SYNTAX', `not gzipped JSON: ${messageOf(error)}`, {
      file: path,
      hint: 'make the plan again.',
    });
  }
}

/** A plan with its program and its request. */
export type WholePlan = PlanFolder & Required<Pick<PlanFolder, 'program' | 'graph' | 'request'>>;

/**
 * The same, for what needs the graph and the request of the plan. @throws E_PLAN where one is
 * missing
 */
export function wholePlan(path: string): WholePlan {
  const folder = loadPlan(path);
  if (isWhole(folder)) return folder;
  throw new ShardwrightError(
    'E_PLAN',
    `${folder.program === undefined ? GRAPH : REQUEST} is not next to the plan`,
    {
      file: path,
      hint: 'give a plan folder, as `shardwright plan ... -o DIR` writes it.',
    },
  );
}

function isWhole(folder: PlanFolder): folder is WholePlan {
  return folder.program !== undefined && folder.request !== undefined;
}

/**
 * Checks a plan against its graph, its request and its certificate, before a command answers
 * anything about it.
 *
 * @returns undefined, with a line on stderr, where there is nothing beside the plan to hold it to
 * @throws E_DIFFERS with the field; E_PLAN for a damaged plan
 */
export function checked(
  folder: PlanFolder,
  path: string,
  table: OperatorTable,
  io: CliIo,
): PlanCheck | undefined {
  if (isWhole(folder)) {
    const check = checkedAnew(folder, path, table, io);
    if (check !== undefined) refuseDifferences(check, path);
    return check;
  }
  if (folder.pipeline?.isAsWritten === false)
    throw new ShardwrightError(
      'E_DIFFERS',
      '$.hashes.pipeline: pipeline.json was changed after it was written',
      { file: path, path: '$.hashes.pipeline' },
    );
  if (folder.isAsWritten === false)
    throw new ShardwrightError(
      'E_DIFFERS',
      '$.hashes.plan: the plan was changed after it was written',
      { file: path, path: '$.hashes.plan' },
    );
  io.stderr(
    `not checked: ${path} has no ${folder.program === undefined ? GRAPH : REQUEST} next to it, ` +
      'so its seconds and its proof are only claims\n',
  );
  return undefined;
}

/**
 * A request that cannot be read again, say because of operators of the user's own, leaves a plan
 * that can still be read.
 */
function checkedAnew(
  folder: WholePlan,
  path: string,
  table: OperatorTable,
  io: CliIo,
): PlanCheck | undefined {
  try {
    return checkPlan(folder, table, madeAgain(table));
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    if (error.code === 'E_PLAN') throw error.with({ file: path });
    if (error.code === 'E_INTERNAL') throw error;
    io.stderr(`not checked: ${error.message}\n`);
    return undefined;
  }
}

const WHAT_IS_READ =
  'give a plan folder, as `shardwright plan ... -o DIR` writes it, or its plan.json.';

/** Refuses a file that does not look like a plan at all, instead of listing its faults. */
function refuseOthers(text: string, file: string): void {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // Whatever is wrong with its syntax is said by the reader of plans; what is not JSON at all is
    // said here.
    if (/^\s*[[{]/.test(text)) return;
    throw new ShardwrightError('E_PLAN', 'this is not a plan: not JSON', {
      file,
      hint: WHAT_IS_READ,
    });
  }
  const isPlan =
    typeof value === 'object' &&
    value !== null &&
    'version' in value &&
    ('model' in value || 'objective' in value);
  if (!isPlan)
    throw new ShardwrightError('E_PLAN', 'this is not a plan', { file, hint: WHAT_IS_READ });
}

function readText(path: string): string {
  return readFileText(path, { what: 'plan', hint: WHAT_IS_READ });
}
