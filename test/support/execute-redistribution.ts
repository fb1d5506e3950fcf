import type { RedistributionPlan, RedistributionStep } from '../../src/cost/redistribution/plan.ts';
import { internalError, ShardwrightError } from '../../src/errors.ts';
import type { CollectiveKind } from '../../src/mesh/collective-kinds.ts';
import type { DeviceMesh } from '../../src/mesh/devices/mesh.ts';
import { lookupMask, MaskPartial } from '../../src/mesh/placements/partials/mask-partial.ts';
import { Shard } from '../../src/mesh/placements/shards/shard.ts';
import { isPending, type Sharding } from '../../src/mesh/sharding/sharding.ts';
import { reduceAll, type Tile, type VirtualTensor } from '../../src/simulate/ranks/shards.ts';

/**
 * Runs redistribution plans on virtual devices. Every step sees only what the ranks of its group
 * hold: the pieces that a collective moves are found from the cut of the mesh dims that it runs
 * over, never from the global tensor.
 */

/** A collective that ran. */
export interface ExecutedCollective {
  readonly kind: CollectiveKind;
  readonly meshDims: readonly number[];
  readonly groupSize: number;
  /**
   * Elements of the buffer by the convention of the kind, padded to the largest piece: all_gather
   * the gathered output, reduce_scatter the full input, all_reduce the tensor, all_to_all and
   * collective_permute the buffer of one rank.
   */
  readonly elements: number;
}

export interface Execution {
  readonly shards: VirtualTensor;
  readonly collectives: readonly ExecutedCollective[];
}

/**
 * The shards after a plan, and the collectives that it took to get there.
 *
 * @param onStep called with the shards after every step
 * @throws E_PLACEMENT when the shards do not have the placement that the plan starts from
 */
export function executePlan(
  plan: RedistributionPlan,
  shards: VirtualTensor,
  onStep?: (step: RedistributionStep, after: VirtualTensor) => void,
): Execution {
  const { space } = shards;
  if (shards.sharding !== plan.from)
    throw new ShardwrightError(
      'E_PLACEMENT',
      `the shards are ${space.text(shards.sharding)}, the plan starts from ${space.text(plan.from)}`,
    );
  const collectives: ExecutedCollective[] = [];
  let now = shards;
  for (const step of plan.steps) {
    const { tiles, elements } = new StepRun(now, step).run();
    if (
      step.kind !== 'slice' &&
      step.kind !== 'to_partial' &&
      step.kind !== 'relabel' &&
      step.groupSize > 1
    )
      collectives.push({
        kind: step.kind,
        meshDims: step.meshDims,
        groupSize: step.groupSize,
        elements,
      });
    now = { ...now, sharding: step.to, tiles };
    onStep?.(step, now);
  }
  return { shards: now, collectives };
}

interface Ran {
  readonly tiles: readonly Tile[];
  /** Elements of the padded buffer. */
  readonly elements: number;
}

/** One step over all groups of its mesh dims. */
class StepRun {
  private readonly mesh: DeviceMesh;
  private readonly tiles: readonly Tile[];
  private readonly before: Sharding;
  private readonly after: Sharding;
  private readonly step: RedistributionStep;

  constructor(shards: VirtualTensor, step: RedistributionStep) {
    this.mesh = shards.space.mesh;
    this.tiles = shards.tiles;
    this.before = shards.space.get(shards.sharding);
    this.after = shards.space.get(step.to);
    this.step = step;
  }

