/**
 * Decides which changes of sharding no redistribution can do (placements spec, section 5.1), and
 * words the reason.
 */

import { ShardwrightError } from '../../errors.ts';
import { isPending } from '../../mesh/sharding/sharding.ts';
import { REPLICATE_CODE, shardDimOfCode, type ShardingSpace } from '../../mesh/sharding/space.ts';
import { isLookup, madeFromReplicate } from './moves.ts';

/**
 * Which changes nobody may ask for (placements spec, section 5.1): pending operands are not made of
 * pieces or of other operands, unless asked for by way of R, and of some reductions not of equal
 * values either. Answers come from bit masks over mesh dims, made once for each sharding: the cost
 * matrices of large models ask millions of times.
 */
export class Refusals {
  /** By sharding id: mesh dims that cut or are pending, with more than one device. */
  readonly busy: number[] = [];
  /** Mesh dims whose operands are pending. */
  readonly pending: number[] = [];
  /** Kinds whose operands cannot be made from equal values, or only from indices. */
  readonly unmakeable: number[] = [];
  /** Kinds that shape the state graph: all but R and plain shards. */
  readonly kinds: number[] = [];
  /** Largest tensor dim that is cut, -1 if none. */
  readonly lastDim: number[] = [];
  private readonly kindBits: number[] = [];

  /**
   * @param active mesh dims that take part
   * @param viaReplicate S -> P and P(a) -> P(b) are asked for, by way of R
   */
  constructor(
    private readonly space: ShardingSpace,
    private readonly active: readonly number[],
    private readonly viaReplicate: boolean,
  ) {}

  /** Tells whether a change is refused. */
  refused(from: number, to: number): boolean {
    this.read(from);
    this.read(to);
    if (this.unmakeable[to] !== 0 && this.reason(from, to) !== undefined) return true;
    if (this.viaReplicate) return false;
    // Only a mesh dim that is cut or pending before and pending after can be at fault.
    let suspects = this.busy[from] & this.pending[to];
    for (let m = 0; suspects !== 0; m++, suspects >>>= 1)
      if ((suspects & 1) !== 0 && this.space.kindAt(from, m) !== this.space.kindAt(to, m))
        return true;
    return false;
  }

  /** Why a change is refused, and the legal route; undefined when it is allowed. */
  reason(from: number, to: number): string | undefined {
    const { space } = this;
    const { sizes, names } = space.mesh;
    const source = space.get(from).placements;
    const target = space.get(to).placements;
    for (const m of this.active) {
      if (sizes[m] === 1 || space.kindAt(from, m) === space.kindAt(to, m)) continue;
      const a = source[m];
      const b = target[m];
      if (!isPending(b)) continue;
      const start =
        `${space.text(from)} -> ${space.text(to)} is refused: on mesh dim '${names[m]}' ` +
        `${a.text} does not become ${b.text}`;
      if (!madeFromReplicate(b, sizes[m]))
        return `${start}: equal values are not its operands; reduce it to R or S where it is made`;
      if (isLookup(b)) {
        if (source.some((p, x) => isPending(p) && sizes[x] > 1))
          return (
            `${start}: only indices that nothing is pending on become a masked lookup; go to R ` +
            'first, and look up from there'
          );
        if (target.some((p, x) => x !== m && isLookup(p) && sizes[x] > 1))
          return `${start} with another masked lookup; mask on one mesh dim only`;
      }
      if (a.kind !== 'replicate' && !this.viaReplicate)
        return (
          `${start}; go to R first, and from there ask for ${b.text}: ${a.text} -> R, then R ` +
          `-> ${b.text}`
        );
    }
    return undefined;
  }

  /** Fills the masks of a sharding. */
  read(id: number): void {
    if (this.busy[id] !== undefined) return;
    const { space } = this;
    let busy = 0;
    let pending = 0;
    let unmakeable = 0;
    let kinds = 0;
    let lastDim = -1;
    for (let m = 0; m < space.meshRank; m++) {
      lastDim = Math.max(lastDim, space.dimAt(id, m));
      const code = space.kindAt(id, m);
      if (code === REPLICATE_CODE || !this.active.includes(m)) continue;
      const p = space.placementOf(code);
      const n = space.mesh.sizes[m];
      if (n > 1) {
        busy |= 1 << m;
        if (isPending(p)) {
          pending |= 1 << m;
          if (isLookup(p) || !madeFromReplicate(p, n)) unmakeable |= 1 << m;
        }
      }
      if (shardDimOfCode(code) < 0) kinds |= 1 << this.kindBit(code);
    }
    this.busy[id] = busy;
    this.pending[id] = pending;
    this.unmakeable[id] = unmakeable;
    this.kinds[id] = kinds;
    this.lastDim[id] = lastDim;
  }

  private kindBit(code: number): number {
    let bit = this.kindBits.indexOf(code);
    if (bit < 0) bit = this.kindBits.push(code) - 1;
    if (bit > 30)
      throw new ShardwrightError(
        'E_PLACEMENT',
        'more than 31 kinds of pending or special placements at once',
      );
    return bit;
  }
}
