/**
 * Selects the policies and sets of modules that a search tries on a layout, from the priced program
 * of a data rank and its routed experts: a short list, the least seconds for a byte first. Layers
 * that keep everything are mixed with layers that recompute, so a choice is worth trying only where
 * no other saves about as much at fewer seconds for a byte: those are listed. Exchanges with
 * experts that a choice repeats are not in its seconds.
 */

import { type Checkpoint, moduleSets, programPart, routedPart } from '../../step/checkpoints.ts';
import { type Fold, type RoutedCosts, routedUnits } from '../../step/read/moe.ts';
import { recomputes, type TrainerRuns } from '../../trainers/runs.ts';
import type { LayerKinds } from '../model/representative-layers.ts';
import type { CoreCost } from '../model/types.ts';

/**
 * The share, of the saving by recomputing whole layers, by which a choice must save more than
 * cheaper ones.
 */
const LEAST_STEP = 0.05;

/** Lists what is tried, once for each program and fold. */
export class TriedCheckpoints {
  private readonly known = new WeakMap<CoreCost, Map<string, readonly Checkpoint[]>>();

  /** @param limits the trainer; absent: any */
  constructor(
    private readonly kinds: Pick<LayerKinds, 'standsFor'>,
    private readonly limits?: TrainerRuns,
  ) {}

  /** `none`, then what saves bytes; the last is `full`. */
  of(
    core: CoreCost,
    routed: RoutedCosts | undefined,
    { ep, etp = 1 }: Partial<Fold> & Pick<Fold, 'ep'>,
  ): readonly Checkpoint[] {
    const byFold = this.known.get(core) ?? new Map<string, readonly Checkpoint[]>();
    this.known.set(core, byFold);
    const key = routed === undefined ? '' : `${ep} ${etp}`;
    let found = byFold.get(key);
    if (found === undefined) byFold.set(key, (found = this.listed(core, routed, { ep, etp })));
    return found;
  }

  private listed(core: CoreCost, routed: RoutedCosts | undefined, fold: Fold): Checkpoint[] {
    const priced = this.candidates(core, routed !== undefined).map((checkpoint) => ({
      checkpoint,
      ...this.price(core, routed, fold, checkpoint),
    }));
    const saving = priced.filter((p) => p.saved > 0);
    const ratio = (p: (typeof saving)[number]): number => p.seconds / p.saved;
    saving.sort(
      (a, b) =>
        ratio(a) - ratio(b) || b.saved - a.saved || a.checkpoint.length - b.checkpoint.length,
    );
    const step = LEAST_STEP * (saving.find(({ checkpoint }) => checkpoint === 'full')?.saved ?? 0);
    let most = 0;
    const front = saving.filter(({ checkpoint, saved }) => {
      if (saved < most + step && checkpoint !== 'full') return false;
      most = Math.max(most, saved);
      return true;
    });
    const full = front.findIndex(({ checkpoint }) => checkpoint === 'full');
    return ['none', ...front.slice(0, full + 1).map(({ checkpoint }) => checkpoint)];
  }

  /** The choices that are tried: those that the trainer has, or those that a search mixes. */
  private candidates(core: CoreCost, hasExperts: boolean): Checkpoint[] {
    const { limits } = this;
    if (limits === undefined)
      return ['selective', 'full', ...moduleSets(core.units[0].keptBytes, hasExperts)];
    const policies = limits.policies.filter((policy) => policy !== 'none');
    const sets = moduleSets(core.units[0].keptBytes, hasExperts).filter((set) =>
      recomputes(limits, set),
    );
    return [...policies, ...sets];
  }

  /**
   * Seconds that are spent again and bytes that are not kept, of one microbatch in the whole model.
   */
  private price(
    core: CoreCost,
    routed: RoutedCosts | undefined,
    fold: Fold,
    checkpoint: Checkpoint,
  ): { readonly seconds: number; readonly saved: number } {
    const blocks = routed === undefined ? undefined : routedUnits(routed, fold);
    const [part, routedBy] = [programPart(checkpoint), routedPart(checkpoint)];
    let [seconds, saved] = [0, 0];
    for (const u of [0, ...this.kinds.standsFor.map((l) => l + 1), core.units.length - 1]) {
      const { again, keptBytes } = core.units[u];
      const block = blocks?.[u];
      seconds +=
        again[part].compute + again[part].communication + (block?.recomputeSeconds[routedBy] ?? 0);
      saved += keptBytes.none - keptBytes[part];
      if (block !== undefined) saved += block.keptBytes.none - block.keptBytes[routedBy];
    }
    return { seconds, saved };
  }
}
