/**
 * Tunes the configuration of a trainer: the answer of `tuneLayout`, with the diff of the file to
 * the best layout that it can state.
 */
import { createTwoFilesPatch, FILE_HEADERS_ONLY } from 'diff';

import type { NotPriced } from '../../trainers/layout/layout-draft.ts';
import type { SweepQuestion } from '../model/question.ts';
import type { StatedLayout } from '../model/stated-layout.ts';
import { FileEditor } from './edited-file.ts';
import { parseLayout } from './parse-layout.ts';
import { type Tuned, tuneLayout, type TuneOptions } from './tune.ts';

/** A configuration that was read. */
interface ConfigToTune {
  /** The name of the file, for the diff and for errors. */
  readonly file: string;
  readonly text: string;
  readonly layout: StatedLayout;
  /** Settings of the file that have no price. */
  readonly notPriced: readonly NotPriced[];
}

/** The answer with the file that makes it. */
export interface TunedFile extends Tuned {
  readonly file: string;
  readonly notPriced: readonly NotPriced[];
  /** The unified diff to the best layout; empty where the file has it. */
  readonly diff: string;
}

/**
 * @returns the answer, and the text of the file with the best layout
 * @throws as `tuneLayout`
 */
export async function tuneFile(
  question: SweepQuestion,
  { file, text, layout, notPriced }: ConfigToTune,
  options: Omit<TuneOptions, 'isStated'>,
): Promise<{ readonly tuned: TunedFile; readonly text: string }> {
  const editor = new FileEditor(file, text, question, layout);
  const tuned = await tuneLayout(question, layout, {
    ...options,
    isStated: (wanted) => editor.edited(wanted) !== undefined,
  });
  const { best, current } = tuned;
  const edited =
    best === null || best.layout === current.layout
      ? text
      : (editor.edited(parseLayout(best.layout, question.devices)) ?? text);
  return {
    tuned: { ...tuned, file, notPriced, diff: unifiedDiff(file, text, edited) },
    text: edited,
  };
}

/** The changes in the form of `patch` and `git apply`; empty if the texts are equal. */
function unifiedDiff(file: string, before: string, behind: string): string {
  if (before === behind) return '';
  const options = { context: 3, headerOptions: FILE_HEADERS_ONLY };
  const names = [`a/${file}`, `b/${file}`] as const;
  return createTwoFilesPatch(...names, before, behind, undefined, undefined, options).trimEnd();
}
