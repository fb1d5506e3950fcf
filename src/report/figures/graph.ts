/**
 * Draws the folded program as an SVG figure: nodes with their placements, edges with their
 * redistributions.
 */

import { graphlib, layout } from '@dagrejs/dagre';

import { itemAt } from '../../item-at.ts';
import { secondsText } from '../../units.ts';
import type { FoldedGraph, FoldedNode } from '../analysis/folded-graph.ts';
import { h, type Markup } from '../markup.ts';
import { chart, clip, label, px } from './chart.ts';

const NODE = { width: 148, height: 44 };
const LETTERS = 20;
/** Letters of a change of placement on an edge. */
const LABEL = 28;

interface Point {
  readonly x: number;
  readonly y: number;
}

/**
 * The folded program from left to right: a box for each node with a kernel or a move, its placement
 * below its name; the placement on every edge where it changes. Boxes can be chosen, by mouse and
 * by keyboard: the page then shows their strategies.
 */
export function graphFigure(folded: FoldedGraph): Markup {
  const backward = passes(folded);
  const above = laidOut(folded, (k) => !backward[k], 0);
  const below = laidOut(folded, (k) => itemAt(backward, k), above.height);
  const at = folded.nodes.map((_, k) => above.at.get(k) ?? below.at.get(k) ?? { x: 0, y: 0 });
  return chart(
    {
      id: 'graph',
      title: 'The program, equal layers folded',
      description:
        `${folded.nodes.length} nodes from left to right, the forward pass above the backward ` +
        `pass; ${folded.edges.filter((e) => e.change !== undefined).length} edges on which the ` +
        'placement changes.',
      width: Math.max(1, above.width, below.width),
      height: Math.max(1, below.height),
      isChosenFrom: true,
    },
    above.edges,
    below.edges,
    folded.edges
      .filter((e) => e.next)
      .map((e) => nextLayer(itemAt(at, e.from), folded, e.from, e.to)),
    folded.nodes.map((node, k) => box(node, itemAt(at, k), k)),
  );
}

/**
 * Tells whether each node is drawn with the backward pass: its own nodes, and inputs that only they
 * read.
 */
function passes({ nodes, edges }: FoldedGraph): boolean[] {
  return nodes.map(({ phase }, k) => {
    if (phase !== 'input') return phase === 'backward';
    const readers = edges.filter((e) => e.from === k).map((e) => itemAt(nodes, e.to).phase);
    return readers.length > 0 && readers.every((reader) => reader === 'backward');
  });
}

interface LaidOut {
  readonly at: ReadonlyMap<number, Point>;
  readonly edges: readonly Markup[];
  readonly width: number;
  /** Lower edge. */
  readonly height: number;
}

/** Lays out some of the nodes with the edges between them, below what is drawn already. */
function laidOut(folded: FoldedGraph, belongs: (node: number) => boolean, top: number): LaidOut {
  const g = new graphlib.Graph();
  g.setGraph({ rankdir: 'LR', nodesep: 14, ranksep: 34, marginx: 8, marginy: 12 });
  g.setDefaultEdgeLabel(() => ({}));
  const ids = [...folded.nodes.keys()].filter(belongs);
  for (const k of ids) g.setNode(String(k), { ...NODE });
  // Edges to the next layer would make the drawing run backwards.
  const own = folded.edges.filter((e) => belongs(e.from) && belongs(e.to) && !e.next);
  for (const { from, to, change = '' } of own)
    g.setEdge(
      String(from),
      String(to),
      change === ''
        ? {}
        : { width: Math.min(change.length, LABEL) * 7 + 8, height: 16, labelpos: 'c' as const },
    );
  if (ids.length === 0) return { at: new Map(), edges: [], width: 0, height: top };
  layout(g);
  const down = ({ x, y }: Point): Point => ({ x, y: y + top });
  const edges = own.flatMap((e): Markup[] => {
    const drawn = g.edge(String(e.from), String(e.to)) as unknown as {
      points: Point[];
      x?: number;
      y?: number;
    };
    const change = e.change === undefined ? '' : `: ${e.change}, ${secondsText(e.seconds)}`;
    const words = `${nameAt(folded, e.from)} to ${nameAt(folded, e.to)}${change}`;
    const path = h(
      'path',
      { d: pathOf(drawn.points.map(down)), class: e.change === undefined ? 'edge' : 'edge moved' },
      h('title', {}, words),
    );
    if (e.change === undefined || drawn.x === undefined || drawn.y === undefined) return [path];
    return [
      path,
      label(drawn.x, drawn.y + top - 5, clip(e.change, LABEL), {
        anchor: 'middle',
        class: 'moved',
      }),
    ];
  });
  const { width = 0, height = 0 } = g.graph() as { width?: number; height?: number };
  return {
    at: new Map(ids.map((k) => [k, down(g.node(String(k)) as unknown as Point)])),
    edges,
    width: Math.ceil(width),
    height: top + Math.ceil(height),
  };
}

function box(node: FoldedNode, { x, y }: Point, k: number): Markup {
  const [left, top] = [x - NODE.width / 2, y - NODE.height / 2];
  const times = node.count > 1 ? ` ×${node.count}` : '';
  const cost =
    `${secondsText(node.seconds)} of compute` +
    (node.communicationSeconds > 0
      ? `, ${secondsText(node.communicationSeconds)} of communication`
      : '');
  return h(
    'g',
    { class: `node ${node.phase}`, tabindex: 0, role: 'button', 'data-node': k },
    h('title', {}, `${node.name}${times}\n${node.target}\n${node.placement}\n${cost}`),
    h('rect', { x: px(left), y: px(top), width: NODE.width, height: NODE.height, rx: 6 }),
    label(left + 8, top + 18, clip(`${node.name}${times}`, LETTERS)),
    label(left + 8, top + 35, clip(node.placement, LETTERS), { class: 'soft' }),
  );
}

function nameAt({ nodes }: FoldedGraph, position: number): string {
  return itemAt(nodes, position).name;
}

function pathOf(points: readonly Point[]): string {
  return `M${points.map(({ x, y }) => `${px(x)} ${px(y)}`).join('L')}`;
}

/** A short arrow out of a box, for an edge that leads to the next of several equal layers. */
function nextLayer(from: Point, folded: FoldedGraph, a: number, b: number): Markup {
  const x = from.x + NODE.width / 2;
  const words = `${nameAt(folded, a)}, on to the next layer: ${nameAt(folded, b)}`;
  return h(
    'path',
    { d: `M${px(x)} ${px(from.y)}h14m-4 -4l4 4l-4 4`, class: 'edge next' },
    h('title', {}, words),
  );
}