  run(): Ran {
    const { tiles, step } = this;
    const { groupSize: n } = step;
    switch (step.kind) {
      case 'relabel':
        return { tiles: tiles.map(copy), elements: 0 };
      case 'to_partial':
        return { tiles: tiles.map((tile, rank) => this.operand(tile, rank)), elements: 0 };
      case 'slice':
        return { tiles: tiles.map((tile, rank) => this.piece(tile, rank)), elements: 0 };
      case 'all_reduce': {
        const out = tiles.map((_, rank) => this.reduced(rank));
        return { tiles: out, elements: largest(out) };
      }
      case 'reduce_scatter': {
        const out = tiles.map((_, rank) => this.piece(this.reduced(rank), rank));
        return { tiles: out, elements: n * largest(out) };
      }
      case 'all_gather': {
        const out = tiles.map((_, rank) => this.joined(rank, (tile) => tile));
        return { tiles: out, elements: n * largest(tiles) };
      }
      case 'all_to_all': {
        let most = 0;
        const out = tiles.map((_, rank) =>
          this.joined(rank, (tile) => {
            const sent = this.piece(tile, rank);
            most = Math.max(most, sent.data.length);
            return sent;
          }),
        );
        return { tiles: out, elements: n * most };
      }
      case 'collective_permute': {
        const out = [...tiles];
        for (const [source, target] of step.pairs ?? []) out[target] = copy(tiles[source]);
        return { tiles: out, elements: largest(tiles) };
      }
    }
  }

  private coordinate(rank: number, m: number): number {
    return Math.floor(rank / this.mesh.strides[m]) % this.mesh.sizes[m];
  }

  /** Ranks of the group that a rank belongs to, in the order of the step's mesh dims. */
  private group(rank: number): number[] {
    const { mesh, step } = this;
    let base = rank;
    for (const m of step.meshDims) base -= this.coordinate(rank, m) * mesh.strides[m];
    let out = [base];
    for (const m of step.meshDims)
      out = out.flatMap((r) =>
        Array.from({ length: mesh.sizes[m] }, (_, c) => r + c * mesh.strides[m]),
      );
    return out;
  }

  /**
   * Rows of a dim of `size` rows that a rank gets when the step's mesh dims cut it, one after the
   * other.
   *
   * @param spec the sharding in which they cut it
   */
  private rowsOf(spec: Sharding, dim: number, size: number, rank: number): number[] {
    let rows = Array.from({ length: size }, (_, i) => i);
    for (const m of spec.orderOf(dim)) {
      if (!this.step.meshDims.includes(m)) continue;
      const mine = spec.placements[m].split(rows.length, this.mesh.sizes[m])[
        this.coordinate(rank, m)
      ];
      rows = mine.map((i) => rows[i]);
    }
    return rows;
  }

  /** Tensor dim that the step's mesh dims cut in a sharding. */
  private dimOf(spec: Sharding): number {
    const { dim } = spec.placements[this.step.meshDims[0]];
    if (dim === undefined)
      throw internalError(`${this.step.kind} over mesh dims that cut nothing in ${spec.text}`);
    return dim;
  }

  /** The part of a tile that a rank keeps or is sent when its group cuts the tile further. */
  private piece(tile: Tile, rank: number): Tile {
    const dim = this.dimOf(this.after);
    return select(tile, dim, this.rowsOf(this.after, dim, tile.shape[dim], rank));
  }

  /** What a rank puts together of what the members of its group send it. */
  private joined(rank: number, sent: (tile: Tile) => Tile): Tile {
    const dim = this.dimOf(this.before);
    const group = this.group(rank);
    const parts = group.map((r) => sent(this.tiles[r]));
    const size = parts.reduce((n, part) => n + part.shape[dim], 0);
    const shape = parts[0].shape.map((d, i) => (i === dim ? size : d));
    const out = empty(
      shape,
      parts.some((part) => part.masked !== undefined),
    );
    group.forEach((r, i) => {
      const rows = this.rowsOf(this.before, dim, size, r);
      if (rows.length !== parts[i].shape[dim])
        throw internalError(
          `rank ${r} sends ${parts[i].shape[dim]} rows, its cut has ${rows.length}`,
        );
      place(out, parts[i], dim, rows);
    });
    return out;
  }

