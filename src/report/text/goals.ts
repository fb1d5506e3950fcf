/** Words for the questions of a budget: by when, and for how much. */

import { itemAt } from '../../item-at.ts';
import type { PlanningGoals, WithinGoal } from '../../sweep/planning/goals.ts';
import type { PlanningPoint } from '../../sweep/planning/planning.ts';
import { countedText, countText, durationText } from '../../units.ts';
import { moneyText, tokensText, wallText } from './run-cost.ts';

/** The answers about a time and a sum, in words. */
export function goalTexts(
  points: readonly PlanningPoint[],
  { within, spend }: PlanningGoals = {},
): string[] {
  return [
    ...(within === undefined ? [] : withinTexts(points, within)),
    ...(spend === undefined || spend.at === null
      ? []
      : [
          `for ${moneyText(spend.spend.amount, spend.spend.currency)}: ` +
            `${tokensText(spend.tokens)} tokens on ${placeText(itemAt(points, spend.at))} in ` +
            durationText(spend.seconds),
        ]),
  ];
}

function withinTexts(
  points: readonly PlanningPoint[],
  { withinSeconds, at, surely, wouldTake }: WithinGoal,
): string[] {
  const time = `in ${durationText(withinSeconds)}: `;
  if (at === null)
    return [
      `${time}none of these` +
        (wouldTake === undefined
          ? ''
          : `; about ${countText(wouldTake.devices)} devices of ${wouldTake.cluster} would be ` +
            'enough, at the rate of the fastest (ask for them by --devices)'),
    ];
  const point = itemAt(points, at);
  const run = point.run === undefined ? '' : `, ${wallText(point.run)}`;
  // Where no runs of the kind were measured there is no range to speak of.
  const isRanged = points.some(({ run: one }) => (one?.wallSecondsBand ?? null) !== null);
  const sure = !isRanged
    ? ''
    : surely === null
      ? '; the range of none is in time'
      : surely === at
        ? '; its whole range is in time'
        : `; the whole range is in time on ${placeText(itemAt(points, surely))}`;
  return [`${time}${placeText(point)}${run}${sure}`];
}

function placeText({ devices, cluster }: PlanningPoint): string {
  return `${countedText(devices, 'device')} of ${cluster}`;
}
