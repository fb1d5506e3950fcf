/** Parses the plan names of `compare --plans` and gives a test for the layouts of a sweep. */

import { ShardwrightError, suggestion } from '../errors.ts';
import { NAMED_RECIPES } from '../recipes/registry.ts';
import type { Fold } from '../step/read/moe.ts';
import { STATE_MODES } from '../step/zero-mode.ts';
import type { RunLayout } from '../trainers/runs.ts';
import type { SweepQuestion } from './model/question.ts';
import { checkRuns } from './model/trainer-limits.ts';
import type { AskedPlans } from './step/layouts.ts';

const PARTS = [
  'pp',
  ...STATE_MODES,
  'cp',
  'ring',
  'ulysses',
  'tp',
  'sp',
  'ep',
  'etp',
  'optimum',
] as const;
const ALIASES: Readonly<Record<string, string>> = {
  ddp: 'dp',
  zero3: 'fsdp',
  'zero-1': 'zero1',
  'zero-2': 'zero2',
  'zero-3': 'fsdp',
};

/** Parts that may be followed by their size. */
const SIZED = /^(ep|etp)([1-9][0-9]*)$/;

/**
 * The plans that are wanted: names as `compare` prints them, in any order of their parts; absent:
 * all. `etp` alone: all whose experts are cut. The sizes of an expert mesh may follow their parts,
 * as in `fsdp+tp+sp+ep4+etp2`.
 */
interface WantedPlans extends AskedPlans {
  readonly optimum: boolean;
  /**
   * True if experts that are cut are named: then each of their plans is priced, promising or not.
   */
  readonly expertTensor: boolean;
}

interface Wanted {
  /** Parts without sizes, sorted. */
  readonly text: string;
  readonly fold: Partial<Fold>;
}

/** @throws E_USAGE with the nearest names for a part that no plan has */
export function parsePlans(names: readonly string[] | undefined): WantedPlans {
  if (names === undefined)
    return { row: () => true, optimum: true, expertTensor: false, folds: [] };
  const wanted = names.map((name): Wanted => {
    const plain = ALIASES[name] ?? name;
    const fold: { ep?: number; etp?: number } = {};
    const parts = plain.split('+').map((part) => {
      const sized = SIZED.exec(part);
      if (sized === null) return ALIASES[part] ?? part;
      const axis = sized[1] === 'ep' ? 'ep' : 'etp';
      fold[axis] = Number(sized[2]);
      return axis;
    });
    const unknown = parts.find((part) => !PARTS.some((p) => p === part));
    if (unknown !== undefined)
      throw new ShardwrightError('E_USAGE', `there is no recipe '${name}'`, {
        hint: suggestion(
          name,
          [...NAMED_RECIPES.map((p) => p.name), ...PARTS, ...Object.keys(ALIASES)],
          'recipes',
        ),
      });
    // A part of size 1 is none: the plan has its plain name.
    const shown = parts.filter((part) => !((part === 'ep' || part === 'etp') && fold[part] === 1));
    return { text: normal(shown), fold };
  });
  return {
    row: ({ name, sizes }) => {
      const text = normal(name.split('+'));
      const { ep, etp = 1 } = sizes;
      return wanted.some(
        ({ text: asked, fold }) =>
          (asked === text || (asked === 'etp' && etp > 1)) &&
          (fold.ep ?? ep) === ep &&
          (fold.etp ?? etp) === etp,
      );
    },
    optimum: wanted.some(({ text }) => text === 'optimum'),
    expertTensor: wanted.some(({ text }) => text.split('+').includes('etp')),
    folds: wanted.flatMap(({ fold }) =>
      fold.ep === undefined && fold.etp === undefined ? [] : [fold],
    ),
  };
}

/**
 * @throws E_USAGE for a plan that the trainer of the question does not run, with the nearest
 */
export function checkPlansRun(
  question: Pick<SweepQuestion, 'trainer'>,
  names: readonly string[] | undefined,
): void {
  for (const name of names ?? [])
    checkRuns(question, layoutNamed(ALIASES[name] ?? name), `--plans ${name}`);
}

/** A layout of the smallest sizes with the parts of a name. */
function layoutNamed(name: string): RunLayout {
  const parts = name.split('+').map((part) => SIZED.exec(part)?.[1] ?? ALIASES[part] ?? part);
  const has = (...some: readonly string[]): boolean => some.some((part) => parts.includes(part));
  const size = (...some: readonly string[]): number => (has(...some) ? 2 : 1);
  const mode = STATE_MODES.find((known) => parts.includes(known));
  return {
    sizes: {
      pp: size('pp'),
      dp_replicate: size('hsdp'),
      dp_shard: mode === undefined ? 1 : 2,
      cp: size('cp', 'ring', 'ulysses'),
      tp: size('tp'),
      ep: size('ep'),
      etp: size('etp'),
    },
    kind: {
      mode: mode ?? 'dp',
      context: has('ulysses') ? 'ulysses' : has('ring') ? 'ring' : 'cp',
      sequenceParallel: has('sp'),
      free: has('optimum'),
    },
  };
}

function normal(parts: readonly string[]): string {
  return [...new Set(parts)].sort().join('+');
}
