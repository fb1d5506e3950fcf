/**
 * Defines a trainer: what it can run, the software that it brings, how its configuration is read,
 * and how a plan is written for it. Each trainer is a folder with a record of its name, or a record
 * in `others.ts`; `trainers.ts` lists them.
 */
import type { ExportTarget } from '../backend/target.ts';
import type { Framework } from './framework.ts';
import type { ConfigEdits } from './layout/edited-layout.ts';
import type { LaunchedLayout, LaunchFile } from './layout/launched-layout.ts';
import type { LayoutDraft, LayoutSetting, NotPriced } from './layout/layout-draft.ts';
import type { TrainerRuns } from './runs.ts';

/** The layout of a configuration, before devices and model are known. */
export interface ReadLayout {
  readonly draft: LayoutDraft;
  readonly notPriced: readonly NotPriced[];
}

/** A configuration that is read. */
export interface ConfigSource {
  readonly text: string;
  readonly setting: LayoutSetting;
  /** The value that the text has as YAML. @throws E_SYNTAX */
  readonly yaml: () => unknown;
}

/** A form in which people keep the configuration of a trainer. */
export interface ConfigFormat {
  /** The name of the form in messages. */
  readonly name: string;
  /** True if the form is JSON; forms without it are tried for all other texts. */
  readonly isJson?: boolean;
  readonly isIn: (text: string) => boolean;
  /** @throws E_INPUT, E_SYNTAX with line and column */
  readonly read: (source: ConfigSource) => ReadLayout;
  /**
   * True if the trainer refuses routed experts whose tokens every tensor-parallel rank holds;
   * absent: it prices them cut.
   */
  readonly wantsCutTokens?: boolean;
  /** The layouts that this form can state, if they are not all that the trainer runs. */
  readonly runs?: TrainerRuns;
  /** How its settings are changed; absent: it is read only. */
  readonly edits?: ConfigEdits;
}

export interface Trainer {
  readonly id: string;
  readonly title: string;
  /** Package and release that the record follows; absent: it was measured in several. */
  readonly release?: string;
  /** Profiles by the name that `--for` and tables of runs have, one for each generation. */
  readonly software: Readonly<Record<string, Framework>>;
  /** The profile of today's release; absent: the trainer brings no software that has a price. */
  readonly profile?: string;
  readonly runs: TrainerRuns;
  /** Where it says that it trains low-rank adapters beside frozen weights; absent: it does not. */
  readonly adapters?: string;
  /** The configurations that are read, in words. */
  readonly reads?: string;
  readonly formats?: readonly ConfigFormat[];
  /** Writes the configuration of a compared layout. */
  readonly writeLaunch?: (layout: LaunchedLayout) => LaunchFile | readonly [];
  /** Writes the recipe of a plan of a graph. */
  readonly target?: ExportTarget;
}
