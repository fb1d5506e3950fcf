/** A layout as the writers of settings take it: everything that a configuration of it states. */
import type { LayoutTuning } from '../../step/layout.ts';
import type { RunLayout } from '../runs.ts';
import type { Settings, SettingValue } from './edit-settings.ts';
import type { LaunchedLayout } from './launched-layout.ts';

export interface EditedLayout extends Omit<RunLayout, 'tuning'> {
  readonly tuning: LayoutTuning;
  readonly layers: number;
  /** Microbatches of a step on one data rank. */
  readonly microbatches: number;
  readonly globalBatch: number;
}

/** A layout that is launched, as the writers of settings take it. */
export function editedLayout({
  sizes,
  mode,
  context,
  sequenceParallel,
  tuning,
  stageLayers,
  layers,
  globalBatch,
  gathersOnce,
  pairsMicrobatches,
}: LaunchedLayout): EditedLayout {
  const { microbatches, ...own } = tuning;
  return {
    sizes,
    kind: { mode, context, sequenceParallel },
    tuning: { ...own, once: gathersOnce, paired: pairsMicrobatches, stageLayers },
    layers,
    microbatches,
    globalBatch,
  };
}

/** How a form of configuration is edited. */
export interface ConfigEdits {
  /** The settings that state a layout; undefined where the form cannot state it. */
  readonly settings: (layout: EditedLayout, text: string) => Settings | undefined;
  readonly edit: (text: string, changed: Settings) => string;
}

export type { SettingValue };
