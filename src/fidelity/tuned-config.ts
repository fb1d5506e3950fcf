/**
 * Tunes the text of a trainer's configuration: takes the file with its model and its devices, and
 * gives what to change in it, and the file with the changes made.
 */
import { loadCluster } from '../cost/hardware/load-cluster.ts';
import { defaultCostPreset } from '../cost/presets/presets.ts';
import { defined } from '../defined.ts';
import type { TuneOptions } from '../sweep/layout/tune.ts';
import { type TunedFile, tuneFile } from '../sweep/layout/tune-file.ts';
import {
  type AskedModel,
  type AskedSettings,
  type AskedSizes,
  checkedLayout,
  type LayoutAsked,
  layoutSource,
  questionAsked,
} from './asked-question.ts';

/** A configuration, and what is asked of it. */
interface AskedConfig {
  /** The name of the file, for the diff and for errors. */
  readonly file: string;
  readonly text: string;
  /** The layout that the text states. */
  readonly layout: LayoutAsked;
  readonly model: AskedModel;
  readonly sizes: AskedSizes;
  readonly settings: AskedSettings;
}

/**
 * @returns the answer, and the text of the file with the best layout
 * @throws E_USAGE, E_INPUT where the layout does not fit model, devices or trainer; E_UNSUPPORTED
 *   where it has no price
 */
export async function tunedConfig(
  { file, text, layout: asked, model, sizes, settings }: AskedConfig,
  options: Omit<TuneOptions, 'isStated' | 'runs'>,
): Promise<{ readonly tuned: TunedFile; readonly text: string }> {
  const cost = defaultCostPreset(loadCluster(sizes.cluster));
  const question = questionAsked(model, sizes, settings, { asked, cost, fitted: undefined });
  const layout = checkedLayout(asked, question);
  const notPriced = layoutSource(asked, question)?.notPriced ?? [];
  return tuneFile(
    question,
    { file, text, layout, notPriced },
    { ...options, ...defined({ runs: asked.form?.runs }) },
  );
}
