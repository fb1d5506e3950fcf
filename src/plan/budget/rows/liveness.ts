/**
 * Finds the readers of each value and their times, independent of placements: the base of every row
 * of activation memory. Program points are node indices. "In place" are reads of the value itself
 * or through views of it.
 *
 * It uses the data flow of the plan and not the graph's interpreter: its values are results, of
 * which a node may have several, bodies are inlined here, and the search goes back from the end. It
 * gives the last and first readers, views and storage of every value.
 */
import type { OperatorTable } from '../../../ops/record/table.ts';
import { backwardStart } from '../../../passes/plannable/weight-views.ts';
import type { Model } from '../../model/model.ts';
import { regionLives } from '../../model/region-lives.ts';

export interface Liveness {
  /** First node of the backward pass; the number of nodes where there is none. */
  readonly split: number;
  /** By node: whether it is a view of its one tensor input. */
  readonly view: Uint8Array;
  /** By node: the first node at which its results are there: itself, but for what a loop stacks. */
  readonly from: Int32Array;
  /**
   * By value: the last forward and the first and last backward node that read it, itself; -1 where
   * none does.
   */
  readonly lastForward: Int32Array;
  readonly firstBackward: Int32Array;
  readonly lastBackward: Int32Array;
  /** By value: the value whose storage it shares if nothing is moved on the way. */
  readonly root: Int32Array;
  /** By node: 1 where the backward pass reads a result of it or of something computed from it. */
  readonly wanted: Uint8Array;
}

export function livenessOf(model: Model, table: OperatorTable): Liveness {
  const { graph, flow } = model;
  const split = backwardStart(graph);
  const none = (): Int32Array => new Int32Array(flow.values.length).fill(-1);
  const view = new Uint8Array(graph.nodes.length);
  const [lastForward, firstBackward, lastBackward] = [none(), none(), none()];
  const from = Int32Array.from(graph.nodes.keys());
  const root = Int32Array.from(flow.values.keys());
  const lives = regionLives(graph, model.opened?.regions);
  const keep = (value: number, until: number): void => {
    const last = until < split ? lastForward : lastBackward;
    last[value] = Math.max(last[value], until);
  };
  graph.nodes.forEach((node, n) => {
    if (flow.alias[n] >= 0) return;
    const inputs = flow.inputs[n];
    for (const value of inputs) {
      if (n >= split && firstBackward[value] < 0) firstBackward[value] = n;
      keep(value, lives.heldUntil(flow.values[value].node, n));
    }
    const [until, stackedFrom] = [lives.carryUntil(n), lives.stackedFrom(n)];
    if (until >= 0) for (const value of flow.results[n]) if (value >= 0) keep(value, until);
    if (stackedFrom >= 0) from[n] = stackedFrom;
    if (
      node.kind !== 'call' ||
      inputs.length !== 1 ||
      table.get(node.target)?.cls !== 'view' ||
      stackedFrom >= 0
    )
      return;
    view[n] = 1;
    for (const value of flow.results[n]) if (value >= 0) root[value] = root[inputs[0]];
  });
  const wanted = new Uint8Array(graph.nodes.length);
  for (let n = split - 1; n >= 0; n--) {
    if (flow.alias[n] >= 0 || graph.nodes[n].kind !== 'call') continue;
    if (flow.results[n].some((value) => value >= 0 && firstBackward[value] >= 0)) wanted[n] = 1;
    if (wanted[n] === 0) continue;
    for (const value of flow.inputs[n]) wanted[flow.values[value].node] = 1;
  }
  return { split, view, from, lastForward, firstBackward, lastBackward, root, wanted };
}
