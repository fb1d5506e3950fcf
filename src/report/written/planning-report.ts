/**
 * The part of `report` that takes the output of `compare --json` for several clusters, devices,
 * sequences or batches.
 */

import type { Planning } from '../../sweep/planning/planning.ts';
import type { ReportFormat } from '../formats.ts';
import { htmlFile } from '../html/page.ts';
import { planningDecision } from '../sections/decision.ts';
import type { ReportOrigin } from '../sections/decision-rows.ts';
import { planningOptions } from '../sections/options.ts';
import { planningAnswer, planningSections, planningTitle } from '../sections/planning.ts';
import { csvLines } from './csv.ts';
import { markdownDocument } from './markdown.ts';
import { textDocument } from './plain-text.ts';

/** The report of points side by side. */
export function planningReport(
  planning: Planning,
  format: ReportFormat,
  version: string,
  origin: ReportOrigin = {},
): string {
  const title = planningTitle(planning);
  const answer = planningAnswer(planning);
  const sections = planningSections(planning);
  const decision = planningDecision(planning, origin);
  const options = planningOptions(planning);
  const all = [...decision, ...answer];
  const data = {
    schema: 'shardwright.report/1',
    versions: { shardwright: version },
    answer,
    planning,
    run: {},
  };
  switch (format) {
    case 'json':
      return `${JSON.stringify(data)}\n`;
    case 'md':
      return markdownDocument(title, all, [...options, ...sections]);
    case 'text':
      return textDocument(title, all, [...options, ...sections]);
    case 'csv':
      return csvLines(pointRows(planning));
    case 'html':
      return htmlFile({
        title,
        heading: title,
        subtitle: 'Each question at its best plan, side by side',
        decision,
        options,
        answer,
        sections,
        data,
        version,
      });
  }
}

/** A head, and a row for each question. */
function pointRows({ points }: Planning): (string | number)[][] {
  const head = [
    'model',
    'cluster',
    'devices',
    'sequence',
    'global_batch',
    'plan',
    'mesh',
    'seconds',
    'tokens_per_second',
    'mfu',
    'peak_bytes',
    'wall_seconds',
    'price',
    'currency',
    'megawatt_hours',
  ];
  const rows = points.map((p) => [
    p.model,
    p.cluster,
    p.devices,
    p.sequence,
    p.globalBatch,
    p.best?.plan ?? '',
    p.best?.mesh ?? '',
    p.best?.seconds ?? '',
    p.best?.tokensPerSecond ?? '',
    p.best?.mfu ?? '',
    p.best?.peakBytes ?? '',
    p.run?.wallSeconds ?? '',
    p.run?.price?.amount ?? '',
    p.run?.price?.currency ?? '',
    p.run?.energyMegawattHours ?? '',
  ]);
  return [head, ...rows];
}
