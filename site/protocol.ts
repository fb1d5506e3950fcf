/**
 * What the page and its worker say to each other: questions one way, progress and answers the
 * other. Plain data.
 */

/** What is asked. Texts are as a person typed them; an empty one is the default. */
export interface Question {
  /** Name of a model, `demo`, `file` for a dropped one, or `program` for that of the editor. */
  readonly model: string;
  readonly mesh: string;
  readonly cluster: string;
  /** Further clusters of a comparison, such as `dgx-b200, gb200-nvl72:144`. */
  readonly clusters: string;
  /** Budget of a device, such as `80GiB`; empty: its usable memory. */
  readonly memory: string;
  readonly batch: string;
  readonly sequence: string;
  readonly layers: string;
  readonly optimizer: string;
  /** Of pipeline stages, where the outermost dim of the mesh is `pp`. */
  readonly schedule: string;
  readonly microbatches: string;
  /** `node=placement`. */
  readonly pins: readonly string[];
  /** Devices of a comparison; several, such as `64,128`, are compared side by side. */
  readonly devices: string;
  /** Tokens of a whole run, such as `15T`, and prices of a device-hour, such as `2.5USD`. */
  readonly tokens: string;
  readonly price: string;
  /** The configuration of a trainer to tune. */
  readonly config: string;
}

export interface GivenFile {
  readonly name: string;
  readonly bytes: Uint8Array;
}

export type Ask =
  | {
      readonly kind: 'plan';
      readonly question: Question;
      readonly file?: GivenFile;
      readonly program?: string;
      readonly stop: string;
    }
  | { readonly kind: 'compare'; readonly question: Question; readonly stop: string }
  | { readonly kind: 'tune'; readonly question: Question; readonly stop: string }
  /** The published runs of the gallery, and the prediction of one of them. */
  | { readonly kind: 'famous' }
  | { readonly kind: 'predict'; readonly run: string }
  | { readonly kind: 'explain'; readonly node: string }
  | {
      readonly kind: 'force';
      readonly node: string;
      readonly placement: string;
      readonly stop: string;
    }
  /** Takes the last placement that was priced back, or up again. */
  | { readonly kind: 'undo' }
  | { readonly kind: 'redo' }
  | { readonly kind: 'folder' }
  | { readonly kind: 'export'; readonly target: string }
  | { readonly kind: 'draw'; readonly drawing: DrawingQuestion }
  | { readonly kind: 'program'; readonly text: string; readonly mesh: string }
  | { readonly kind: 'lists' };

type Asked<K extends Kind> = Extract<Ask, { readonly kind: K }>;
/** What is asked of a plan that is there. */
export type PlanAsk =
  | Asked<'explain'>
  | Omit<Asked<'force'>, 'stop'>
  | Asked<'undo'>
  | Asked<'redo'>
  | Asked<'folder'>
  | Asked<'export'>;

/** Whoever has the plan: the page's own worker, or the machine behind it. */
export interface PlanSource {
  ask(ask: Asked<'explain'>): Promise<Answers['explain']>;
  ask(ask: Omit<Asked<'force'>, 'stop'>): Promise<Answers['force']>;
  ask(ask: Asked<'undo'> | Asked<'redo'>): Promise<WhatIfAnswer>;
  ask(ask: Asked<'folder'>): Promise<Answers['folder']>;
  ask(ask: Asked<'export'>): Promise<Answers['export']>;
}

export interface DrawingQuestion {
  readonly notation: 'placement' | 'layout';
  readonly text: string;
  readonly shape: string;
  readonly mesh: string;
  readonly order: 'lex' | 'colex';
}

/** One moment of a search; null before there is a plan or a bound. */
export interface Moment {
  readonly phase: string;
  readonly clockSeconds: number;
  readonly seconds: number | null;
  readonly bound: number | null;
}

export interface Fault {
  readonly code: string;
  readonly message: string;
  readonly hint: string;
  readonly line?: number;
  readonly column?: number;
}

/** A place in the program of the editor with what is wrong there. */
export interface Finding {
  readonly line: number;
  readonly column: number;
  readonly length: number;
  readonly message: string;
}

/** A line of the answer that stands above the form. */
export interface FirstRow {
  readonly label: string;
  readonly text: string;
  readonly tone?: 'bad';
}

/** A run as it was published. */
export interface FamousRun {
  readonly id: string;
  readonly name: string;
  readonly devices: string;
  readonly layout: string;
  /** The figure that the source prints, and the seconds of a step that follow from it. */
  readonly published: string;
  readonly seconds: number;
  readonly source: string;
}

export interface Lists {
  readonly models: readonly string[];
  /** Devices of a host by name of the cluster. */
  readonly clusters: Readonly<Record<string, number>>;
  readonly targets: readonly string[];
  readonly optimizers: readonly string[];
  readonly schedules: readonly string[];
  readonly version: string;
}

/** The placements that were priced and not taken back, one on top of another. */
export interface WhatIfAnswer {
  /** What the last of them costs, and all together. */
  readonly text: string;
  /** `node=placement` of each. */
  readonly pins: readonly string[];
  readonly canUndo: boolean;
  readonly canRedo: boolean;
}

/** Answers by kind of question. */
export interface Answers {
  /**
   * `html` is the report as a page of its own; the page takes its sections from it. `planSeconds`:
   * how long the plan took to find.
   */
  readonly plan: {
    readonly html: string;
    readonly nodes: readonly string[];
    readonly planSeconds: number;
    readonly first: readonly FirstRow[];
    /** Of the plan that was looked for; pipeline stages have none as a whole. */
    readonly proof?: { readonly seconds: number; readonly bound: number; readonly gap: number };
  };
  readonly compare: { readonly html: string; readonly first: readonly FirstRow[] };
  /** `text`: what `tune` prints below its headline. `edited`: the file with the changes made. */
  readonly tune: {
    readonly headline: string;
    readonly text: string;
    readonly edited: string;
    readonly isEdited: boolean;
    /** The model where the configuration names none. */
    readonly model?: string;
  };
  readonly famous: readonly FamousRun[];
  readonly predict: { readonly seconds: number };
  readonly explain: { readonly text: string; readonly placements: readonly string[] };
  readonly force: WhatIfAnswer;
  readonly undo: WhatIfAnswer;
  readonly redo: WhatIfAnswer;
  readonly folder: { readonly files: Readonly<Record<string, Uint8Array>> };
  /** Refused where the target cannot say all of the plan. */
  readonly export: { readonly files: Readonly<Record<string, Uint8Array>> };
  readonly draw: { readonly svg: string; readonly text: string };
  readonly program: {
    readonly findings: readonly Finding[];
    readonly graph: string;
    readonly types: readonly string[];
  };
  readonly lists: Lists;
}

export type Kind = Ask['kind'];

export type Reply =
  | { readonly id: number; readonly kind: 'moment'; readonly moment: Moment }
  | { readonly id: number; readonly kind: 'step'; readonly text: string }
  /** The plan is there; its report is not yet. */
  | { readonly id: number; readonly kind: 'summary'; readonly text: string }
  | { readonly id: number; readonly kind: 'answer'; readonly answer: Answers[Kind] }
  | { readonly id: number; readonly kind: 'fault'; readonly fault: Fault };
