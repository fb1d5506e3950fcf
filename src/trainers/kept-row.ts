/** Reads the layout of a row that `compare -o DIR` kept: the file `layout.json` of its folder. */

import * as z from 'zod';

import { defined } from '../defined.ts';
import { parseJson } from '../text/json.ts';
import type { SettledLayout } from './layout/layout-draft.ts';

/** The fields of the file that a layout is made of; it also has the figures of the row. */
const rowSchema = z.object({
  layout: z.object({ stated: z.string().max(1000) }),
  question: z.object({
    sequence: z.int().positive().optional(),
    globalBatch: z.int().positive().optional(),
    trainer: z.string().optional(),
  }),
});

/** A layout with the trainer that it was priced for. */
interface KeptLayout extends SettledLayout {
  readonly trainer?: string;
}

/** The layout of a kept row; undefined for a text that is none. */
export function keptLayout(text: string, file: string): KeptLayout | undefined {
  if (!/^\s*\{/.test(text) || !text.includes('"stated"')) return undefined;
  const row = rowSchema.safeParse(parseJson(text, { file }, { what: 'the layout' }));
  if (!row.success) return undefined;
  const { layout, question } = row.data;
  return { text: layout.stated, ...defined(question) };
}
