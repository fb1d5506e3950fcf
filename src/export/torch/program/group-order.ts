/**
 * Puts the mesh dims of a collective's group into mesh order, and finds the place of each member of
 * the plan's order in it. Source: `torch.distributed.new_group` sorts its ranks, so only ascending
 * groups can be made.
 */
import type { Arg, Node } from '../../../graph/types.ts';
import { groupDims, groupOf, groupText } from '../../../lower/program/collectives.ts';
import type { DeviceMesh } from '../../../mesh/devices/mesh.ts';

interface GroupOrder {
  /** `dp,tp`: mesh dims in mesh order. */
  readonly group: string;
  /**
   * Place in PyTorch's group of each member in the plan's order; undefined where both orders are
   * one.
   */
  readonly order?: readonly number[];
}

/** The same places for all groups: ranks are places in the mesh, and those ascend in mesh order. */
export function groupOrder(mesh: DeviceMesh, node: Pick<Node, 'args'>): GroupOrder {
  const dims = groupDims(mesh, node.args.at(-1));
  const group = groupText(
    mesh,
    [...dims].sort((a, b) => a - b),
  );
  const members = groupOf(mesh, dims, 0);
  const sorted = [...members].sort((a, b) => a - b);
  const order = members.map((rank) => sorted.indexOf(rank));
  return order.every((place, member) => place === member) ? { group } : { group, order };
}

/** Targets of a permutation by the places that members have in PyTorch's group. */
export function permuted(arg: Arg | undefined, order: readonly number[] | undefined): string {
  const targets = (Array.isArray(arg) ? (arg as readonly Arg[]) : []).map(Number);
  if (order === undefined) return `[${targets.join(', ')}]`;
  const out = new Array<number>(targets.length).fill(0);
  targets.forEach((to, member) => (out[order[member]] = order[to]));
  return `[${out.join(', ')}]`;
}

/** For each place the member that has it. */
export function inverse(order: readonly number[]): number[] {
  const out = new Array<number>(order.length).fill(0);
  order.forEach((place, member) => (out[place] = member));
  return out;
}
