/** Writes report blocks as plain text with aligned tables. */

import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { barText } from '../html/blocks.ts';
import { type Block, cellText, type Section } from '../model/blocks.ts';
import type { Report } from '../model/data.ts';
import { terminalTable } from '../model/table.ts';
import type { ReportOrigin } from '../sections/decision-rows.ts';
import { planOptions } from '../sections/options.ts';
import { planSections } from '../sections/plan.ts';
import { figuresOf, planDecision } from '../sections/plan-decision.ts';
import { documentText, printable } from './document.ts';

/** The report of a plan as plain text, with the numbers and texts of the page. */
export function textReport(report: Report, origin: ReportOrigin = {}): string {
  checkKinds('textReport', {
    report: [report, 'report'],
    origin: [origin, 'record', 'undefined'],
  });
  const answer = [...planDecision(report, origin), ...figuresOf(report)];
  return textDocument(`Plan of ${report.model}`, answer, [
    ...planOptions(report, origin),
    ...planSections(report),
  ]);
}

/** A document as plain text: tables aligned, nothing but printable characters and line breaks. */
export function textDocument(
  title: string,
  answer: readonly { readonly label: string; readonly text: string }[],
  sections: readonly Section[],
): string {
  const head = [printable(title), ''];
  const width = Math.max(0, ...answer.map((a) => a.label.length));
  for (const { label, text } of answer) head.push(`${label.padEnd(width)}  ${printable(text)}`);
  return documentText(head, sections, (heading) => heading.toUpperCase(), blockLines);
}

function blockLines(block: Block): string[] {
  switch (block.kind) {
    case 'text':
      return [printable(block.text)];
    case 'heading':
      return [printable(block.text)];
    case 'list':
      return block.items.map((item) => `- ${printable(item)}`);
    case 'bar':
      return [barText(block)];
    case 'code':
      return block.text.split(/\r\n|[\r\n]/).map((line) => `  ${printable(line)}`);
    case 'figure':
      return [];
    case 'page':
      return block.instead === undefined ? [] : [printable(block.instead)];
    case 'table': {
      const columns = block.columns.map(({ head, kind }) => ({ head, ...defined({ kind }) }));
      const rows = block.rows.map((row) => row.map((c) => printable(cellText(c))));
      return [block.caption, '', ...terminalTable({ columns, rows }).split('\n')];
    }
  }
}
