/**
 * The rows that decisions have in common: the risk of running out of memory, what a run takes, who
 * asked and when. A decision is the first screen of a report, for whoever decides.
 */

import type { RunCost } from '../../cost/training/run-cost.ts';
import { defined } from '../../defined.ts';
import { DEFAULT_RISK } from '../../recipes/compare/best-plan.ts';
import type { AskedRun } from '../../sweep/planning/run-question.ts';
import { bytesText, probabilityText } from '../../units.ts';
import { amountText, energyText, moneyRangeText, tokensText, wallText } from '../text/run-cost.ts';

/** One line of the decision; `bad`: it warns, in words and in red. */
export interface DecisionRow {
  readonly label: string;
  readonly text: string;
  readonly tone?: 'bad';
}

/** Who asked, and when: as they say it. A report has no clock of its own. */
export interface ReportOrigin {
  readonly author?: string;
  readonly date?: string;
  /** The folder that a plan lies in, as commands are told it; default `plan`. */
  readonly folder?: string;
  /** The run of a plan that is priced; default a billion tokens. A comparison has its own. */
  readonly run?: AskedRun;
}

/** Tokens of the run of a plan that is priced where none is asked for. */
export const RUN_TOKENS = 1e9;

/** A row, or none where there is nothing to say. */
export function row(label: string, texts: readonly string[], tone?: 'bad'): DecisionRow[] {
  return texts.length === 0 ? [] : [{ label, text: texts.join('; '), ...defined({ tone }) }];
}

export function askedRow(question: string, { author, date }: ReportOrigin): DecisionRow[] {
  const by = [
    ...(author === undefined ? [] : [`by ${author}`]),
    ...(date === undefined ? [] : [date]),
  ];
  return [{ label: 'Asked', text: [question, ...by].join(', ') }];
}

/** `57 % to fit: ...`, where a plan may run out of memory; nothing for one that surely fits. */
export function doubtRow(
  probability: number | null | undefined,
  risk = DEFAULT_RISK,
): DecisionRow[] {
  if (typeof probability !== 'number' || probability >= risk) return [];
  const [fits, dies] = [probabilityText(probability), probabilityText(1 - probability)];
  return row('Risk', [`${fits} to fit: with ${dies} the run ends out of memory`], 'bad');
}

/** `1T tokens in 113 days (95 days to 150 days)`, money and energy. */
export function runTexts(run: RunCost | undefined): string[] {
  if (run === undefined) return [];
  return [
    [
      `${tokensText(run.tokens)} tokens in ${wallText(run)}`,
      run.price === undefined
        ? `${amountText(run.deviceHours)} device-hours of no known price (--price)`
        : moneyRangeText(run),
      energyText(run) ?? [],
    ]
      .flat()
      .join(', '),
  ];
}

/** `11.1 GiB of 75.7 GiB a device; fits with 99 %`. */
export function memoryText(
  peakBytes: number,
  budgetBytes: number,
  fits: number | null | undefined,
): string {
  const surely = typeof fits === 'number' ? `; fits with ${probabilityText(fits)}` : '';
  return `${bytesText(peakBytes)} of ${bytesText(budgetBytes)} a device${surely}`;
}
