/** `check-plan`: a written plan against its graph, its request and its certificate. */
import { ShardwrightError } from '../../../errors.ts';
import { checkPlan, type PlanCheck } from '../../../plan/questions/check-plan.ts';
import { differenceText } from '../../../plan/questions/differences.ts';
import { countedText, secondsText, tableText } from '../../../units.ts';
import { operatorsWith } from '../../input/load-operators.ts';
import { madeAgain } from '../../input/pipeline-file.ts';
import { problemsBeside, wholePlan } from '../../input/plan-folder.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import type { CheckPlanOptions } from './flags.ts';

/** The record that `check-plan --json` prints; the keys are a contract. */
export interface CheckPlanReport extends Omit<PlanCheck, 'prepared' | 'choice' | 'problems'> {
  readonly model: string;
  readonly mesh: string;
  readonly ok: boolean;
  /** Seconds of the check, reading included. */
  readonly seconds: number;
}

export async function checkPlanCommand(
  path: string,
  options: CheckPlanOptions,
  io: CliIo,
): Promise<number> {
  const began = performance.now();
  const folder = wholePlan(path);
  const table = await operatorsWith(options.ops);
  const { plan } = folder;
  const beside = problemsBeside(path);
  const whole = beside.length === 0 ? folder : { ...folder, problems: beside };
  const check = named(path, () => checkPlan(whole, table, madeAgain(table)));
  const report: CheckPlanReport = {
    model: plan.model,
    mesh: plan.request.mesh,
    ok: check.differences.length === 0,
    differences: check.differences,
    fields: check.fields,
    producer: check.producer,
    checkedBy: check.checkedBy,
    recheckedSeconds: check.recheckedSeconds,
    boundSeconds: check.boundSeconds,
    certificateNumbers: check.certificateNumbers,
    seconds: (performance.now() - began) / 1000,
  };
  answer(io, options, report, () => textOf(report, check));
  return report.ok ? EXIT.ok : EXIT.findings;
}

function named<T>(path: string, check: () => T): T {
  try {
    return check();
  } catch (error) {
    throw error instanceof ShardwrightError ? error.with({ file: path }) : error;
  }
}

const SHOWN = 20;

function textOf(report: CheckPlanReport, { differences }: PlanCheck): string {
  const { producer, checkedBy } = report;
  const whose =
    producer === checkedBy
      ? checkedBy
      : `${producer ?? 'an earlier version'}, compared with those of ${checkedBy}`;
  const lines = tableText([
    ['plan', `${report.model} on ${report.mesh}`],
    ['prices', `of ${whose}`],
    [
      'compared',
      `${countedText(report.fields, 'field')} with what follows from graph.swg and request.json`,
    ],
    ['re-costed', `${secondsText(report.recheckedSeconds)} from the placements alone`],
    [
      'proof',
      `certificate of ${countedText(report.certificateNumbers, 'number')} replayed: no plan ` +
        `of the request takes less than ${secondsText(report.boundSeconds)}`,
    ],
    ['checked in', secondsText(report.seconds)],
  ]);
  if (report.ok) return `${lines}\nthe plan is what it says`;
  const more = differences.length > SHOWN ? [`  and ${differences.length - SHOWN} more`] : [];
  const list = differences.slice(0, SHOWN).map((d) => `  ${differenceText(d)}`);
  return [
    lines,
    `the plan is not what it says: ${countedText(differences.length, 'difference')}`,
    ...list,
    ...more,
  ].join('\n');
}
