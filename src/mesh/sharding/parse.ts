/**
 * Texts of placements and shardings, short (`S(0)R`, `_S(0, 2)`, `P(sum)`) and long
 * (`Shard(dim=0)`, `Replicate()`, `_StridedShard(dim=0, sf=2)`, `Partial(sum)`), one after the
 * other or in a list. Parsing what is printed gives it back.
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import type { DeviceMesh } from '../devices/mesh.ts';
import { builtinKinds } from '../placements/builtin-kinds.ts';
import type { PlacementKinds } from '../placements/kinds.ts';
import type { Placement } from '../placements/placement.ts';
import { Scanner, shown } from '../placements/scan.ts';
import { fromMeshView } from './mesh-view.ts';
import { Sharding } from './sharding.ts';

/** The context in which a text of placements is read. */
export interface ParseOptions {
  /** Rank of the tensor: negative dims are counted from it, and larger dims are refused. */
  readonly rank?: number;
  /** Kinds that the text may use; default those of Shardwright. */
  readonly kinds?: PlacementKinds;
}

// Never handed out, so nobody can change it.
const BUILTIN = builtinKinds();

/** One placement. @throws E_SYNTAX with the column */
export function parsePlacement(text: string, options: ParseOptions = {}): Placement {
  checkKinds('parsePlacement', {
    text: [text, 'string'],
    options: [options, 'record', 'undefined'],
  });
  const scan = new Scanner(text, options.rank);
  const p = (options.kinds ?? BUILTIN).read(scan);
  scan.blanks();
  if (!scan.done) scan.fail('nothing more after the placement');
  return p;
}

/**
 * A sharding of the mesh: one placement per mesh dim. A strided list that is an order of mesh dims
 * becomes that order.
 *
 * @throws E_SYNTAX with the column, E_PLACEMENT when the number of placements does not fit the mesh
 */
export function parseSharding(
  text: string,
  mesh: DeviceMesh,
  options: ParseOptions = {},
): Sharding {
  const scan = new Scanner(text, options.rank);
  const kinds = options.kinds ?? BUILTIN;
  const items: { placement: Placement; position: number | undefined; column: number }[] = [];
  const close = opening(scan);
  for (;;) {
    scan.separators();
    if (scan.done || scan.peek() === close) break;
    const column = scan.column;
    const placement = kinds.read(scan);
    items.push({ placement, position: orderPosition(scan), column });
  }
  if (close !== '') scan.expect(close);
  scan.blanks();
  if (!scan.done) scan.fail('nothing more');
  if (items.length !== mesh.rank)
    throw new ShardwrightError(
      'E_PLACEMENT',
      `'${shown(text)}' has ${items.length} placement${items.length === 1 ? '' : 's'}, but ` +
        `the mesh ${mesh.text} has ${mesh.rank} dim${mesh.rank === 1 ? '' : 's'}`,
      { hint: 'write one placement for each mesh dim, outermost first; R where it does not cut' },
    );
  const placements = items.map((i) => i.placement);
  const explicit = new Set<number>();
  items.forEach(
    (i) =>
      i.position !== undefined && i.placement.dim !== undefined && explicit.add(i.placement.dim),
  );
  if (explicit.size === 0) return fromMeshView(placements, mesh);
  const orders = new Map<number, readonly number[]>();
  for (const dim of explicit) {
    const on = items.map((item, m) => ({ ...item, m })).filter((i) => i.placement.dim === dim);
    const order: number[] = new Array<number>(on.length).fill(-1);
    for (const { m, position, column } of on) {
      if (position === undefined || position >= on.length || order[position] >= 0)
        throw new ShardwrightError(
          'E_SYNTAX',
          `'${shown(text)}': positions on tensor dim ${dim} must be 0..${on.length - 1}, ` +
            `each once, at column ${column}`,
          { hint: 'as in S(0)[1]S(0)[0]', position: { line: 1, column }, excerpt: shown(text) },
        );
      order[position] = m;
    }
    orders.set(dim, order);
  }
  return new Sharding(placements, orders);
}

/** An opening bracket of a list, if there is one: returns the closing one that it wants. */
function opening(scan: Scanner): string {
  if (scan.take('[')) return ']';
  return scan.take('(') ? ')' : '';
}

/** `[1]` after a placement. */
function orderPosition(scan: Scanner): number | undefined {
  if (scan.peek() !== '[') return undefined;
  scan.expect('[');
  const n = scan.count('a position of at least 0', 0);
  scan.expect(']');
  return n;
}
