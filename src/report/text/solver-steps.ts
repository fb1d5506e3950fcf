/** Collects the steps that solves report into one record, and a table of the result of each. */

import type { SolverStep } from '../../solver/types.ts';
import { countedText, percentText, secondsText, shareOf, tableText } from '../../units.ts';

/** A step, and which solve it belongs to, from 0. */
export type RecordedStep = SolverStep & { readonly solve: number };

/** Listens to solves, one after another. */
export class SolverSteps {
  private readonly recorded: RecordedStep[] = [];
  private solves = 0;
  private open: SolverStep[] = [];

  /** For `onStep`. */
  readonly listen = (step: SolverStep): void => {
    this.open.push(step);
    if (step.level > 0) return;
    // A step is reported when it ends, together with the steps inside it.
    this.close();
  };

  /**
   * The steps in the order in which they began. A solve that an error ended has those that it came
   * to.
   */
  get steps(): readonly RecordedStep[] {
    if (this.open.length > 0) this.close();
    return this.recorded;
  }

  private close(): void {
    const solve = this.solves++;
    const inOrder = this.open.sort((a, b) => a.order - b.order);
    this.recorded.push(...inOrder.map((step) => ({ solve, ...step })));
    this.open = [];
  }
}

/**
 * A line a step: name, indented by the steps that it is a part of, what it came to, gap, work, what
 * it left, time.
 */
export function solverStepsText(steps: readonly RecordedStep[]): string {
  const head = ['step', 'came to', 'cost', 'bound', 'gap', 'work', 'values', 'cells', 'time'];
  const lines = steps.map(({ level, step, outcome, cost, bound, work, values, cells, seconds }) => [
    `${'  '.repeat(level)}${step}`,
    outcome,
    whole(cost),
    whole(bound),
    cost === undefined || bound === undefined || cost === 0
      ? ''
      : percentText(shareOf(Math.max(0, cost - bound), cost)),
    work === undefined ? '' : whole(work),
    whole(values),
    whole(cells),
    secondsText(seconds),
  ]);
  const solves = new Set(steps.map(({ solve }) => solve)).size;
  const meanings = [...new Map(steps.map(({ step, about }) => [step, about]))].map(
    ([step, about]) => [`  ${step}`, about],
  );
  return [
    `solver     ${countedText(solves, 'solve')}; cost and bound in units of each problem, ` +
      'work in units of its limit (combinations of labels; a message step is 100)',
    tableText([head, ...lines], [2, 3, 4, 5, 6, 7, 8]),
    'what the steps are',
    tableText(meanings),
  ].join('\n');
}

function whole(value: number | undefined): string {
  return value === undefined || !Number.isFinite(value)
    ? ''
    : Math.round(value).toLocaleString('en-US');
}
