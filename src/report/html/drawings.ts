/** Draws the shards of chosen parameters, reduced to a size that can be read. */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError, suggestion } from '../../errors.ts';
import { meshSize, parseMesh } from '../../mesh/devices/mesh.ts';
import { ShardingSpace } from '../../mesh/sharding/space.ts';
import { DARK, LIGHT, themeRules } from '../../notations/draw/palette.ts';
import { drawSvg } from '../../notations/draw/svg.ts';
import { placementDrawing } from '../../notations/draw/views.ts';
import { elements } from '../../ops/record/record.ts';
import type { Plan } from '../../plan/record/types.ts';
import { h, Markup } from '../markup.ts';

const DEFAULT_DRAWN = 4;
/** Above this a cell of a replicated dim lists more devices than one can read. */
const MAX_DRAWN_DEVICES = 16;

/** Drawings of parameters as matrices of matrices, and sentences for those that cannot be drawn. */
export interface Drawings {
  readonly figures: readonly Markup[];
  /** Rules for the manual light/dark switch. */
  readonly style: string;
  readonly left: readonly string[];
}

/**
 * Draws parameters at a size, and on a mesh, that is cut in the same way: the real ones have far
 * too many elements.
 *
 * @param names parameters to draw; default: one for each distinct placement, largest first, four at
 *   most
 * @throws E_REF for a name that the plan does not have
 */
export function drawParameters(plan: Plan, names: readonly string[] = []): Drawings {
  checkKinds('drawParameters', {
    plan: [plan, 'writtenPlan'],
    names: [names, 'names', 'undefined'],
  });
  const known = new Map(plan.parameters.map((p) => [p.name, p]));
  const chosen =
    names.length > 0
      ? names.map((name) => {
          const found = known.get(name);
          if (found === undefined)
            throw new ShardwrightError('E_REF', `the plan has no parameter '${name}' to draw`, {
              hint: suggestion(name, [...known.keys()], 'parameters'),
            });
          return found;
        })
      : telling(plan);
  const figures: Markup[] = [];
  const style: string[] = [];
  const left: string[] = [];
  for (const p of chosen) {
    try {
      const { svg, id } = drawOne(plan, p);
      figures.push(h('figure', {}, Markup.trusted(svg)));
      style.push(
        themeRules(`:root[data-theme=light] #${id}`, LIGHT),
        `@media not print{${themeRules(`:root[data-theme=dark] #${id}`, DARK)}}`,
        `@media print{${themeRules(`#${id}#${id}`, LIGHT)}}`,
      );
    } catch (error) {
      if (!(error instanceof ShardwrightError)) throw error;
      left.push(`${p.name} is not drawn: ${error.message}.`);
    }
  }
  return { figures, style: style.join(''), left };
}

type Parameter = Plan['parameters'][number];

/** The largest parameter of every distinct placement and rank, largest first. */
function telling(plan: Plan): Parameter[] {
  const size = (p: Parameter): number => elements(p.shape);
  const best = new Map<string, Parameter>();
  for (const p of [...plan.parameters].sort((a, b) => size(b) - size(a))) {
    const key = `${p.shape.length}|${p.placement}`;
    if (p.shape.length > 0 && !best.has(key)) best.set(key, p);
  }
  return [...best.values()].slice(0, DEFAULT_DRAWN);
}

function drawOne(plan: Plan, p: Parameter): { svg: string; id: string } {
  const devices = meshSize(plan.mesh);
  const small = devices > MAX_DRAWN_DEVICES;
  const meshText = plan.mesh
    .map((d) => `${d.name}=${small ? Math.min(2, d.size) : d.size}`)
    .join(',');
  const mesh = parseMesh(meshText);
  const space = new ShardingSpace(mesh);
  const id = space.parse(p.placement);
  const shape = p.shape.map((size, d) => Math.min(size, Math.max(2, space.pieces(id, d))));
  const { drawing, holders } = placementDrawing(space.get(id), mesh, shape);
  const scaled = `${small ? `on ${meshText}, ` : ''}at (${shape.join(', ')})`;
  const text = drawSvg(drawing, {
    title: p.name,
    caption:
      `${p.placement}, shape (${p.shape.join(', ')}), drawn ${scaled}, which is cut in the ` +
      'same way. Each cell shows the devices that hold it; lines are shard borders.',
    holders,
  });
  // Inside HTML an svg element needs no namespace.
  const svg = text.replace(' xmlns="http://www.w3.org/2000/svg"', '');
  return { svg, id: /id="([\w-]+)"/.exec(svg)?.[1] ?? '' };
}
