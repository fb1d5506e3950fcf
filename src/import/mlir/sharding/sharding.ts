/**
 * Shardy's sharding of one tensor: which mesh axes (or parts of them) cut each dim, major to minor.
 * `<@mesh, [{"a"}, {?}, {"b":(1)2, ?}p1], replicated={"x"}, unreduced={"y"}>`.
 */

import { readInlineMesh } from '../module.ts';
import type { MlirReader } from '../syntax/reader.ts';
import type { MlirMesh, Span } from '../syntax/syntax.ts';

/** An axis, or the part of size `size` of an axis whose earlier parts have size `before` in all. */
export interface AxisRef {
  readonly name: string;
  readonly part?: { readonly before: number; readonly size: number };
}
interface DimSharding {
  readonly axes: readonly AxisRef[];
  /** The compiler may cut the dim further. */
  readonly open: boolean;
  readonly priority?: number;
}
export interface TensorSharding {
  readonly mesh: { readonly name: string } | { readonly inline: MlirMesh };
  /** Absent where the text gives only axes (`maximal` meshes). */
  readonly dims: readonly DimSharding[];
  readonly replicated: readonly AxisRef[];
  readonly unreduced: readonly AxisRef[];
  readonly at: number;
}

/** The body between `<` and `>`. */
export function readTensorSharding(outer: MlirReader, body: Span): TensorSharding {
  const reader = outer.within(body);
  const sharding = sharded(reader);
  if (!reader.atEnd()) reader.expected(`'>'`);
  return sharding;
}

/** `[<@mesh, [..]>, <..>]`. */
export function readShardingList(outer: MlirReader, body: Span): TensorSharding[] {
  const reader = outer.within(body);
  const list = reader.list('[', ']', () => {
    reader.expect('<');
    const one = sharded(reader);
    reader.expect('>');
    return one;
  });
  if (!reader.atEnd()) reader.expected(`'>'`);
  return list;
}

function sharded(reader: MlirReader): TensorSharding {
  reader.skip();
  const at = reader.pos;
  const mesh = reader.peek('@')
    ? { name: reader.sigil('@', 'a mesh') }
    : { inline: readInlineMesh(reader) };
  reader.expect(',');
  const dims = reader.list('[', ']', () => dimSharding(reader));
  let replicated: AxisRef[] = [];
  let unreduced: AxisRef[] = [];
  while (reader.accept(',')) {
    const keyAt = reader.pos;
    const key = reader.word('replicated or unreduced');
    reader.expect('=');
    const axes = reader.list('{', '}', () => axisRef(reader));
    if (key === 'replicated') replicated = axes;
    else if (key === 'unreduced') unreduced = axes;
    else
      reader.fail(
        `'${key}' is not part of a sharding`,
        keyAt,
        'E_SYNTAX',
        'replicated={...} or unreduced={...}',
      );
  }
  return { mesh, dims, replicated, unreduced, at };
}

function dimSharding(reader: MlirReader): DimSharding {
  let open = false;
  const axes: AxisRef[] = [];
  reader.list('{', '}', () => {
    if (open) reader.expected(`'}' after '?'`);
    if (reader.accept('?')) open = true;
    else axes.push(axisRef(reader));
  });
  // The priority is glued to the bracket.
  const tail = /^p(\d{1,9})/.exec(
    reader.text.slice(reader.pos, Math.min(reader.end, reader.pos + 12)),
  );
  if (tail === null) return { axes, open };
  reader.pos += tail[0].length;
  return { axes, open, priority: Number(tail[1]) };
}

/** `"a"` or `"a":(1)2`. */
function axisRef(reader: MlirReader): AxisRef {
  const name = reader.string('a mesh axis');
  if (!reader.accept(':')) return { name };
  reader.expect('(');
  const before = reader.size('the size before the part');
  reader.expect(')');
  const at = reader.pos;
  const size = reader.size('the size of the part');
  if (before < 1 || size < 2)
    reader.fail(`part (${before})${size} of axis '${name}'`, at, 'E_TYPE', 'write "a":(1)2');
  return { name, part: { before, size } };
}
