/** The part of `report` that takes the output of `compare --json`. */

import { statSync } from 'node:fs';

import { readFileText } from '../../../platform/read-file.ts';
import type { Comparison } from '../../../recipes/compare/comparison.ts';
import type { ReportFormat } from '../../../report/formats.ts';
import { htmlFile } from '../../../report/html/page.ts';
import { asComparison } from '../../../report/model/comparison-schema.ts';
import { asPlanning } from '../../../report/model/planning-schema.ts';
import {
  comparisonReport,
  comparisonSections,
  comparisonSubtitle,
  comparisonTitle,
  pageData,
} from '../../../report/sections/compared.ts';
import { comparedDecision } from '../../../report/sections/decision.ts';
import type { ReportOrigin } from '../../../report/sections/decision-rows.ts';
import { comparedOptions } from '../../../report/sections/options.ts';
import { csvLines } from '../../../report/written/csv.ts';
import { markdownDocument } from '../../../report/written/markdown.ts';
import { textDocument } from '../../../report/written/plain-text.ts';
import { planningReport } from '../../../report/written/planning-report.ts';
import type { Planning } from '../../../sweep/planning/planning.ts';
import { parseJson } from '../../../text/json.ts';

/**
 * The comparison in a file, or several side by side, as `compare --json` printed it; undefined for
 * anything else, which is then read as a plan and refused where it is none.
 *
 * @throws E_TYPE with the path of what does not fit
 */
export function readComparison(path: string): Comparison | Planning | undefined {
  let value: unknown;
  try {
    if (!statSync(path).isFile()) return undefined;
    value = parseJson(readFileText(path));
  } catch {
    // Where the file is missing, not readable, not JSON or too deep, reading it as a plan reports
    // the fault.
    return undefined;
  }
  if (typeof value !== 'object' || value === null) return undefined;
  if ('points' in value && 'curves' in value) return asPlanning(value, path);
  if (!('devices' in value) || !('pareto' in value)) return undefined;
  return asComparison(value, path);
}

/** The report of a comparison. */
export function comparisonText(
  comparison: Comparison | Planning,
  format: ReportFormat,
  version: string,
  origin: ReportOrigin = {},
): string {
  if ('points' in comparison) return planningReport(comparison, format, version, origin);
  const report = comparisonReport(comparison, version);
  const title = comparisonTitle(comparison);
  const sections = comparisonSections(comparison);
  const decision = comparedDecision(comparison, origin);
  const options = comparedOptions(comparison);
  const answer = [...decision, ...report.answer];
  switch (format) {
    case 'json':
      return `${JSON.stringify(report)}\n`;
    case 'md':
      return markdownDocument(title, answer, [...options, ...sections]);
    case 'text':
      return textDocument(title, answer, [...options, ...sections]);
    case 'csv':
      return csvLines([
        [
          'name',
          'plan',
          'origin',
          'mesh',
          'seconds',
          'communication_seconds',
          'peak_bytes',
          'fits',
          'why',
        ],
        ...comparison.plans.map((p) => [
          p.name,
          p.plan,
          p.origin,
          p.mesh,
          p.seconds,
          p.communicationSeconds,
          p.peakBytes,
          String(p.fits),
          p.why ?? '',
        ]),
      ]);
    case 'html':
      return htmlFile({
        title,
        heading: title,
        subtitle: comparisonSubtitle(comparison),
        decision,
        options,
        answer: report.answer,
        sections,
        data: pageData(report),
        version,
      });
  }
}