  /**
   * Element by element the reduction over the rank's group; mesh dims that stay pending keep their
   * operands apart.
   */
  private reduced(rank: number): Tile {
    const { before, mesh, step } = this;
    const tiles = this.group(rank).map((r) => this.tiles[r]);
    const kinds = step.meshDims.map((m) => before.placements[m]);
    const sizes = step.meshDims.map((m) => mesh.sizes[m]);
    const lookup = tiles.every((t) => t.masked !== undefined);
    const stays = before.placements.some(
      (p, m) => isPending(p) && mesh.sizes[m] > 1 && !step.meshDims.includes(m),
    );
    const out = empty(tiles[0].shape, lookup && stays);
    const operands = new Array<number>(tiles.length);
    for (let e = 0; e < out.data.length; e++) {
      for (let i = 0; i < tiles.length; i++)
        operands[i] = tiles[i].masked?.[e] === 1 ? 0 : tiles[i].data[e];
      out.data[e] =
        mesh.sizeOf(step.meshDims) === 1 ? operands[0] : reduceAll(kinds, sizes, operands);
      if (out.masked !== undefined) out.masked[e] = tiles.every((t) => t.masked?.[e] === 1) ? 1 : 0;
    }
    return out;
  }

  /**
   * A rank's operand for a value that its whole group holds; of an index tensor its masked lookup.
   */
  private operand(tile: Tile, rank: number): Tile {
    const [m] = this.step.meshDims;
    const p = this.after.placements[m];
    const n = this.mesh.sizes[m];
    const at = this.coordinate(rank, m);
    if (n === 1) return copy(tile);
    if (p instanceof MaskPartial) {
      const rows = p.offsetShape[p.offsetDim];
      const part = Shard.of(p.offsetDim);
      const mask = lookupMask(
        [...tile.data],
        part.offset(rows, n, at),
        part.localSize(rows, n, at),
      );
      return { shape: tile.shape, data: Float64Array.from(mask.local), masked: mask.masked };
    }
    if (!isPending(p)) throw internalError(`to_partial to ${p.text}`);
    const data = tile.data.map((value) => {
      const operand = p.operand(value, at, n);
      if (operand === undefined) throw internalError(`${p.text} is not made of equal values`);
      return operand;
    });
    return {
      shape: tile.shape,
      data,
      ...(tile.masked !== undefined && { masked: tile.masked.slice() }),
    };
  }
}

function largest(tiles: readonly Tile[]): number {
  let most = 0;
  for (const { data } of tiles) most = Math.max(most, data.length);
  return most;
}

function copy(tile: Tile): Tile {
  return {
    ...tile,
    data: tile.data.slice(),
    ...(tile.masked !== undefined && { masked: tile.masked.slice() }),
  };
}

function empty(shape: readonly number[], masked: boolean): Tile {
  const size = shape.reduce((n, d) => n * d, 1);
  return { shape, data: new Float64Array(size), ...(masked && { masked: new Uint8Array(size) }) };
}

/** Sizes before, of and after a dim, as one run of memory sees them. */
function runs(shape: readonly number[], dim: number): [outer: number, inner: number] {
  let outer = 1;
  let inner = 1;
  shape.forEach((d, i) => {
    if (i < dim) outer *= d;
    else if (i > dim) inner *= d;
  });
  return [outer, inner];
}

/** Some rows of a dim. */
function select(tile: Tile, dim: number, rows: readonly number[]): Tile {
  const [outer, inner] = runs(tile.shape, dim);
  const shape = tile.shape.map((d, i) => (i === dim ? rows.length : d));
  const out = empty(shape, tile.masked !== undefined);
  const size = tile.shape[dim];
  for (let o = 0; o < outer; o++)
    rows.forEach((row, i) => {
      const from = (o * size + row) * inner;
      const to = (o * rows.length + i) * inner;
      out.data.set(tile.data.subarray(from, from + inner), to);
      if (tile.masked !== undefined) out.masked?.set(tile.masked.subarray(from, from + inner), to);
    });
  return out;
}

/** Puts a part where its rows belong. */
function place(out: Tile, part: Tile, dim: number, rows: readonly number[]): void {
  const [outer, inner] = runs(out.shape, dim);
  const size = out.shape[dim];
  for (let o = 0; o < outer; o++)
    rows.forEach((row, i) => {
      const from = (o * rows.length + i) * inner;
      const to = (o * size + row) * inner;
      out.data.set(part.data.subarray(from, from + inner), to);
      if (part.masked !== undefined) out.masked?.set(part.masked.subarray(from, from + inner), to);
    });
}
