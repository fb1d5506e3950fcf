/** Prints a comparison as text: ranked plans, the Pareto front, the meshes, the refusals. */

import { bestPlan, bestRecipe, stepTime } from '../../recipes/compare/best-plan.ts';
import type { ComparedPlan, Comparison } from '../../recipes/compare/comparison.ts';
import { bytesText, excessOver, percentText, secondsText, tableText } from '../../units.ts';
import { noBestText } from '../model/certainty.ts';
import { comparedPaddingText } from '../model/compared-padding.ts';
import { codedReason } from '../model/mesh-status.ts';
import { certaintyLines, planRow, stoppedText, sweepText } from './sweep.ts';

/**
 * A comparison as text: plans that fit by seconds, the others by bytes, the front, the meshes, and
 * what was refused.
 */
export function comparisonText(c: Comparison): string {
  if (c.question !== undefined) return sweepText(c, c.question);
  const best = bestPlan(c);
  const lines = [
    `${c.model === undefined ? '' : `${c.model} on `}${c.devices} devices of ${c.cluster}, ` +
      `${bytesText(c.budgetBytes)} each ` +
      (c.holds === 'peak'
        ? 'for peak memory, activations included'
        : 'for states (activations are not counted)'),
    '',
    ...(c.plans.length > 0 ? planTable(c) : []),
    '',
    ...(best === undefined ? [noBestText(c)] : bestLines(c, best)),
    ...certaintyLines(c).map((line) => line.replace(/^(\w*) {3}/, '$1')),
    ...noteLines(c),
    '',
    meshTable(c),
  ];
  if (c.refused.length > 0) lines.push('', refusedTable(c));
  return lines.join('\n');
}

function planTable(c: Comparison): string[] {
  const head = [
    '',
    'plan',
    'mesh',
    'step time',
    'call by call',
    'communication',
    c.holds === 'peak' ? 'peak' : 'states',
    'fits',
    '',
  ];
  return [
    tableText([head, ...c.plans.map((p) => graphRow(p, c))], [3, 4, 5, 6, 7]),
    '',
    '* best   + no other plan is better in both time and memory   step time: communication ' +
      'beside compute, which ranks   call by call: one after another',
  ];
}

/** The best plan, its proof, and the best by the simulation and among recipes. */
function bestLines(c: Comparison, best: ComparedPlan): string[] {
  const lines = [
    `best   ${best.name} on ${best.mesh}: ${secondsText(stepTime(best))}, ` +
      `${bytesText(best.peakBytes)}`,
  ];
  if (best.proof !== undefined)
    lines.push(
      `proof  ${best.proof.status} on its mesh call by call, gap ${percentText(best.proof.gap)}`,
    );
  const recipe = bestRecipe(c);
  if (recipe !== undefined && recipe !== best)
    lines.push(
      `recipe ${recipe.name} on ${recipe.mesh} is the best recipe, ` +
        `${percentText(excessOver(stepTime(best), stepTime(recipe)))} slower`,
    );
  return lines;
}

function noteLines(c: Comparison): string[] {
  const lines: string[] = [];
  if (c.plans.some((p) => !p.choice))
    lines.push(
      'note   zero1 and zero2 are priced beside the planning problem, in which states follow ' +
        'their parameter',
    );
  if (c.stopped !== undefined) lines.push(stoppedText(c.stopped));
  for (const note of comparedPaddingText(c)) lines.push(`note   ${note}`);
  return lines;
}

function meshTable({ meshes }: Comparison): string {
  return tableText([
    ['mesh', 'optimum', ''],
    ...meshes.map((m) => [
      m.mesh,
      m.status,
      m.reason ?? (m.boundSeconds === undefined ? '' : `at least ${secondsText(m.boundSeconds)}`),
    ]),
  ]);
}

function refusedTable({ refused }: Comparison): string {
  return tableText([
    ['refused', 'mesh', ''],
    ...refused.map(({ plan, mesh, code, reason }) => [plan, mesh, codedReason(code, reason)]),
  ]);
}

/** A row of the table with the sum of all calls, too. */
function graphRow(p: ComparedPlan, c: Comparison): string[] {
  const [mark, plan, mesh, step, ...rest] = planRow(p, c);
  return [mark, plan, mesh, step, secondsText(p.seconds), ...rest];
}
