/**
 * Fills docs/how-it-works.md with the numbers of one running example, a two-layer MLP on 2 x 2
 * devices. A block between `<!-- made: NAME -->` and `<!-- end -->` becomes what the step NAME
 * gives.
 *
 * Usage: npx tsx scripts/docs-how-it-works.ts
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { jointGraph, printGraph, shrinkGraph } from '../src/entries/graph.ts';
import { builtinOperators } from '../src/entries/ops.ts';
import { DEFAULT_REQUEST, prepare, programAtRank, transferPlan } from '../src/entries/plan.ts';
import { annotatedProgram } from '../src/entries/report.ts';
import { mseLoss } from '../src/entries/trace.ts';
import { input, lower, parameter, trace, verify } from '../src/index.ts';
import { leastCostPlan } from '../src/plan/least-cost-plan.ts';
import { expandCall, operatorCall } from '../src/strategy/operator-call.ts';

export const DOCUMENT = fileURLToPath(new URL('../docs/how-it-works.md', import.meta.url));
const us = (seconds: number): string => `${(seconds * 1e6).toFixed(1)} µs`;
const withoutPlaces = (text: string): string =>
  text
    .replaceAll(/ ;? ?(?:forward |backward )?(?:savedOnly )?(?:of="[^"]*" )?source="[^"]*"/g, '')
    .replaceAll(/^(?:swgraph 1|graph @main \{|\}|  out none .*|  note .*)\n?/gm, '')
    .replaceAll(/^ {2}(?=in |%|out )/gm, '')
    .trim();

/** The text of every step, by its name. */
export async function steps(): Promise<ReadonlyMap<string, string>> {
  const table = builtinOperators();
  const batch = input([4096, 1024]);
  const inputs = { w1: parameter([1024, 4096]), w2: parameter([4096, 1024]), x: batch, y: batch };
  const forward = trace(({ x, y, w1, w2 }) => mseLoss(x.matmul(w1).relu().matmul(w2), y), inputs);
  const joint = jointGraph(forward, { table });
  const request = { ...DEFAULT_REQUEST, mesh: 'dp=2,tp=2', cluster: 'dgx-h100' };
  const prepared = prepare(joint, request, table);
  const { problem, strategies, variables, graph, unitsPerSecond } = prepared.model;
  const result = await leastCostPlan(joint, request, { table });
  if (result.status === 'infeasible') throw new Error(result.conflict.join('\n'));
  const { plan } = result;
  const expanded = expandCall(
    operatorCall('aten.mm.default(f32[4096, 1024], f32[1024, 4096])', table),
    'tp=2',
  );
  const counts = new Map<string, number>();
  for (const { kind } of variables) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const mm = graph.nodes.findIndex((node) => node.name === 'mm');
  const small = shrinkGraph(joint, table, { meshSizes: [2, 2] }).graph;
  const verified = verify(small, transferPlan(plan, prepare(small, request, table)), { table });
  return new Map([
    ['forward', withoutPlaces(printGraph(forward))],
    ['joint', withoutPlaces(printGraph(joint))],
    [
      'rules',
      expanded
        .map(({ inputs, outputs }) => `${inputs.join(', ')} -> ${outputs.join(', ')}`)
        .join('\n'),
    ],
    ['strategies', `mm on dp=2,tp=2: ${strategies.nodes[mm]!.set.count} strategies`],
    [
      'problem',
      [
        ...[...counts].map(([kind, count]) => `${count} variables of kind ${kind}`),
        `${problem.edges.first.length} edges, ${problem.tables.length} tables`,
        `${[...problem.domains].reduce((sum, size) => sum + size, 0)} values together, ` +
          `${Math.max(...problem.domains)} in the largest domain`,
        `one second is ${unitsPerSecond} units`,
      ].join('\n'),
    ],
    [
      'solution',
      `${plan.proof.status}, gap ${plan.proof.gap}, by ${plan.proof.solver}\n` +
        `plan ${us(plan.objective.seconds)}, lower bound ${us(plan.proof.bound)}, re-costed ` +
        `${us(plan.proof.recheckedSeconds)}`,
    ],
    ['plan', withoutPlaces(annotatedProgram(result.graph, plan))],
    ['program', withoutPlaces(printGraph(programAtRank(lower(result.graph, plan, { table }), 0)))],
    [
      'verify',
      `${verified.devices} devices, ${verified.nodesCompared} values compared, ` +
        `${verified.mismatches.length} mismatches\nran ${counted(verified.collectives)}; the ` +
        `plan promised ${counted(verified.promised)}`,
    ],
  ]);
}

const counted = (counts: Readonly<Record<string, number>>): string =>
  Object.entries(counts)
    .map(([kind, count]) => `${count} ${kind}`)
    .join(', ');

/**
 * The document with every block made again. @throws for a block that no step makes, and for a step
 * that has no block
 */
export async function fillDocument(document: string): Promise<string> {
  const texts = new Map(await steps());
  const filled = document.replaceAll(
    /(<!-- made: ([a-z]+) -->)[^]*?<!-- end -->/g,
    (_, head: string, name: string) => {
      const text = texts.get(name);
      if (text === undefined)
        throw new Error(`no step makes "${name}"; steps: ${[...texts.keys()].join(', ')}`);
      texts.delete(name);
      return `${head}\n\n\`\`\`\n${text}\n\`\`\`\n\n<!-- end -->`;
    },
  );
  if (texts.size > 0) throw new Error(`not shown: ${[...texts.keys()].join(', ')}`);
  return filled;
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  writeFileSync(DOCUMENT, await fillDocument(readFileSync(DOCUMENT, 'utf8')));
