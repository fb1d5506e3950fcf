/**
 * Restricts the layouts of a question to those that its trainer runs: limits of the search, and the
 * refusal of a layout that is asked for by name.
 */
import { ShardwrightError } from '../../errors.ts';
import { notRun, type RunLayout, type TrainerRuns } from '../../trainers/runs.ts';
import { ASKED_TRAINERS, TRAINERS } from '../../trainers/trainers.ts';
import type { SweepQuestion } from './question.ts';

/** The limits of a question; undefined where every layout can be run. */
export function trainerLimits({
  trainer,
}: Pick<SweepQuestion, 'trainer'>): TrainerRuns | undefined {
  if (trainer === undefined) return undefined;
  const found = TRAINERS.find(({ id }) => id === trainer);
  if (found === undefined)
    throw new ShardwrightError('E_USAGE', `there is no trainer '${trainer}'`, {
      hint: `trainers are ${TRAINERS.map(({ id }) => id).join(', ')}.`,
    });
  return found.runs.isFree === true ? undefined : found.runs;
}

/**
 * @param asked where the layout is asked for, for errors
 * @param runs what is run; default: what the trainer of the question runs
 * @throws E_USAGE naming the setting that the trainer does not have, and the nearest that it has
 */
export function checkRuns(
  question: Pick<SweepQuestion, 'trainer'>,
  layout: RunLayout,
  asked: string,
  runs = trainerLimits(question),
): void {
  const lacks = runs === undefined ? undefined : notRun(runs, layout);
  if (runs === undefined || lacks === undefined) return;
  throw new ShardwrightError(
    'E_USAGE',
    `${asked}: ${question.trainer} does not run ${lacks.setting}`,
    {
      hint:
        `nearest that it runs: ${lacks.nearest.join(', ')} (${runs.source})` +
        `${othersRun(layout)}.`,
    },
  );
}

/** The trainers that run a layout, to ask for with `--for`. */
function othersRun(layout: RunLayout): string {
  const run = ASKED_TRAINERS.filter(({ runs }) => notRun(runs, layout) === undefined);
  const names = run.map(({ id }) => id).slice(0, 3);
  return names.length === 0 ? '' : `; --for ${names.join(' or ')} runs it`;
}
