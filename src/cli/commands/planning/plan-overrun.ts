/**
 * Says before the search that `plan --time-limit` will take longer than its limit, and afterwards
 * where the time went: the limit ends the search and leaves out what need not be asked, the check
 * of the folder too, but a plan is read, re-costed and written whole.
 */
import type { Deadline } from '../../../plan/request/deadline.ts';
import { percentText, secondsText } from '../../../units.ts';

/** Part of the limit that a command may take longer without saying so. */
const LENIENCE = 0.1;

/** The steps of one command by what each took of its limit. */
export class StepTimes {
  private readonly steps: { readonly name: string; readonly seconds: number }[] = [];
  private last = 0;

  constructor(private readonly deadline: Deadline) {}

  /** Ends a step that began where the one before ended. */
  end(name: string): void {
    const used = this.deadline.usedSeconds;
    if (used === undefined) return;
    this.steps.push({ name, seconds: used - this.last });
    this.last = used;
  }

  /**
   * A line for a command that will take longer than its limit allows, before the search. Undefined
   * for any other.
   */
  aheadText(limitSeconds: number | undefined): string | undefined {
    const checking = this.checkExceeding(limitSeconds);
    if (limitSeconds === undefined || checking === undefined) return undefined;
    return (
      `time limit of ${secondsText(limitSeconds)}: reading and preparing took ` +
      `${secondsText(this.last)}; there will be no time to check the plan that is written, which ` +
      `takes at least ${secondsText(checking)} more`
    );
  }

  /** A line for a plan that there is no time to check; undefined where there is. */
  uncheckedText(limitSeconds: number | undefined, folder: string): string | undefined {
    const checking = this.checkExceeding(limitSeconds);
    if (limitSeconds === undefined || checking === undefined) return undefined;
    return (
      `time limit of ${secondsText(limitSeconds)}: the plan is written without its check, which ` +
      `takes at least ${secondsText(checking)}, and without the problems that it makes; check it ` +
      `with \`shardwright check-plan ${folder}\``
    );
  }

  /**
   * Seconds of the check of a folder, at least, where the limit does not allow them: it prepares
   * the program again.
   */
  private checkExceeding(limitSeconds: number | undefined): number | undefined {
    const preparing = this.steps.find(({ name }) => name === 'preparing')?.seconds;
    if (limitSeconds === undefined || preparing === undefined) return undefined;
    return this.last + preparing > (1 + LENIENCE) * limitSeconds ? preparing : undefined;
  }

  /** A line for a command that took longer than its limit allows; undefined for any other. */
  overrunText(limitSeconds: number | undefined): string | undefined {
    const isOver = limitSeconds !== undefined && this.last > (1 + LENIENCE) * limitSeconds;
    if (!isOver || this.deadline.isInterrupted) return undefined;
    const parts = this.steps.map(({ name, seconds }) => `${name} ${secondsText(seconds)}`);
    return (
      `time limit of ${secondsText(limitSeconds)} exceeded by ` +
      `${percentText(this.last / limitSeconds - 1)}, for ${parts.join(', ')}: the limit ends ` +
      'the search between its steps; the rest takes as long as the program is large'
    );
  }
}
