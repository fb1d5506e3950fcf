import { ShardwrightError, suggestion } from '../../errors.ts';
import { ZOO } from '../registry.ts';
import type { LayoutRow } from './layouts.ts';
import { STATE_MODES } from './data-ranks.ts';

const PARTS = ['pp', ...STATE_MODES, 'cp', 'ring', 'ulysses', 'tp', 'sp', 'ep', 'optimum'] as const;
const ALIASES: Readonly<Record<string, string>> = { ddp: 'dp', zero3: 'fsdp', 'zero-1': 'zero1', 'zero-2': 'zero2', 'zero-3': 'fsdp' }; // prettier-ignore

/** Which plans are wanted: names as `compare` prints them, in any order of their parts; absent: all. */
export interface WantedPlans {
  readonly row: (row: LayoutRow) => boolean;
  readonly optimum: boolean;
}

/** @throws E_USAGE with the nearest names for a part that no plan has */
export function parsePlans(names: readonly string[] | undefined): WantedPlans {
  if (names === undefined) return { row: () => true, optimum: true };
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
  return { row: (row) => wanted.has(normal(row.name.split('+'))), optimum: wanted.has('optimum') };
}

function normal(parts: readonly string[]): string {
  return [...new Set(parts)].sort().join('+');
}
