/**
 * Puts the lines of a document together: a head, then each section's heading and blocks, with an
 * empty line between them.
 */

import type { Block, Section } from '../model/blocks.ts';

/** One document as text that ends in a line break; a block without lines leaves no gap. */
export function documentText(
  head: readonly string[],
  sections: readonly Section[],
  headingLine: (title: string) => string,
  blockLines: (block: Block) => readonly string[],
): string {
  const out = [...head];
  for (const { title, blocks } of sections) {
    out.push('', headingLine(title));
    for (const block of blocks) {
      const lines = blockLines(block);
      if (lines.length > 0) out.push('', ...lines);
    }
  }
  return `${out.join('\n')}\n`;
}

/**
 * Text without line breaks and without characters that move a terminal's cursor or turn the
 * direction of text around.
 */
export function printable(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]+/g, ' ');
}
