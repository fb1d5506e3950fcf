/**
 * Plans and verifies the captured graphs of test/fixtures/families, keeps what came out in
 * results.json there, and writes docs/families.md from both. Run: npx tsx scripts/families.ts
 * [--plan-only] [--limit SECONDS] [--resume] [NAME ...]. Small graphs come first; without names all
 * are run, with --resume those that were neither verified nor refused.
 * `scripts/engines/capture_families.py` captures the graphs.
 */
import { spawn } from 'node:child_process';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { format, resolveConfig } from 'prettier';

import { ShardwrightError } from '../src/errors.ts';
import type { Graph } from '../src/graph/types.ts';
import { importGraph } from '../src/import/import.ts';
import { parseMesh } from '../src/mesh/devices/mesh.ts';
import { builtinOperators } from '../src/ops/builtin.ts';
import { plannable } from '../src/passes/plannable/plannable.ts';
import { transferPlan } from '../src/plan/choice/transfer.ts';
import { leastCostPlanOf } from '../src/plan/least-cost-plan.ts';
import { prepare } from '../src/plan/prepare/prepare.ts';
import type { Prepared } from '../src/plan/prepare/prepared.ts';
import { DEFAULT_REQUEST } from '../src/plan/request/request.ts';
import { constantsAsInputs, reduced, refuseUnevaluated } from '../src/simulate/reduced.ts';
import { verify } from '../src/simulate/verify.ts';

const FOLDER = new URL('../test/fixtures/families/', import.meta.url);
export const FAMILIES_PAGE = fileURLToPath(new URL('../docs/families.md', import.meta.url));

/** A captured graph, or why there is none. */
export interface Family {
  readonly package: string;
  readonly version: string;
  readonly model: string;
  readonly file?: string;
  readonly error?: string;
}

/** Results of planning and verifying; a text where something was refused. */
export interface FamilyResult {
  readonly nodes?: number;
  /** Seconds of a step that the plan is priced at, and its proof. */
  readonly seconds?: number;
  readonly status?: string;
  /** Tensors that were compared, when none differed. */
  readonly compared?: number;
  readonly refused?: string;
  readonly verifyRefused?: string;
  /**
   * Seconds after which the run was ended: before there was a plan, or before everything was
   * compared.
   */
  readonly endedAfterSeconds?: number;
}

export const MESH = 'dp=2,tp=4';
export const CLUSTER = 'dgx-h100';
const table = builtinOperators();

export function families(): Record<string, Family> {
  return JSON.parse(readFileSync(new URL('INDEX.json', FOLDER), 'utf8')) as Record<string, Family>;
}

export function results(): Record<string, FamilyResult> {
  return JSON.parse(readFileSync(new URL('results.json', FOLDER), 'utf8')) as Record<
    string,
    FamilyResult
  >;
}

export function familyGraph(family: Family): Graph {
  return importGraph(readFileSync(new URL(family.file ?? '', FOLDER)), { name: family.file ?? '' });
}

/** The program of a captured graph, prepared for planning on the mesh of the table. */
export function preparedFamily(family: Family): Prepared {
  const graph = importGraph(readFileSync(new URL(family.file ?? '', FOLDER)), {
    name: family.file ?? '',
  });
  return prepare(
    constantsAsInputs(plannable(graph, table)),
    { ...DEFAULT_REQUEST, mesh: MESH, cluster: CLUSTER },
    table,
  );
}

