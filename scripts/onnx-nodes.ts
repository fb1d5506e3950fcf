/**
 * Counts the node tests of ONNX that are right, wrong and refused, and writes docs/coverage.md. The
 * tests come from PyPI, in any environment with `pip install onnx`:
 *
 *     python scripts/engines/onnx_node_tests.py > nodes.jsonl
 *     npx tsx scripts/onnx-nodes.ts nodes.jsonl docs/coverage.md
 */

import { createReadStream, readFileSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

import { withSection } from './coverage-page.ts';
import { type NodeResult, type NodeTest, runNodeTest } from './onnx-node-test.ts';

/** The counts and the reasons of refusals as the page `docs/coverage.md` has them. */
function counts(version: string, results: readonly NodeResult[]): string[] {
  const count = (result: NodeResult['result']): number =>
    results.filter((r) => r.result === result).length;
  const reasons = new Map<string, number>();
  for (const { result, why, ops } of results) {
    if (result !== 'refused') continue;
    const op = ops.length === 1 ? ops[0] : 'several operators';
    const line = `${op}: ${reasonOf(why)}`;
    reasons.set(line, (reasons.get(line) ?? 0) + 1);
  }
  const rows = [...reasons]
    .sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1))
    .map(([reason, n]) => `| ${n} | ${reason.replaceAll('|', '/')} |`);
  return [
    '<!-- Written by scripts/onnx-nodes.ts. -->',
    '',
    `The node tests of onnx ${version} (\`onnx.backend.test\`), each imported, run on the kernels of this`,
    'package and compared with the recorded results. Inputs that decide a shape (axes, sizes, pads) are',
    'given as initializers where a test has them as inputs.',
    '',
    '| tests | right | wrong | refused |',
    '| --- | --- | --- | --- |',
    `| ${results.length} | ${count('right')} | ${count('wrong')} | ${count('refused')} |`,
    '',
    'What is refused, and why:',
    '',
    '| tests | operator and reason |',
    '| --- | --- |',
    ...rows,
  ];
}

/** A refusal without the names of one test. */
function reasonOf(why: string): string {
  return why
    .replace(/node \d+ \(.*?\): /, '')
    .replaceAll(/'[^']*_test_[^']*'|tensor '[^']*'/g, 'a value')
    .replaceAll(/\b\d+\b/g, 'N')
    .split('\n')[0]
    .slice(0, 110);
}

async function main(file: string, output: string | undefined): Promise<void> {
  const results: NodeResult[] = [];
  let version = '';
  for await (const line of createInterface({ input: createReadStream(file) })) {
    const test = JSON.parse(line) as NodeTest & { readonly onnx?: string };
    if (test.onnx === undefined) results.push(runNodeTest(test));
    else version = test.onnx;
  }
  if (output !== undefined) {
    const page = readFileSync(output, 'utf8');
    writeFileSync(output, withSection(page, 'Node tests of ONNX', counts(version, results)));
  }
  for (const { name, result, why } of results)
    if (result !== 'right') console.log(`${result}\t${name}\t${why.slice(0, 220)}`);
  for (const result of ['right', 'wrong', 'refused'])
    console.log(result, results.filter((r) => r.result === result).length);
}

const [file, output] = process.argv.slice(2);
if (file !== undefined) await main(file, output);
