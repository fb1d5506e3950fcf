/** `draw`: takes a shape with cuts or a placement and draws the blocks and their devices. */

import { ShardwrightError } from '../../../errors.ts';
import { type DeviceMesh, parseMesh } from '../../../mesh/devices/mesh.ts';
import { isPending, Sharding } from '../../../mesh/sharding/sharding.ts';
import { fromDimView } from '../../../mesh/views/dim-view.ts';
import { isPartitionSpec, parsePartitionSpec } from '../../../mesh/views/partition-spec.ts';
import type { Cuts, Drawing } from '../../../notations/draw/matrix.ts';
import { drawSvg } from '../../../notations/draw/svg.ts';
import { drawText } from '../../../notations/draw/text.ts';
import {
  offsetsDrawing,
  pendingNote,
  placementDrawing,
  valuesDrawing,
} from '../../../notations/draw/views.ts';
import { parseShardingFor } from '../../../notations/einshard/on-mesh.ts';
import { einshardMesh, toPlacements } from '../../../notations/einshard/placements.ts';
import { resolveEinshard } from '../../../notations/einshard/resolve.ts';
import { isEinshard } from '../../../notations/einshard/syntax.ts';
import type { Order } from '../../../notations/layout/int-tree.ts';
import { parseLayout } from '../../../notations/layout/parse.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import { writeText } from '../../output/write-file.ts';
import type { DrawOptions } from './flags.ts';

/** The record that `draw` prints; its keys are a contract. */
export interface DrawResult {
  readonly text: string;
  readonly rows: number;
  readonly columns: number;
  readonly cells: readonly (readonly string[])[];
}

/** A drawing, and what an SVG says around it. */
interface View {
  readonly drawing: Drawing;
  readonly title: string;
  readonly caption: string;
  readonly holders?: readonly string[];
}

export function drawCommand(options: DrawOptions, io: CliIo): number {
  const view = viewOf(options);
  const text = drawText(view.drawing);
  const { rows, columns, cells } = view.drawing;
  if (options.svg !== undefined) writeText(options.svg, drawSvg(view.drawing, view), 'drawing');
  if (options.json === true) {
    const result: DrawResult = {
      text,
      rows,
      columns,
      cells: cells.map((row) => row.map((cell) => cell.text)),
    };
    io.stdout(`${JSON.stringify(result)}\n`);
    return EXIT.ok;
  }
  io.stdout(`${text}\n`);
  if (options.svg !== undefined) io.stderr(`wrote ${options.svg}\n`);
  return EXIT.ok;
}

function viewOf(options: DrawOptions): View {
  const placed = options.placement ?? options.mesh ?? options.devices;
  if (options.layout !== undefined && placed !== undefined)
    throw usage('--layout and --placement are two drawings', 'give one of them.');
  if (options.order !== undefined && options.layout === undefined)
    throw usage('--order belongs to --layout', 'leave it out; values count in row-major order.');
  if (!options.borders && placed === undefined)
    throw usage('--no-borders belongs to --placement', 'leave it out.');
  const cuts = parseCuts(options.cut ?? '');
  const { shape } = options;
  if (options.layout !== undefined) return layoutView(options.layout, options.order, shape, cuts);
  if (shape === undefined) throw usage('--shape is missing', 'write for example --shape 2,2,2,2.');
  if (placed !== undefined) return placementView(options, shape, cuts);
  return {
    drawing: valuesDrawing(shape, cuts),
    title: `Shape (${shape.join(', ')})`,
    caption: `Each cell shows the row-major number of its element${cutsNote(cuts)}.`,
  };
}

function layoutView(
  text: string,
  order: Order | undefined,
  shape: readonly number[] | undefined,
  cuts: Cuts,
): View {
  if (order === undefined)
    throw usage(
      `--layout '${text}' needs --order: which coordinate is the fastest`,
      'add --order lex (the last, as in PyTorch) or --order colex (the first, as in CuTe).',
    );
  const layout = parseLayout(text, order);
  return {
    drawing: offsetsDrawing(layout, order, shape, cuts),
    title: `Layout ${layout.text}, ${order}`,
    caption: `Each cell shows the offset of its coordinates${cutsNote(cuts)}.`,
  };
}

function cutsNote(cuts: Cuts): string {
  return cuts.size > 0 ? '; lines are cuts' : '';
}

function placementView(options: DrawOptions, shape: readonly number[], cuts: Cuts): View {
  if (options.placement === undefined)
    throw usage(
      `--${options.mesh !== undefined ? 'mesh' : 'devices'} is given without --placement`,
      `write for example --mesh dp=2,tp=2 --placement 'S(0)R'.`,
    );
  const { mesh, sharding } = readPlacement(options.placement, options, shape);
  const { drawing, holders } = placementDrawing(sharding, mesh, shape, {
    borders: options.borders,
    cuts,
  });
  const pending = sharding.placements.find(isPending);
  const lines =
    (pending === undefined ? '' : `; ${pendingNote(pending)}`) +
    (options.borders ? '; lines are shard borders' : '');
  return {
    drawing,
    holders,
    title: `${options.placement} on ${mesh.text}, shape (${shape.join(', ')})`,
    caption: `Each cell shows the devices that hold it${lines}.`,
  };
}

/** The mesh and the sharding: einshard text may make its own mesh, the other notations need one. */
function readPlacement(
  text: string,
  options: DrawOptions,
  shape: readonly number[],
): { mesh: DeviceMesh; sharding: Sharding } {
  if (options.mesh !== undefined) {
    if (options.devices !== undefined)
      throw usage('--mesh and --devices both state the devices', 'give one of them.');
    const mesh = parseMesh(options.mesh);
    if (isPartitionSpec(text))
      return {
        mesh,
        sharding: fromDimView(parsePartitionSpec(text).forRank(shape.length), mesh).sharding,
      };
    return { mesh, sharding: parseShardingFor(text, mesh, shape) };
  }
  if (!isEinshard(text))
    throw usage(`--placement '${text}' needs a mesh`, 'write for example --mesh dp=2,tp=2.');
  if (options.devices === undefined)
    throw usage(
      `--placement '${text}' needs the number of devices`,
      'write for example --devices 16.',
    );
  const einshard = resolveEinshard(text, { devices: options.devices, shape });
  return { mesh: einshardMesh(einshard), sharding: new Sharding(toPlacements(einshard)) };
}

/**
 * `0,1` cuts these dims everywhere; `1@2` cuts dim 1 only before its slice 2. Both may be repeated
 * and mixed; whether the shape has them is for the drawing to say.
 */
function parseCuts(text: string): Cuts {
  const cuts = new Map<number, number[] | 'all'>();
  if (text.trim() === '') return cuts;
  let column = 1;
  for (const part of text.split(',')) {
    const match = /^\s*(\d{1,9})(?:@(\d{1,9}))?\s*$/.exec(part);
    if (match === null)
      throw new ShardwrightError(
        'E_USAGE',
        `--cut '${text}': expected a dim, or a dim and a place, at column ${column}, got ` +
          `'${part.trim()}'`,
        { hint: 'write for example 0,1 (everywhere) or 0,1@2 (dim 1 before slice 2).' },
      );
    const dim = Number(match[1]);
    const before = cuts.get(dim);
    if (match[2] === undefined) cuts.set(dim, 'all');
    else if (before !== 'all') cuts.set(dim, [...(before ?? []), Number(match[2])]);
    column += part.length + 1;
  }
  return cuts;
}

function usage(message: string, hint: string): ShardwrightError {
  return new ShardwrightError('E_USAGE', message, { hint });
}
