/** `check-plan`: a written plan against its graph, its request and its certificate. */
import type { PlanCheck } from '../../../plan/questions/check-plan.ts';
import { differenceText } from '../../../plan/questions/differences.ts';
import { countedText, secondsText, tableText } from '../../../units.ts';
import { operatorsWith } from '../../input/load-operators.ts';
import { isStagesFolder } from '../../input/stages-folder.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import { checkOne, type CheckPlanReport } from './checked-plan.ts';
import type { CheckPlanOptions } from './flags.ts';

export async function checkPlanCommand(
  path: string,
  options: CheckPlanOptions,
  io: CliIo,
): Promise<number> {
  const table = await operatorsWith(options.ops);
  if (isStagesFolder(path)) {
    const { checkStages, stagesCheckText } = await import('./check-stages.ts');
    const all = checkStages(path, table);
    answer(io, options, all, () => stagesCheckText(all));
    return all.ok ? EXIT.ok : EXIT.findings;
  }
  const { report, check } = checkOne(path, table);
  answer(io, options, report, () => textOf(report, check));
  return report.ok ? EXIT.ok : EXIT.findings;
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
