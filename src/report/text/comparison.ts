/** Prints a comparison as text: ranked plans, the Pareto front, the meshes, the refusals. */

import { bestPlan, bestRecipe, stepTime } from '../../recipes/compare/best-plan.ts';
import type { ComparedPlan, Comparison } from '../../recipes/compare/comparison.ts';
import { bytesText, excessOver, percentText, secondsText } from '../../units.ts';
import { noBestText } from '../model/certainty.ts';
import { comparedPaddingText } from '../model/compared-padding.ts';
import { meshTable, refusedTable } from '../model/compared-tables.ts';
import { layoutWords } from '../model/layout-words.ts';
import { terminalTable } from '../model/table.ts';
import { certaintyLines, planTable, stoppedText, sweepText } from './sweep.ts';

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
    ...(c.plans.length > 0 ? [planTable(c.plans, c), '', LEGEND] : []),
    '',
    ...(best === undefined ? [noBestText(c)] : bestLines(c, best)),
    ...certaintyLines(c).map((line) => line.replace(/^(\w*) {3}/, '$1')),
    ...noteLines(c),
    '',
    terminalTable(meshTable(c)),
  ];
  if (c.refused.length > 0) lines.push('', terminalTable(refusedTable(c)));
  return lines.join('\n');
}

const LEGEND =
  '* best   + no other plan is better in both time and memory   step time, which ranks: ' +
  'communication overlapped   call by call: one after another';

/** The best plan, its proof, and the best by the simulation and among recipes. */
function bestLines(c: Comparison, best: ComparedPlan): string[] {
  const lines = [
    `best   ${best.name} on ${best.mesh}: ${secondsText(stepTime(best))}, ` +
      `${bytesText(best.peakBytes)}`,
  ];
  for (const text of layoutWords(best))
    if (best.pipeline !== undefined) lines.push(`do     ${text}`);
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
      'note   zero1 and zero2 are priced outside the planning problem, in which states follow ' +
        'their parameter',
    );
  if (c.stopped !== undefined) lines.push(stoppedText(c.stopped));
  for (const note of comparedPaddingText(c)) lines.push(`note   ${note}`);
  return lines;
}