/** Plans and verifies a family; `planned` is called with the plan before it is verified. */
export async function resultOf(
  family: Family,
  planOnly: boolean,
  planned: (result: FamilyResult) => void,
): Promise<FamilyResult> {
  let result: FamilyResult = {};
  try {
    const prepared = preparedFamily(family);
    result = { nodes: prepared.question.program.nodes.length };
    const solved = await leastCostPlanOf(prepared, {});
    if (solved.status === 'infeasible') return { ...result, refused: 'no plan fits' };
    const { objective, proof } = solved.plan;
    result = { ...result, seconds: objective.seconds, status: proof.status };
    planned(result);
    if (planOnly) return result;
    try {
      const {
        question: { program, request },
      } = solved.prepared;
      refuseUnevaluated(program, table);
      const small = reduced(program, table, { meshSizes: parseMesh(MESH).sizes });
      const plan = transferPlan(solved.plan, prepare(small.graph, request, table));
      const { mismatches, nodesCompared } = verify(small.graph, plan, { table });
      if (mismatches.length > 0)
        return {
          ...result,
          verifyRefused: `${mismatches.length} mismatches, first ${mismatches[0].where}`,
        };
      return { ...result, compared: nodesCompared };
    } catch (error) {
      return { ...result, verifyRefused: lineOf(error) };
    }
  } catch (error) {
    return { ...result, refused: lineOf(error) };
  }
}

function lineOf(error: unknown): string {
  if (!(error instanceof ShardwrightError)) throw error;
  return `${error.code} ${error.message}`.replaceAll(/\s+/g, ' ').slice(0, 160);
}

/** Why a capture failed, in the words of the page. */
function captureText(error: string): string {
  return error.startsWith('DataDependentOutputException')
    ? 'its code reads a number out of a tensor, which an exported graph cannot hold'
    : error;
}

function planText(
  { error }: Family,
  { refused, status, seconds, endedAfterSeconds }: FamilyResult,
): string {
  if (error !== undefined) return `not captured: ${captureText(error)}`;
  if (refused !== undefined) return refused;
  if (status !== undefined) return `${status}, ${(1e3 * (seconds ?? 0)).toFixed(3)} ms`;
  return endedAfterSeconds === undefined ? 'not run' : `not planned within ${endedAfterSeconds} s`;
}

function verifyText({ compared, verifyRefused, status, endedAfterSeconds }: FamilyResult): string {
  if (compared !== undefined) return `${compared} tensors`;
  if (verifyRefused !== undefined) return verifyRefused;
  if (status === undefined) return 'no plan';
  return endedAfterSeconds === undefined ? 'not run' : `not compared within ${endedAfterSeconds} s`;
}

/** The page, formatted as the repository is. */
export async function familiesPage(): Promise<string> {
  const [all, known] = [families(), results()];
  const names = Object.keys(all);
  const rows = names.map((name) => {
    const { package: from, version, model } = all[name];
    const r = known[name] ?? {};
    return [
      name,
      `${from} ${version}`,
      model,
      String(r.nodes ?? ''),
      planText(all[name], r),
      verifyText(r),
    ].map((cell) => cell.replaceAll('|', '\\|'));
  });
  const captured = names.filter((name) => all[name].error === undefined);
  const of = (test: (r: FamilyResult) => boolean): string[] =>
    captured.filter((name) => test(known[name] ?? {}));
  const proven = of((r) => r.status === 'optimal');
  const verified = of((r) => r.compared !== undefined);
  const late = of((r) => (r.compared ?? r.verifyRefused ?? r.refused) === undefined);
  const refused = of((r) => (r.refused ?? r.verifyRefused) !== undefined);
  const listed = (some: readonly string[]): string =>
    some.length === 0 ? '' : ` (${some.join(', ')})`;
  const text = `# Families of models

<!-- Written by scripts/families.ts from test/fixtures/families; a test compares the two. -->

This page shows what Shardwright does with ${names.length} families of models. Each model runs the code of its package, with small sizes and random
weights. PyTorch models are captured as joint forward and backward graphs, JAX models as StableHLO or jaxpr. Shardwright plans
each graph on ${MESH} of ${CLUSTER}. Then \`verify\` runs the plan with numbers, at reduced sizes on virtual devices, and compares
every tensor on every device with the unsharded program.

- captured: ${captured.length} of ${names.length}${listed(names.filter((name) => !captured.includes(name)))}
- planned to a proven optimum: ${proven.length} of ${captured.length}
- verified, no tensor differs: ${verified.length} of ${captured.length}
- refused, by the plan or by verify: ${refused.length}${listed(refused)}
- stopped by the time limit: ${late.length}${listed(late)}

\`\`\`sh
python scripts/engines/capture_families.py FOLDER [NAME ...]    # captures; nothing is downloaded
npx tsx scripts/families.ts [NAME ...]                          # plans, verifies, writes this page
npx tsx scripts/families.ts --resume --limit 300                # the open ones, 300 s each
\`\`\`

| family | package | model | nodes | plan | verified |
|---|---|---|---:|---|---|
${rows.map((row) => `| ${row.join(' | ')} |`).join('\n')}
`;
  const options = (await resolveConfig(FAMILIES_PAGE)) ?? {};
  return format(text, { ...options, parser: 'markdown' });
}

