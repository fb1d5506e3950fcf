/** Writes report blocks as Markdown and escapes the texts of files. */

import { checkKinds } from '../../arguments.ts';
import { barText } from '../html/blocks.ts';
import { type Block, cellText, type Section } from '../model/blocks.ts';
import type { Report } from '../model/data.ts';
import type { ReportOrigin } from '../sections/decision-rows.ts';
import { planOptions } from '../sections/options.ts';
import { planSections } from '../sections/plan.ts';
import { figuresOf, planDecision } from '../sections/plan-decision.ts';
import { documentText, printable } from './document.ts';

/** The report of a plan as Markdown, with the numbers and texts of the page. */
export function markdownReport(report: Report, origin: ReportOrigin = {}): string {
  checkKinds('markdownReport', {
    report: [report, 'report'],
    origin: [origin, 'record', 'undefined'],
  });
  const answer = [...planDecision(report, origin), ...figuresOf(report)];
  return markdownDocument(`Plan of ${report.model}`, answer, [
    ...planOptions(report, origin),
    ...planSections(report),
  ]);
}

/** A document as Markdown. Texts of files cannot make markup. */
export function markdownDocument(
  title: string,
  answer: readonly { readonly label: string; readonly text: string }[],
  sections: readonly Section[],
): string {
  const head = [`# ${escapeMarkdown(title)}`, ''];
  for (const { label, text } of answer) head.push(`- **${label}**: ${escapeMarkdown(text)}`);
  return documentText(head, sections, (heading) => `## ${escapeMarkdown(heading)}`, blockLines);
}

function blockLines(block: Block): string[] {
  switch (block.kind) {
    case 'text':
      return [escapeMarkdown(block.text)];
    case 'heading':
      return [`### ${escapeMarkdown(block.text)}`];
    case 'list':
      return block.items.map((item) => `- ${escapeMarkdown(item)}`);
    case 'bar':
      return [escapeMarkdown(barText(block))];
    case 'code':
      // Four spaces make a code block that no text can close.
      return block.text.split(/\r\n|[\r\n]/).map((line) => `    ${line}`);
    case 'figure':
      return [];
    case 'page':
      return block.instead === undefined ? [] : [escapeMarkdown(block.instead)];
    case 'table': {
      const row = (cells: readonly string[]): string =>
        `| ${cells.map(escapeMarkdown).join(' | ')} |`;
      const rule = block.columns.map((c) => (c.kind === 'number' ? '--:' : '---'));
      return [
        escapeMarkdown(block.caption),
        '',
        row(block.columns.map((c) => c.head)),
        `| ${rule.join(' | ')} |`,
        ...block.rows.map((cells) => row(cells.map(cellText))),
      ];
    }
  }
}

/** Text of a file as Markdown text: no links, no HTML, no table borders, no line breaks. */
function escapeMarkdown(text: string): string {
  return printable(text)
    .replace(/&/g, '&amp;')
    .replace(/</g, '&lt;')
    .replace(/[\\`*_{}[\]|#~!]/g, (c) => `\\${c}`);
}
