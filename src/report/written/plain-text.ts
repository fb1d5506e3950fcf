/** Writes report blocks as plain text with aligned tables. */

import { cellText, type Block, type Section } from '../model/blocks.ts';
import type { Report } from '../model/data.ts';
import { barText } from '../html/blocks.ts';
import { planSections } from '../sections/plan.ts';
import { tableText } from '../../units.ts';

/** The report of a plan as plain text, with the numbers and texts of the page. */
export function textReport(report: Report): string {
  return textDocument(`Plan of ${report.model}`, report.answer, planSections(report));
}

/** A document as plain text: tables aligned, nothing but printable characters and line breaks. */
export function textDocument(
  title: string,
  answer: readonly { readonly label: string; readonly text: string }[],
  sections: readonly Section[],
): string {
  const out = [printable(title), ''];
  const width = Math.max(0, ...answer.map((a) => a.label.length));
  for (const { label, text } of answer) out.push(`${label.padEnd(width)}  ${printable(text)}`);
  for (const { title: heading, blocks } of sections) {
    out.push('', heading.toUpperCase());
    for (const block of blocks) {
      const lines = blockLines(block);
      if (lines.length > 0) out.push('', ...lines);
    }
  }
  return `${out.join('\n')}\n`;
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
      const right = block.columns.flatMap((c, i) => (c.kind === 'number' ? [i] : []));
      const rows = [
        block.columns.map((c) => c.head),
        ...block.rows.map((row) => row.map((c) => printable(cellText(c)))),
      ];
      return [block.caption, '', ...tableText(rows, right).split('\n')];
    }
  }
}

/** Text without characters that move a terminal's cursor or turn the direction of text around. */
function printable(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]+/g, ' ');
}
