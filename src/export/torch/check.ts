/**
 * Writes the files that check the exported program against one process: `check.py`, and below
 * `check/` the plan's program at small sizes with the program before it was cut. Placements
 * and redistributions are those of the plan; only sizes are smaller.
 */
import { headLines } from '../../backend/python-text.ts';
import { type ExportFile, type ExportSource, exportSource } from '../../backend/target.ts';
import { cutsOfPlan } from '../../plan/questions/plan-cuts.ts';
import { packageData } from '../../platform/platform.ts';
import { reduced } from '../../simulate/reduced.ts';
import { precisionOf } from './precision.ts';
import { programText } from './program/program-text.ts';
import { splitProgram } from './program/split.ts';

/**
 * @param write the files of the program itself
 * @throws what `reduced` throws, where sizes cannot be made small
 */
export function checkFiles(
  source: ExportSource,
  write: (source: ExportSource) => readonly ExportFile[],
): ExportFile[] {
  const { plan, mesh, program, table } = source;
  const { request } = plan;
  const cuts = cutsOfPlan(plan, program, table);
  const { graph } = reduced(program, table, {
    ...(cuts === undefined ? { meshSizes: mesh.sizes } : { cuts }),
    seed: request.seed,
    unknown: request.unknown,
  });
  const smallSource: ExportSource = {
    ...exportSource({ plan, program: graph, pricedAs: program }, table),
    planHash: source.planHash,
  };
  const uncut = { ...smallSource.lowered(), graph, symbols: new Map(), random: new Map() };
  const reference = programText(uncut, splitProgram(graph), [
    ...headLines(source, 'torch'),
    'The program before it was cut, at small sizes.',
  ]);
  return [
    { name: 'check.py', text: packageData('export/torch-check.py') },
    ...write(smallSource).map(({ name, text }) => ({ name: `check/${name}`, text })),
    { name: 'check/reference.py', text: reference },
    { name: 'check/precision.json', text: `${JSON.stringify(precisionOf(graph), null, 1)}\n` },
  ];
}