/** Keeps a row. Read again each time: several runs may work on different names. */
function keep(name: string, made: FamilyResult): void {
  const after = { ...results(), [name]: made };
  const sorted = Object.fromEntries(Object.entries(after).sort(([a], [b]) => (a < b ? -1 : 1)));
  writeFileSync(new URL('results.json', FOLDER), `${JSON.stringify(sorted, null, 1)}\n`);
}

/**
 * Runs families in a process of its own, one after another; ends it where one takes longer than the
 * limit.
 *
 * @returns the families that are left, which a new process takes
 */
async function runSome(
  names: readonly string[],
  planOnly: boolean,
  limitSeconds: number,
): Promise<string[]> {
  const flags = planOnly ? ['--plan-only'] : [];
  const child = spawn(
    process.execPath,
    [...process.execArgv, fileURLToPath(import.meta.url), '--child', ...flags, ...names],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const left = [...names];
  let known: FamilyResult = {};
  const late = (): void => {
    child.kill('SIGKILL');
    finish({ ...known, endedAfterSeconds: limitSeconds });
  };
  let timer = setTimeout(late, limitSeconds * 1000);
  const finish = (made: FamilyResult): void => {
    const name = left.shift() ?? '';
    process.stderr.write(`${name} ${JSON.stringify(made)}\n`);
    keep(name, made);
    known = {};
  };
  for await (const line of createInterface(child.stdout)) {
    const { done, made } = JSON.parse(line) as { done: boolean; made: FamilyResult };
    known = made;
    if (!done) continue;
    finish(made);
    clearTimeout(timer);
    if (left.length > 0) timer = setTimeout(late, limitSeconds * 1000);
  }
  clearTimeout(timer);
  if (left.length === names.length)
    throw new Error(`${names[0]}: its process ended before it had a result`);
  return left;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const flag = { type: 'boolean', default: false } as const;
  const options = {
    'plan-only': flag,
    resume: flag,
    child: flag,
    limit: { type: 'string', default: '60' },
  } as const;
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  const all = families();
  const planOnly = values['plan-only'];
  if (values.child) {
    const say = (done: boolean, made: FamilyResult): void =>
      void process.stdout.write(`${JSON.stringify({ done, made })}\n`);
    for (const name of positionals)
      say(true, await resultOf(all[name], planOnly, (made) => say(false, made)));
  } else {
    const before = results();
    const size = (name: string): number => statSync(new URL(all[name].file ?? '', FOLDER)).size;
    const settled = ({ compared, verifyRefused, refused }: FamilyResult): boolean =>
      (compared ?? verifyRefused ?? refused) !== undefined;
    let names = Object.keys(all)
      .filter(
        (name) =>
          all[name].file !== undefined && (positionals.length === 0 || positionals.includes(name)),
      )
      .filter((name) => !values.resume || !settled(before[name] ?? {}))
      .sort((a, b) => size(a) - size(b));
    while (names.length > 0) names = await runSome(names, planOnly, Number(values.limit));
    writeFileSync(FAMILIES_PAGE, await familiesPage());
  }
}
