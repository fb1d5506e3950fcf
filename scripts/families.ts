/**
 * Plans and verifies the captured graphs of test/fixtures/families, keeps what came out in results.json there, and writes
 * docs/families.md from both. Run: npx tsx scripts/families.ts [--plan-only] [NAME ...]; without names all are run.
 * `scripts/engines/capture_families.py` captures the graphs.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { format, resolveConfig } from 'prettier';
import { ShardwrightError } from '../src/errors.ts';
import { importGraph } from '../src/import/import.ts';
import { builtinOperators } from '../src/ops/builtin.ts';
import { plannable } from '../src/passes/plannable.ts';
import { shrinkGraph } from '../src/passes/shrink.ts';
import { prepare, type Prepared } from '../src/plan/prepare.ts';
import { DEFAULT_REQUEST } from '../src/plan/request.ts';
import { shardPrepared } from '../src/plan/shard.ts';
import { transplant } from '../src/plan/transplant.ts';
import { verify } from '../src/simulate/verify.ts';
import { parseMesh } from '../src/mesh/mesh.ts';

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

/** What planning and verifying came to; text where something was refused. */
export interface FamilyResult {
  readonly nodes?: number;
  /** Seconds of a step that the plan is priced at, and its proof. */
  readonly seconds?: number;
  readonly status?: string;
  /** Tensors that were compared, when none differed. */
  readonly compared?: number;
  readonly refused?: string;
  readonly verifyRefused?: string;
}

export const MESH = 'dp=2,tp=4';
export const CLUSTER = 'dgx-h100';
const table = builtinOperators();

export function families(): Record<string, Family> {
  return JSON.parse(readFileSync(new URL('INDEX.json', FOLDER), 'utf8')) as Record<string, Family>;
}

export function results(): Record<string, FamilyResult> {
  return JSON.parse(readFileSync(new URL('results.json', FOLDER), 'utf8')) as Record<string, FamilyResult>;
}

/** The program of a captured graph, prepared for planning on the mesh of the table. */
export function preparedFamily(family: Family): Prepared {
  const graph = importGraph(readFileSync(new URL(family.file ?? '', FOLDER)), { name: family.file ?? '' });
  return prepare(plannable(graph, table), { ...DEFAULT_REQUEST, mesh: MESH, cluster: CLUSTER }, table);
}

export async function resultOf(family: Family, planOnly: boolean): Promise<FamilyResult> {
  let result: FamilyResult = {};
  try {
    const prepared = preparedFamily(family);
    result = { nodes: prepared.program.nodes.length };
    const solved = await shardPrepared(prepared, {});
    if (solved.status === 'infeasible') return { ...result, refused: 'no plan fits' };
    const { objective, proof } = solved.plan;
    result = { ...result, seconds: objective.seconds, status: proof.status };
    if (planOnly) return result;
    try {
      const { sizes: meshSizes } = parseMesh(MESH);
      const { program, request } = solved.prepared;
      const reduced = shrinkGraph(program, table, { meshSizes });
      const plan = transplant(solved.plan, prepare(reduced.graph, request, table));
      const { mismatches, nodesCompared } = verify(reduced.graph, plan, table, {});
      if (mismatches.length > 0)
        return { ...result, verifyRefused: `${mismatches.length} mismatches, first ${mismatches[0].where}` };
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

/** The page, formatted as the repository is. */
export async function familiesPage(): Promise<string> {
  const [all, known] = [families(), results()];
  const rows = Object.entries(all).map(([name, { package: from, version, model, error }]) => {
    const r = known[name] ?? {};
    const plan = error !== undefined ? `not captured: ${error}` : (r.refused ?? (r.status === undefined ? '' : `${r.status}, ${(1e3 * (r.seconds ?? 0)).toFixed(3)} ms`)); // prettier-ignore
    const verified = r.compared === undefined ? (r.verifyRefused ?? '') : `${r.compared} tensors`;
    return [name, `${from} ${version}`, model, String(r.nodes ?? ''), plan, verified].map((cell) => cell.replaceAll('|', '\\|')); // prettier-ignore
  });
  const count = (test: (r: FamilyResult) => boolean): number => Object.keys(all).filter((name) => test(known[name] ?? {})).length; // prettier-ignore
  const text = `# Families of models

<!-- Written by scripts/families.ts from test/fixtures/families; a test compares the two. -->

Small models of ${Object.keys(all).length} families, with random weights, captured from the packages that people use: joint forward and backward graphs by the
snippet in the README, JAX programs as StableHLO or jaxpr. Each is planned on ${MESH} of ${CLUSTER}, and its plan is run with numbers on
virtual devices (\`verify\`). ${count((r) => r.status === 'optimal')} have a plan that is proven optimal; of ${count((r) => r.compared !== undefined)} every tensor on every device was compared with the unsharded
program and none differs. What is refused says why. An empty cell was not run.

\`\`\`sh
python scripts/engines/capture_families.py FOLDER [NAME ...]    # captures; nothing is downloaded
npx tsx scripts/families.ts [--plan-only] [NAME ...]            # plans, verifies, writes this page
\`\`\`

| family | package | model | nodes | plan | verified |
|---|---|---|---:|---|---|
${rows.map((row) => `| ${row.join(' | ')} |`).join('\n')}
`;
  const options = (await resolveConfig(FAMILIES_PAGE)) ?? {};
  return format(text, { ...options, parser: 'markdown' });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const planOnly = process.argv.includes('--plan-only');
  const names = process.argv.slice(2).filter((arg) => !arg.startsWith('--'));
  for (const [name, family] of Object.entries(families())) {
    if (family.file === undefined || (names.length > 0 && !names.includes(name))) continue;
    const made = await resultOf(family, planOnly);
    process.stderr.write(`${name} ${JSON.stringify(made)}\n`);
    // Read again: several runs may work on different names.
    const after = { ...results(), [name]: made };
    const sorted = Object.fromEntries(Object.entries(after).sort(([a], [b]) => (a < b ? -1 : 1)));
    writeFileSync(new URL('results.json', FOLDER), `${JSON.stringify(sorted, null, 1)}\n`);
  }
  writeFileSync(FAMILIES_PAGE, await familiesPage());
}
