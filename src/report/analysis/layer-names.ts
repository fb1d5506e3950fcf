/**
 * Gives the layer that each node belongs to, by its module path or by the weight that it uses;
 * numbers of repeated layers become `*`.
 */

import { roleName } from '../../graph/nodes.ts';
import { itemAt } from '../../item-at.ts';
import type { OpClass, OperatorRecord } from '../../ops/record/record.ts';
import type { Prepared } from '../../plan/prepare/prepared.ts';

/**
 * The layer that each node belongs to, numbers of repeated layers folded to `*`: the module path
 * where the file tells it; else the module of the weight that the node reads or whose gradient it
 * makes; else what kind of work it is, in brackets.
 */
export function layerNames({ model }: Pick<Prepared, 'model'>): string[] {
  const { graph, flow, table } = model;
  /** Weight that a value is another form of: the parameter, or a view or cast of it. */
  const weightOf = new Map<number, string>();
  const ofNode = new Map<number, string>();
  const recordOf = (n: number): OperatorRecord | undefined => {
    const node = itemAt(graph.nodes, n);
    return node.kind === 'call' ? table.get(node.target) : undefined;
  };
  graph.nodes.forEach((node, n) => {
    if (node.kind === 'placeholder') {
      if (node.meta.role !== 'parameter') return;
      const name = moduleOf(roleName(node));
      ofNode.set(n, name);
      for (const value of itemAt(flow.results, n)) if (value >= 0) weightOf.set(value, name);
      return;
    }
    const weights = [...itemAt(flow.inputs, n)].map((value) => weightOf.get(value));
    const name = weights.find((w) => w !== undefined);
    if (name === undefined) return;
    ofNode.set(n, name);
    if (
      weights.length === 1 &&
      isSameTensor(node.kind === 'call' ? node.target : '', recordOf(n)?.cls)
    )
      for (const value of itemAt(flow.results, n)) if (value >= 0) weightOf.set(value, name);
  });
  // From every gradient back to the call that makes it.
  for (const { output, value } of flow.outputs) {
    if (output.role !== 'grad' || output.of === undefined || value < 0) continue;
    const name = moduleOf(output.of);
    for (let v = value, steps = 0; steps < 8; steps++) {
      const n = itemAt(flow.values, v).node;
      const node = itemAt(graph.nodes, n);
      if (node.kind !== 'call' || ofNode.has(n)) break;
      ofNode.set(n, name);
      if (!isSameTensor(node.target, recordOf(n)?.cls) || itemAt(flow.inputs, n).length !== 1)
        break;
      v = itemAt(itemAt(flow.inputs, n), 0);
    }
  }
  const names: string[] = [];
  graph.nodes.forEach((node, n) => {
    const { path } = node.meta;
    const cls = recordOf(n)?.cls ?? 'other';
    const [seen] = itemAt(flow.inputs, n);
    // A view belongs to what it shows.
    const shown =
      cls === 'view' && seen !== undefined ? names[itemAt(flow.values, seen).node] : undefined;
    names.push(
      path !== undefined && path !== ''
        ? foldNumbers(path)
        : (ofNode.get(n) ?? shown ?? KINDS[cls]),
    );
  });
  return names;
}

const KINDS: Readonly<Record<OpClass, string>> = {
  matmul: '(matmul without a weight)',
  attention: '(attention)',
  pointwise: '(elementwise)',
  reduction: '(reductions)',
  norm: '(norms and softmax)',
  view: '(views)',
  factory: '(constants)',
  random: '(random numbers)',
  collective: '(collectives)',
  control: '(control flow)',
  other: '(other operators)',
};

function isSameTensor(target: string, cls: string | undefined): boolean {
  return (
    cls === 'view' || /\b(t|_to_copy|clone|transpose|permute|view|reshape|detach)\b/.test(target)
  );
}

/** `model.layers.3.mlp.up_proj.weight` as `model.layers.*.mlp.up_proj`. */
function moduleOf(parameter: string): string {
  const folded = foldNumbers(parameter);
  return folded.includes('.') ? folded.replace(/\.[^.]*$/, '') : folded;
}

/** Numbers of repeated layers as `*`. */
export function foldNumbers(name: string): string {
  return name.replace(/(^|[._])\d+(?=[._]|$)/g, '$1*');
}
