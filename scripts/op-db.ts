/**
 * Plans PyTorch's own operator tests on a mesh of two devices, runs each plan on virtual devices and
 * writes the counts into docs/coverage.md. The programs come from any environment with torch:
 *
 *     PYTHONPATH=python python scripts/engines/op_db.py FOLDER > op-db.jsonl
 *     npx tsx scripts/op-db.ts op-db.jsonl FOLDER [docs/coverage.md]
 */

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { messageOf, ShardwrightError } from '../src/errors.ts';
import type { Graph } from '../src/graph/types.ts';
import { importGraph } from '../src/import/import.ts';
import { builtinOperators } from '../src/ops/builtin.ts';
import { isEffect } from '../src/passes/plannable/checks.ts';
import { leastCostPlan } from '../src/plan/least-cost-plan.ts';
import { Deadline } from '../src/plan/request/deadline.ts';
import { verify } from '../src/simulate/verify.ts';
import { withSection } from './coverage-page.ts';

interface Captured {
  readonly name: string;
  readonly kind: 'forward' | 'joint';
  readonly file?: string;
  readonly error?: string;
}

interface Result extends Captured {
  readonly result: 'right' | 'wrong' | 'refused' | 'not captured';
  readonly why: string;
}

const table = builtinOperators();

/** Operators of a program that have no record. */
function unknownIn({ nodes }: Graph): string[] {
  const targets = nodes.flatMap((n) => (n.kind === 'call' ? [n.target] : []));
  return [...new Set(targets)].filter(
    (t) => t !== 'operator.getitem' && !isEffect(t) && table.get(t) === undefined,
  );
}

async function planned(captured: Captured, folder: string): Promise<Result> {
  const { file, error } = captured;
  if (file === undefined) return { ...captured, result: 'not captured', why: error ?? '' };
  try {
    const graph = importGraph(readFileSync(join(folder, file)));
    const unknown = unknownIn(graph);
    if (unknown.length > 0)
      return { ...captured, result: 'refused', why: `no record of ${unknown.sort().join(', ')}` };
    const found = await leastCostPlan(
      graph,
      { mesh: 'x=2', cluster: 'dgx-h100' },
      { deadline: new Deadline(5) },
    );
    if (found.status === 'infeasible')
      return { ...captured, result: 'refused', why: found.conflict.join(' ') };
    const [mismatch] = verify(found.graph, found.plan).mismatches;
    return mismatch === undefined
      ? { ...captured, result: 'right', why: '' }
      : { ...captured, result: 'wrong', why: `${mismatch.where}: ${mismatch.message}` };
  } catch (thrown) {
    const code = thrown instanceof ShardwrightError ? thrown.code : 'E_INTERNAL';
    return { ...captured, result: 'refused', why: `${code} ${messageOf(thrown)}` };
  }
}

const KINDS = ['forward', 'joint'] as const;
const RESULTS = ['right', 'wrong', 'refused', 'not captured'] as const;

/** The counts, and what is refused with the reasons, as the page has them. */
function section(torch: string, results: readonly Result[]): string[] {
  const rows = KINDS.map((kind) => {
    const of = results.filter((r) => r.kind === kind);
    return [kind, of.length, ...RESULTS.map((s) => of.filter((r) => r.result === s).length)];
  });
  const reasons = new Map<string, Set<string>>();
  for (const { name, result, why } of results) {
    if (result === 'right') continue;
    const reason = reasonOf(why);
    reasons.set(reason, (reasons.get(reason) ?? new Set()).add(name));
  }
  return [
    '<!-- Written by scripts/op-db.ts. -->',
    '',
    `The operator tests of PyTorch ${torch} (\`op_db\`): of each the first sample in float32, captured by the`,
    'Python package, planned on two devices, and run on virtual devices against the whole. `joint` has the',
    'gradients of all results.',
    '',
    '| programs | tests | right | wrong | refused | not captured |',
    '| --- | --- | --- | --- | --- | --- |',
    ...rows.map((row) => `| ${row.join(' | ')} |`),
    '',
    'What does not run, and why:',
    '',
    '| reason | operators |',
    '| --- | --- |',
    ...[...reasons].map(
      ([reason, names]) => `| ${reason.replaceAll('|', '/')} | ${[...names].join(', ')} |`,
    ),
  ];
}

/** A refusal without what is of one test. */
function reasonOf(why: string): string {
  return why
    .replace(/^E_CAPTURE Call /, '')
    .replace(/^E_DATA_DEPENDENT Call /, 'E_DATA_DEPENDENT it ')
    .split('\n')[0]
    .slice(0, 160);
}

async function main(lines: string, folder: string, page: string | undefined): Promise<void> {
  const [first, ...tests] = readFileSync(lines, 'utf8').trim().split('\n');
  const { torch } = JSON.parse(first) as { readonly torch: string };
  const results: Result[] = [];
  for (const test of tests) {
    const found = await planned(JSON.parse(test) as Captured, folder);
    results.push(found);
    if (found.result !== 'right')
      console.log([found.result, found.kind, found.name, found.why.slice(0, 300)].join('\t'));
  }
  const text = section(torch, results);
  console.log(text.slice(6, 10).join('\n'));
  if (page === undefined) return;
  writeFileSync(page, withSection(readFileSync(page, 'utf8'), 'Operator tests of PyTorch', text));
}

const [lines, folder, page] = process.argv.slice(2);
if (folder !== undefined) await main(lines, folder, page);
