/** Makes the section on what a run takes: time, device-hours, money, energy, failures. */

import type { RunCost } from '../../cost/training/run-cost.ts';
import type { Comparison } from '../../recipes/compare/comparison.ts';
import { countText, durationText, percentText, secondsText } from '../../units.ts';
import type { Section } from '../model/blocks.ts';
import { amountText, energyText, moneyRangeText, tokensText, wallText } from '../text/run-cost.ts';

export function runSection({ run, layout }: Comparison): Section[] {
  if (run === undefined) return [];
  const runs = layout?.run === undefined ? [run] : [run, layout.run];
  const row = (what: string, text: (r: RunCost) => string): string[] => [what, ...runs.map(text)];
  const money = (r: RunCost): string => (r.price === undefined ? 'not known' : moneyRangeText(r));
  const each = ({ price, tokensPerCurrency }: RunCost): string =>
    price === undefined || tokensPerCurrency === undefined
      ? 'not known'
      : `${countText(Math.round(tokensPerCurrency))} for 1 ${price.currency}`;
  return [
    {
      id: 'run-cost',
      title: `What ${tokensText(run.tokens)} tokens take`,
      blocks: [
        {
          kind: 'table',
          caption: 'A run on the best plan, with failures, checkpoints and restarts',
          columns: [
            { head: 'Of the run', kind: 'name' },
            { head: 'Best plan', kind: 'keep' },
            ...(runs.length > 1 ? [{ head: 'Your layout', kind: 'keep' as const }] : []),
          ],
          rows: [
            row('Wall time', wallText),
            row(
              'Steps',
              (r) => `${countText(r.steps)}, ${durationText(r.stepsSeconds)} without failures`,
            ),
            row('Device-hours', (r) => amountText(r.deviceHours)),
            row('Money', money),
            row('Energy', (r) => energyText(r) ?? 'not known'),
            row('Tokens a second', (r) => countText(Math.round(r.tokensPerSecond))),
            row('Tokens for money', each),
            row('Goodput', (r) => percentText(r.goodput)),
            row('Between failures', (r) => durationText(r.betweenFailuresSeconds)),
            row(
              'A checkpoint every',
              (r) =>
                `${durationText(r.checkpointEverySeconds)}, ` +
                `${secondsText(r.checkpointWriteSeconds)} to write`,
            ),
            row('A restart', (r) => durationText(r.restartSeconds)),
          ],
        },
        ...(run.assumptions.length === 0
          ? []
          : [{ kind: 'list' as const, items: run.assumptions.map((text) => `Assumed: ${text}.`) }]),
      ],
    },
  ];
}
