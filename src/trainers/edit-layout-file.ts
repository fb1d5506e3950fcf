/**
 * Edits the layout in the configuration of a trainer: only the settings that change, comments and
 * order kept.
 */
import { changedSettings } from './layout/edit-settings.ts';
import type { EditedLayout } from './layout/edited-layout.ts';
import { formatOf } from './read-layout-file.ts';

/** The text with another layout; undefined where the form of the file cannot state it. */
export function editLayoutFile(
  text: string,
  current: EditedLayout,
  wanted: EditedLayout,
): string | undefined {
  const edits = formatOf(text)?.edits;
  const [before, behind] = [edits?.settings(current, text), edits?.settings(wanted, text)];
  if (edits === undefined || before === undefined || behind === undefined) return undefined;
  return edits.edit(text, changedSettings(before, behind));
}
