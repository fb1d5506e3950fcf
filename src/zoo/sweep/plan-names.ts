import { ShardwrightError, suggestion } from '../../errors.ts';
import { ZOO } from '../registry.ts';
import type { LayoutRow } from './layouts.ts';
import { STATE_MODES } from './data-ranks.ts';

const PARTS = ['pp', ...STATE_MODES, 'cp', 'ring', 'ulysses', 'tp', 'sp', 'ep', 'etp', 'optimum'] as const;
const ALIASES: Readonly<Record<string, string>> = { ddp: 'dp', zero3: 'fsdp', 'zero-1': 'zero1', 'zero-2': 'zero2', 'zero-3': 'fsdp' }; // prettier-ignore

/**
 * Which plans are wanted: names as `compare` prints them, in any order of their parts; absent: all but those that cut experts over
 * the tensor dim. `etp` alone: all of the latter.
 */
export interface WantedPlans {
  readonly row: (row: LayoutRow) => boolean;
  readonly optimum: boolean;
  /** Whether experts that are cut over the tensor dim are among them; only where they are named. */
  readonly expertTensor: boolean;
}

/** @throws E_USAGE with the nearest names for a part that no plan has */
export function parsePlans(names: readonly string[] | undefined): WantedPlans {
  if (names === undefined) return { row: () => true, optimum: true, expertTensor: false };
  const wanted = new Set<string>();
  for (const name of names) {
    const plain = ALIASES[name] ?? name;
    const parts = plain.split('+').map((part) => ALIASES[part] ?? part);
    const unknown = parts.find((part) => !PARTS.some((p) => p === part));
    if (unknown !== undefined)
      throw new ShardwrightError('E_USAGE', `the zoo has no plan '${name}'`, {
        hint: suggestion(name, [...ZOO.map((p) => p.name), ...PARTS, ...Object.keys(ALIASES)], 'plans'),
      });
    wanted.add(normal(parts));
  }
  return {
    row: ({ name, sizes }) => wanted.has(normal(name.split('+'))) || (wanted.has('etp') && (sizes.etp ?? 1) > 1),
    optimum: wanted.has('optimum'),
    expertTensor: [...wanted].some((name) => name.split('+').includes('etp')),
  };
}

function normal(parts: readonly string[]): string {
  return [...new Set(parts)].sort().join('+');
}
