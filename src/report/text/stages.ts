/** The pipeline stages of a captured graph as text: the step, the cuts, and each stage. */

import type { GraphPipeline, PlannedStage } from '../../sweep/pipeline/graph-stages.ts';
import { bytesText, countedText, percentText, secondsText, tableText } from '../../units.ts';

/** The record that `plan FILE --pp --json` prints; the keys are a contract. */
export interface StagedPlanReport {
  readonly model: string;
  /** The mesh of a stage. */
  readonly mesh: string;
  readonly cluster: string;
  /** One step: all microbatches, and the sums of gradients after them. */
  readonly stepSeconds: number;
  /** The peak of the fullest device. */
  readonly peakBytes: number;
  readonly pipeline: GraphPipeline;
}

/** The stages as text. */
export function stagesText(
  { model, mesh, pipeline }: StagedPlanReport,
  isDerived: boolean,
): string {
  const { schedule, microbatches, virtual, stages, cuts, cutPoints, planned } = pipeline;
  const devices = stages.length / virtual;
  const chunks = virtual > 1 ? ` by ${virtual}` : '';
  return [
    tableText([
      [
        'model',
        `${model}, which is the program of one microbatch` +
          (isDerived ? ', with the backward pass that follows from it' : ''),
      ],
      [
        'pipeline',
        `${secondsText(pipeline.seconds)} a step: ${schedule}${chunks}, ` +
          `${countedText(microbatches, 'microbatch', 'microbatches')} (--schedule, --virtual, ` +
          `--microbatches); bubble ${secondsText(pipeline.bubbleSeconds)}`,
      ],
      ['mesh', `${countedText(devices, 'stage')} in a row, each on ${mesh}`],
      [
        'cut',
        `${cuts.length === 0 ? 'nowhere' : `before ${cuts.join(', ')}`}, of ` +
          `${countedText(cutPoints, 'cut point')}: the best by the plans of the parts between; ` +
          `${countedText(planned, 'program')} planned, equal ones once`,
      ],
      ...pipeline.shared.map(({ names, stages: holders }) => [
        'shared',
        `${names.join(' = ')} by stages ${holders.join(', ')}: its gradients are added once a step`,
      ]),
      ...carriedRows(pipeline),
    ]),
    '',
    stagesTable(pipeline),
    ...pipeline.moved.map((text) => `note       ${text}`),
    ...(pipeline.fits
      ? []
      : [`           does not fit: ${bytesText(pipeline.budgetBytes)} per device`]),
  ].join('\n');
}

function stagesTable({ stages, virtual }: GraphPipeline): string {
  const devices = stages.length / virtual;
  const rows = stages.map((s, k) => [
    `${k}`,
    `${k % devices}`,
    `${s.calls[0]} to ${s.calls[1]}`,
    secondsText(s.seconds),
    bytesText(s.peakBytes),
    `${s.inFlight}`,
    percentText(s.idleShare),
    bytesText(s.sendBytes),
    bytesText(s.sendBackBytes),
    proofText(s),
  ]);
  return tableText(
    [
      [
        ...['stage', 'device', 'holds', 'a microbatch', 'memory', 'kept', 'idle'],
        ...['sends', 'back', 'proof'],
      ],
      ...rows,
    ],
    [0, 1, 3, 4, 5, 6, 7, 8],
  );
}

function proofText({ proof: { status, gap } }: PlannedStage): string {
  return status === 'optimal' ? 'optimal' : `gap ${percentText(gap)}`;
}

/** Values that are named in one row. */
const SHOWN = 4;

function carriedRows({ carried }: GraphPipeline): string[][] {
  if (carried.length === 0) return [];
  const named = carried
    .slice(0, SHOWN)
    .map(({ value, stages }) => `${value} by ${stages.join(', ')}`)
    .join('; ');
  const more = carried.length > SHOWN ? `; and ${carried.length - SHOWN} more` : '';
  return [['carried', `${named}${more}: sent on by stages that do not read it`]];
}
