/**
 * Draws a notation. In: a placement, an einshard expression or a layout, with shape and mesh. Out:
 * an SVG and its words.
 */
import {
  drawSvg,
  einshardMesh,
  fromDimView,
  isEinshard,
  isPartitionSpec,
  isPending,
  offsetsDrawing,
  parseLayout,
  parseMesh,
  parsePartitionSpec,
  parseShardingFor,
  pendingNote,
  placementDrawing,
  resolveEinshard,
  Sharding,
  ShardwrightError,
  toPlacements,
} from '../../src/entries/page.ts';
import type { Answers, DrawingQuestion } from '../protocol.ts';

export function draw({ notation, text, shape, mesh, order }: DrawingQuestion): Answers['draw'] {
  if (notation === 'layout') {
    const layout = parseLayout(text, order);
    const caption = 'Each cell shows the offset of its coordinates.';
    const title = `Layout ${layout.text}, ${order}`;
    return {
      svg: drawSvg(offsetsDrawing(layout, order), { title, caption }),
      text: `${title}. ${caption}`,
    };
  }
  const sizes = sizesOf(shape);
  const read = placement(text, mesh, sizes);
  const { drawing, holders } = placementDrawing(read.sharding, read.mesh, sizes);
  const pending = read.sharding.placements.find(isPending);
  const title = `${text} on ${read.mesh.text}, shape (${sizes.join(', ')})`;
  const caption =
    'Each cell shows the devices that hold ' +
    `it${pending === undefined ? '' : `; ${pendingNote(pending)}`}; lines are shard borders.`;
  return {
    svg: drawSvg(drawing, { title, caption, holders }),
    text: `${read.sharding.text} on ${read.mesh.text}. ${caption}`,
  };
}

function placement(text: string, meshText: string, shape: readonly number[]) {
  if (/^\s*\d+\s*$/.test(meshText)) {
    if (!isEinshard(text))
      throw new ShardwrightError('E_USAGE', `'${text}' needs a mesh`, {
        hint: 'write for example dp=2,tp=4',
      });
    const einshard = resolveEinshard(text, { devices: Number(meshText), shape });
    return { mesh: einshardMesh(einshard), sharding: new Sharding(toPlacements(einshard)) };
  }
  const mesh = parseMesh(meshText);
  if (isPartitionSpec(text))
    return {
      mesh,
      sharding: fromDimView(parsePartitionSpec(text).forRank(shape.length), mesh).sharding,
    };
  return { mesh, sharding: parseShardingFor(text, mesh, shape) };
}

function sizesOf(text: string): number[] {
  const sizes = text.split(/[\s,x]+/).filter((part) => part !== '');
  if (sizes.length === 0 || sizes.some((part) => !/^[1-9]\d{0,8}$/.test(part)))
    throw new ShardwrightError('E_USAGE', `'${text}' is not a shape`, {
      hint: 'write for example 8,8',
    });
  return sizes.map(Number);
}
