/**
 * The dims that a plan cuts, and into how many pieces: what has to stay divisible where the program
 * is run at smaller sizes. Dims that no tensor of the plan is cut in may become as small as they
 * can, however large the mesh is.
 */

import { runsBodies } from '../../graph/control.ts';
import { nodesByName } from '../../graph/nodes.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { exampleShape } from '../../graph/value.ts';
import { parseMesh } from '../../mesh/devices/mesh.ts';
import { StridedShard } from '../../mesh/placements/shards/strided.ts';
import { ShardingSpace } from '../../mesh/sharding/space.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { Cut } from '../../passes/sizes/shrink.ts';
import { product } from '../../product.ts';
import type { LowerablePlan } from '../record/planned.ts';
import type { PlannedNode } from '../record/types.ts';

/**
 * The cuts of a plan, redistributions on the way included.
 *
 * @returns undefined for a program with bodies: the plan lists their nodes under other names
 */
export function cutsOfPlan(
  plan: LowerablePlan,
  program: Graph,
  table: OperatorTable,
): readonly Cut[] | undefined {
  if (runsBodies(program)) return undefined;
  const mesh = parseMesh(plan.request.mesh);
  const cuts = new PlanCuts(new ShardingSpace(mesh, table.kinds));
  const nodes = nodesByName(program);
  for (const planned of plan.nodes) {
    cuts.ofNode(planned);
    const node = nodes.get(planned.name);
    if (node?.kind === 'call' && table.get(node.target)?.cls === 'view')
      cuts.ofView(planned, node, nodes);
  }
  for (const { value, placement, redistributions } of plan.outputs)
    for (const one of [placement, ...onTheWay(redistributions)])
      cuts.note(value, 'outputs', 0, one);
  return cuts.all;
}

function onTheWay(moves: PlannedNode['redistributions']): string[] {
  return moves.flatMap(({ from, to, steps = [] }) => [from, to, ...steps.map((s) => s.to)]);
}

class PlanCuts {
  private readonly found = new Map<string, Cut>();

  constructor(private readonly space: ShardingSpace) {}

  get all(): readonly Cut[] {
    return [...this.found.values()];
  }

  note(node: string, of: Cut['of'], tensor: number, placement: string): void {
    if (placement === '-') return;
    const id = this.space.parse(placement);
    const { placements } = this.space.get(id);
    placements.forEach((placed, m) => {
      const dim = this.space.dimAt(id, m);
      if (dim < 0) return;
      // A strided cut cuts each of so many chunks of the dim.
      const chunks = placed instanceof StridedShard ? placed.factor : 1;
      this.add({ node, of, tensor, dim, pieces: chunks * this.space.pieces(id, dim) });
    });
  }

  ofNode({ name, inputs, outputs, redistributions }: PlannedNode): void {
    inputs.forEach((placement, i) => this.note(name, 'inputs', i, placement));
    outputs.forEach((placement, k) => this.note(name, 'outputs', k, placement));
    for (const move of redistributions)
      for (const one of onTheWay([move])) this.note(name, 'inputs', move.input, one);
  }

  /**
   * A view that merges a cut dim with dims before it leaves strided pieces: as many chunks as those
   * dims have rows on a device. A plan states that number, so their sizes stay.
   */
  ofView({ name, inputs, outputs, operands }: PlannedNode, node: Node, nodes: Nodes): void {
    const [read, made] = [inputs[0], outputs[0]];
    const source = nodes.get(operands?.[0] ?? '');
    if (read === undefined || made === undefined || source === undefined) return;
    for (const factor of [...this.factors(read), ...this.factors(made)]) {
      this.chunked(name, 'inputs', read, source, factor);
      this.chunked(name, 'outputs', made, node, factor);
    }
  }

  private factors(placement: string): number[] {
    if (placement === '-') return [];
    const { placements } = this.space.get(this.space.parse(placement));
    return placements.flatMap((p) => (p instanceof StridedShard ? [p.factor] : []));
  }

  /** Keeps the dims before a cut one that have `factor` rows together, whole or on a device. */
  private chunked(
    name: string,
    of: Cut['of'],
    placement: string,
    { type }: Node,
    factor: number,
  ): void {
    if (type.kind !== 'tensor' || placement === '-') return;
    const id = this.space.parse(placement);
    const shape = exampleShape(type);
    const pieces = shape.map((_, dim) => this.space.pieces(id, dim));
    for (let end = 1; end < shape.length; end++)
      for (let from = 0; pieces[end] > 1 && from < end; from++) {
        const rows = product(shape.slice(from, end)) / factor;
        if (rows !== 1 && rows !== product(pieces.slice(from, end))) continue;
        for (let dim = from; dim < end; dim++)
          this.add({ node: name, of, tensor: 0, dim, pieces: shape[dim] });
      }
  }

  private add(cut: Cut): void {
    this.found.set(Object.values(cut).join(' '), cut);
  }
}

type Nodes = ReadonlyMap<string, Node>;
