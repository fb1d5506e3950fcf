/** Prints the first screen of a comparison in 80 columns: its answer in words, and the best. */

import { bestPlan, stepTime } from '../../recipes/compare/best-plan.ts';
import type { ComparedPlan, Comparison } from '../../recipes/compare/comparison.ts';
import { bytesText, countedText, probabilityText, secondsText, slowerText } from '../../units.ts';
import { comparedScreen, FEW, refusalCounts } from '../model/compared-screen.ts';
import { screenText } from './first-screen.ts';
import { narrowTable } from './narrow-table.ts';
import { runLines } from './run-cost.ts';
import { firstOfEach, stoppedText } from './sweep.ts';

/**
 * The first screen of a comparison.
 *
 * @param isWhole true if the details follow, so that none are announced
 */
export function comparedScreenText(c: Comparison, isWhole = false): string {
  const run = c.run === undefined ? [] : runLines(c.run).map((line) => line.slice(10));
  // The assumptions of a run are details.
  const rows = comparedScreen(
    c,
    run.filter((line) => !line.startsWith('assumed: ')),
  );
  if (c.plans.length === 0)
    return [
      screenText(rows),
      narrowTable([['meshes', 'why'], ...refusalCounts(c).slice(0, 8)], [0]),
    ].join('\n\n');
  const stopped =
    c.stopped === undefined
      ? []
      : [{ label: 'stopped', texts: [stoppedText(c.stopped, bestPlan(c)?.seconds)] }];
  const more = isWhole ? [] : [{ label: 'more', texts: [moreText(c)] }];
  const next = [{ label: 'next', texts: nextTexts(c) }];
  return [screenText([...rows, ...stopped]), planRows(c), screenText([...more, ...next])].join(
    '\n\n',
  );
}

/** The fastest plans that fit, each on its best mesh; where none fits, the leanest. */
function planRows(c: Comparison): string {
  const best = bestPlan(c);
  const first = firstOfEach(c.plans);
  const fitting = first.filter((p) => p.fits);
  const shown = (fitting.length > 0 ? fitting : first).slice(0, FEW);
  const front = shown.some((p) => p !== best && c.pareto.includes(p.name));
  const legend =
    (best === undefined ? '' : '* best') +
    (front ? '   + no other plan is better in both time and memory' : '');
  const head = ['', 'plan', 'mesh', 'step time', '', 'memory', 'fits'];
  const table = narrowTable([head, ...shown.map((p) => cellsOf(p, c, best))], [3, 4, 5, 6]);
  return legend === '' ? table : `${table}\n${legend}`;
}

function cellsOf(p: ComparedPlan, c: Comparison, best: ComparedPlan | undefined): string[] {
  return [
    p.name === c.best ? '*' : c.pareto.includes(p.name) ? '+' : '',
    p.plan,
    p.mesh,
    secondsText(stepTime(p)),
    p === best || best === undefined ? '' : slowerText(stepTime(p), stepTime(best)),
    bytesText(p.peakBytes),
    !p.fits
      ? 'no'
      : typeof p.fitProbability === 'number'
        ? probabilityText(p.fitProbability)
        : 'yes',
  ];
}

function moreText({ plans, whatIf = [], notes = [], refused, frontier = [] }: Comparison): string {
  const parts = [
    `${countedText(plans.length, 'plan')} and why each is slower`,
    ...(whatIf.length === 0 ? [] : ['what would change the answer']),
    ...(frontier.length === 0 ? [] : ['time against memory']),
    ...(refused.length === 0 ? [] : [countedText(refused.length, 'refused plan')]),
    ...(notes.length === 0 ? [] : [countedText(notes.length, 'note')]),
  ];
  return `-v prints ${parts.join(', ')}`;
}

function nextTexts(c: Comparison): string[] {
  const { question, layout, run } = c;
  const best = bestPlan(c);
  // ZeRO of a graph is priced, and no plan folder states it.
  const isStated = best?.choice !== false || question !== undefined;
  return [
    best === undefined
      ? 'ask for more --devices, or for a larger --memory'
      : isStated
        ? 'add -o plan to keep the best as a plan folder'
        : 'add -o plan to keep the fastest plan that a plan folder states',
    ...(question === undefined || layout !== undefined
      ? []
      : ['add --layout my_config.toml to price the configuration that you run']),
    ...(question === undefined || run !== undefined
      ? []
      : ['add --tokens 15T for days, money and energy of a whole run']),
  ];
}
