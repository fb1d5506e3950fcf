/**
 * Probes a collective model at powers of two and gives the sizes at which its price jumps, with a
 * sentence for the user.
 */

import { checkKinds } from '../arguments.ts';
import { type CollectiveKind } from '../mesh/collective-kinds.ts';
import { bytesText, countedText, differenceText } from '../units.ts';
import { type CollectiveModel, dimsMask } from './collective-model.ts';

/**
 * Jumps of a price: one byte more or less at a power of two, and another price. Tables by the
 * size's binary digits make them; a plan next to one may turn on a byte.
 */
export interface PriceJump {
  readonly kind: CollectiveKind;
  readonly meshDims: readonly number[];
  /** The power of two. */
  readonly bytes: number;
  /**
   * Change within two bytes around it as a share of the price below: 0.2 is 20 % more, -0.2 less.
   */
  readonly ratio: number;
}

const KINDS = ['all_gather', 'reduce_scatter', 'all_reduce', 'all_to_all'] as const;
/** Sizes that are looked at: 512 B to 4 GiB. */
const FIRST = 9;
const LAST = 32;
/** A change above this is a jump. */
const JUMP = 0.15;

/**
 * Jumps of more than 15 % at powers of two from 512 B to 4 GiB, of every collective of the groups
 * given.
 */
export function priceJumps(
  model: CollectiveModel,
  groups: readonly (readonly number[])[],
): PriceJump[] {
  checkKinds('priceJumps', {
    model: [model, ['preset', 'mesh', 'byteRule']],
    groups: [groups, 'list'],
  });
  return groups
    .filter((meshDims) => model.mesh.sizeOf(meshDims) > 1)
    .flatMap((meshDims) =>
      KINDS.flatMap((kind) => {
        const jumps: PriceJump[] = [];
        for (let k = FIRST; k <= LAST; k++) {
          const bytes = 2 ** k;
          const [below, at, above] = [bytes - 1, bytes, bytes + 1].map((b) =>
            model.seconds(kind, b, meshDims),
          );
          const steps = [at / below - 1, above / at - 1];
          const ratio = Math.abs(steps[1]) > Math.abs(steps[0]) ? steps[1] : steps[0];
          if (Math.abs(ratio) > JUMP) jumps.push({ kind, meshDims, bytes, ratio });
        }
        return jumps;
      }),
    );
}

/** Each mesh dim alone, and the whole mesh as one group. */
function groupsOfMesh({ mesh }: CollectiveModel): number[][] {
  const all = mesh.sizes.map((_, d) => d);
  const groups = [...all.map((d) => [d]), all];
  return groups.filter(
    (g, i) => g.length > 0 && groups.findIndex((h) => dimsMask(h) === dimsMask(g)) === i,
  );
}

/** Jumps named in a note. */
const NAMED = 3;

/**
 * One sentence on the jumps of a preset over a mesh, the largest named; undefined where there are
 * none.
 */
export function jumpsNote(model: CollectiveModel): string | undefined {
  const jumps = priceJumps(model, groupsOfMesh(model));
  if (jumps.length === 0) return undefined;
  const largest = [...jumps].sort((a, b) => Math.abs(b.ratio) - Math.abs(a.ratio)).slice(0, NAMED);
  const named = largest.map(({ kind, meshDims, bytes, ratio }) => {
    const dims = meshDims.map((d) => model.mesh.names[d]).join(',');
    return `${kind}(${dims}) at ${bytesText(bytes)} by ` + differenceText(ratio);
  });
  return (
    `Prices of ${model.preset} jump by more than 15 % at ` +
    `${countedText(jumps.length, 'power of two', 'powers of two')} (512 B to 4 GiB, each mesh ` +
    `dim and the whole mesh): ${jumps.length > NAMED ? 'most ' : ''}${named.join(', ')}.`
  );
}
