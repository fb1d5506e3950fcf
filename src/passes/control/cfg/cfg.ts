/** The control-flow graph of a program: blocks, their parameters, and the edges between them. */

import { checkKinds } from '../../../arguments.ts';
import { ShardwrightError } from '../../../errors.ts';
import { placeholdersOf } from '../../../graph/control.ts';
import { lintGraph } from '../../../graph/lint.ts';
import { typesByName } from '../../../graph/nodes.ts';
import type { Graph, ValueType } from '../../../graph/types.ts';
import { sameType, typeText } from '../../../graph/value.ts';

/**
 * Any control flow: blocks of straight-line code. A block sees its own parameters only, the
 * placeholders of its graph; what it hands on are arguments of the edge that leaves it.
 */
export interface Cfg {
  readonly name: string;
  /** Block that the program starts at; its parameters are the program's inputs. */
  readonly entry: string;
  readonly blocks: readonly Block[];
}

/** A basic block: a straight graph, and where control goes at its end. */
export interface Block {
  readonly id: string;
  /** Placeholders are the parameters; outputs are the values that the end of the block names. */
  readonly graph: Graph;
  readonly end: BlockEnd;
}

export interface Edge {
  readonly to: string;
  /** Values of the block, one for each parameter of the target. */
  readonly args: readonly string[];
}

export type BlockEnd =
  | { readonly kind: 'jump'; readonly edge: Edge }
  | { readonly kind: 'branch'; readonly on: string; readonly then: Edge; readonly else: Edge }
  | { readonly kind: 'return'; readonly values: readonly string[] };

/** The edges that leave a block. */
export function edgesOf({ end }: Block): readonly Edge[] {
  return end.kind === 'jump' ? [end.edge] : end.kind === 'branch' ? [end.then, end.else] : [];
}

/** Values that the end of a block reads, each once, in order. */
function endValues({ end }: Pick<Block, 'end'>): string[] {
  switch (end.kind) {
    case 'jump':
      return [...new Set(end.edge.args)];
    case 'branch':
      return [...new Set([end.on, ...end.then.args, ...end.else.args])];
    case 'return':
      return [...new Set(end.values)];
  }
}

/** A block whose graph returns what its end reads. */
export function blockOf(id: string, graph: Graph, end: BlockEnd): Block {
  const outputs = endValues({ end }).map((value, index) => ({
    value,
    role: 'output' as const,
    index,
  }));
  return { id, graph: { ...graph, outputs }, end };
}

export function typesIn(graph: Graph): (name: string) => ValueType {
  const types = typesByName(graph);
  return (name) => types.get(name) ?? { kind: 'none' };
}

/**
 * Checks names, arities and types of all edges, and that all returns agree.
 *
 * @throws E_CFG naming the block; what `lintGraph` throws for its graph
 */
export function checkCfg(input: Cfg): void {
  checkKinds('checkCfg', { input: [input, 'cfg'] });
  const { name, entry, blocks } = input;
  const fail = (id: string, message: string): never => {
    throw new ShardwrightError('E_CFG', `block ${id} of ${name}: ${message}`, { path: id });
  };
  const byId = new Map<string, Block>();
  for (const block of blocks) {
    if (byId.has(block.id)) fail(block.id, 'there are two blocks of this name');
    byId.set(block.id, block);
  }
  if (!byId.has(entry)) fail(entry, 'the program starts there, but there is no such block');
  let returned: readonly ValueType[] | undefined;
  for (const block of blocks) {
    lintGraph(block.graph);
    const names = new Set(block.graph.nodes.map((node) => node.name));
    const unknown = endValues(block).find((value) => !names.has(value));
    if (unknown !== undefined)
      fail(block.id, `its end reads %${unknown}, which the block does not have`);
    const typeOf = typesIn(block.graph);
    const { end } = block;
    if (end.kind === 'branch' && typeText(typeOf(end.on)) !== 'b8[]')
      fail(block.id, `it branches on ${typeText(typeOf(end.on))}, which is not one bool`);
    for (const { to, args } of edgesOf(block)) {
      const target = byId.get(to);
      if (target === undefined) return fail(block.id, `it goes to ${to}, which does not exist`);
      const params = placeholdersOf(target.graph);
      if (params.length !== args.length)
        fail(block.id, `it gives ${args.length} values to ${to}, which takes ${params.length}`);
      params.forEach((param, i) => {
        if (!sameType(param.type, typeOf(args[i])))
          fail(
            block.id,
            `argument ${i} of ${to} is ${typeText(typeOf(args[i]))}, expected ` +
              `${typeText(param.type)}`,
          );
      });
    }
    if (end.kind !== 'return') continue;
    const types = end.values.map(typeOf);
    if (
      returned !== undefined &&
      !(
        types.length === returned.length &&
        types.every((type, i) => sameType(type, returned?.[i] ?? type))
      )
    )
      fail(
        block.id,
        `it returns (${types.map((type) => typeText(type)).join(', ')}), another block ` +
          `(${returned.map((type) => typeText(type)).join(', ')})`,
      );
    returned = types;
  }
}

/**
 * Runs a program block by block.
 *
 * @param run values of a graph's outputs; @param truth whether a branch is taken
 * @throws E_LIMIT after `maxBlocks` blocks, 100,000 by default
 */
export function runCfg<V>(
  cfg: Cfg,
  inputs: readonly V[],
  run: (graph: Graph, inputs: readonly V[]) => readonly V[],
  truth: (value: V) => boolean,
  maxBlocks = 100_000,
): { readonly values: readonly V[]; readonly blocks: readonly string[] } {
  checkKinds('runCfg', {
    cfg: [cfg, 'cfg'],
    inputs: [inputs, 'list'],
    run: [run, 'function'],
    truth: [truth, 'function'],
    maxBlocks: [maxBlocks, 'number', 'undefined'],
  });
  const byId = new Map(cfg.blocks.map((block) => [block.id, block]));
  const trail: string[] = [];
  let [id, args] = [cfg.entry, inputs];
  for (;;) {
    const block = byId.get(id);
    if (block === undefined) throw new ShardwrightError('E_CFG', `${cfg.name} has no block ${id}`);
    trail.push(id);
    if (trail.length > maxBlocks)
      throw new ShardwrightError('E_LIMIT', `${cfg.name} runs more than ${maxBlocks} blocks`, {
        path: id,
      });
    const results = run(block.graph, args);
    const values = new Map(endValues(block).map((name, i) => [name, results[i]]));
    const read = (names: readonly string[]): V[] =>
      names.flatMap((name) => (values.has(name) ? [values.get(name) as V] : []));
    const { end } = block;
    if (end.kind === 'return') return { values: read(end.values), blocks: trail };
    const edge = end.kind === 'jump' ? end.edge : truth(read([end.on])[0]) ? end.then : end.else;
    [id, args] = [edge.to, read(edge.args)];
  }
}
