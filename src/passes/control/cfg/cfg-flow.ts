/** Gives the edges between the blocks of a program and the blocks that can be reached. */

import { alg, Graph } from 'graphlib';

import { checkKinds } from '../../../arguments.ts';
import { ShardwrightError } from '../../../errors.ts';
import { type Block, type Cfg, edgesOf } from './cfg.ts';

/**
 * Which block leads to which, as a graph with one edge for each edge of the program (a branch with
 * two like sides has two). Programs of blocks are small: graphlib's searches are recursive and
 * overflow at a few thousand blocks in a row.
 */
export type FlowGraph = Graph<object, object, object>;

/** Blocks of a program that is searched. */
const MAX_BLOCKS = 1000;

/** @throws E_LIMIT for more than 1,000 blocks */
export function flowGraph(name: string, blocks: Iterable<Block>): FlowGraph {
  const flow: FlowGraph = new Graph<object, object, object>({ directed: true, multigraph: true });
  for (const block of blocks) {
    flow.setNode(block.id, {});
    edgesOf(block).forEach(({ to }, side) => flow.setEdge(block.id, to, {}, String(side)));
  }
  if (flow.nodeCount() > MAX_BLOCKS)
    throw new ShardwrightError(
      'E_LIMIT',
      `${name} has ${flow.nodeCount()} blocks, more than ${MAX_BLOCKS}`,
      {
        hint: 'write straight stretches as one block, or make several programs.',
      },
    );
  return flow;
}

/** Blocks that the program can come to. */
export function reachable(flow: FlowGraph, entry: string): ReadonlySet<string> {
  return new Set(alg.preorder(flow, entry));
}

/** Edges that lead to a block; the start of the program is one. */
export function waysInto(flow: FlowGraph, id: string, entry: string): number {
  return (flow.inEdges(id)?.length ?? 0) + (id === entry ? 1 : 0);
}

/** Blocks that all lead to each other. */
export interface CfgLoop {
  readonly blocks: readonly string[];
  /**
   * Blocks that are entered from outside. A loop with several has no header, and no `while_loop`
   * can express it.
   */
  readonly entries: readonly string[];
}

/** The loops of a program, by their first block. */
export function loopsOf(input: Cfg): CfgLoop[] {
  checkKinds('loopsOf', { input: [input, 'cfg'] });
  const { name, entry, blocks } = input;
  const flow = flowGraph(name, blocks);
  const position = new Map(blocks.map((block, i) => [block.id, i]));
  const inOrder = (ids: readonly string[]): string[] =>
    [...ids].sort((a, b) => position.get(a)! - position.get(b)!);
  return alg
    .tarjan(flow)
    .filter((ids) => ids.length > 1 || flow.outEdges(ids[0], ids[0])!.length > 0)
    .map((ids) => ({
      blocks: inOrder(ids),
      entries: inOrder(ids).filter(
        (id) => id === entry || flow.inEdges(id)!.some((edge) => !ids.includes(edge.v)),
      ),
    }))
    .sort((a, b) => position.get(a.blocks[0])! - position.get(b.blocks[0])!);
}
