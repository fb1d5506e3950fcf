/** Turns blocks with the shape of an if or a loop into `cond` and `while_loop`. */

import { checkKinds } from '../../../arguments.ts';
import { GraphBuilder } from '../../../graph/build.ts';
import { placeholdersOf } from '../../../graph/control.ts';
import { lintGraph } from '../../../graph/lint.ts';
import type { Arg, Graph, ValueRef, ValueType } from '../../../graph/types.ts';
import { ref } from '../../../graph/value.ts';
import { BodyWriter, refName } from '../body-writer.ts';
import {
  type Block,
  type BlockEnd,
  blockOf,
  type Cfg,
  checkCfg,
  type Edge,
  typesIn,
} from './cfg.ts';
import {
  type CfgLoop,
  type FlowGraph,
  flowGraph,
  loopsOf,
  reachable,
  waysInto,
} from './cfg-flow.ts';

/** A control-flow graph whose ifs and loops were found, and the graph that they make. */
export interface Structured {
  readonly cfg: Cfg;
  /** Loops that stayed blocks; one with several entries has no header that could decide. */
  readonly loops: readonly CfgLoop[];
  /** The program as one graph, where all of it had the shape of ifs and loops. */
  readonly graph?: Graph;
}

/**
 * Turns what has the shape of an if or a loop into `cond` and `while_loop`, and joins blocks that
 * follow each other; the rest stays blocks. An if: both sides meet in one block, or both return. A
 * loop: a block that decides, and one that comes back.
 *
 * @throws E_CFG when the program is not sound, E_LIMIT for one of more than 1,000 blocks
 */
export function structure(cfg: Cfg): Structured {
  checkKinds('structure', { cfg: [cfg, 'cfg'] });
  checkCfg(cfg);
  const blocks = new Map(cfg.blocks.map((block) => [block.id, block]));
  let program = programOf(cfg.name, cfg.entry, blocks);
  for (let changed = true; changed;) {
    changed = false;
    for (const block of [...blocks.values()]) {
      if (blocks.get(block.id) !== block) continue;
      const next = joined(block, program) ?? branched(block, program) ?? looped(block, program);
      if (next === undefined) continue;
      blocks.set(block.id, next);
      program = programOf(cfg.name, cfg.entry, blocks);
      changed = true;
    }
  }
  const left: Cfg = { ...cfg, blocks: [...blocks.values()] };
  checkCfg(left);
  const [only] = left.blocks;
  if (left.blocks.length > 1 || only.end.kind !== 'return')
    return { cfg: left, loops: loopsOf(left) };
  const outputs = only.end.values.map((value, index) => ({
    value,
    role: 'output' as const,
    index,
  }));
  const graph: Graph = { ...only.graph, name: cfg.name, outputs };
  lintGraph(graph);
  return { cfg: left, loops: [], graph };
}

/** A program on the way. */
interface Program {
  readonly blocks: Map<string, Block>;
  readonly entry: string;
  /** The flow of the blocks as they are; made again with every change. */
  readonly flow: FlowGraph;
}

/** Drops the blocks that the program cannot come to. */
function programOf(name: string, entry: string, blocks: Map<string, Block>): Program {
  const flow = flowGraph(name, blocks.values());
  const seen = reachable(flow, entry);
  for (const id of [...blocks.keys()]) {
    if (seen.has(id)) continue;
    blocks.delete(id);
    flow.removeNode(id);
  }
  return { blocks, entry, flow };
}

/** The block that an edge goes to, if nothing else goes there. */
function ownTarget({ to }: Edge, { blocks, flow }: Program, entry: string): Block | undefined {
  return waysInto(flow, to, entry) === 1 ? blocks.get(to) : undefined;
}

/** `A; jump B` with nothing else before B: one block. */
function joined(block: Block, program: Program): Block | undefined {
  if (block.end.kind !== 'jump') return undefined;
  const next = ownTarget(block.end.edge, program, program.entry);
  if (next === undefined || next === block) return undefined;
  const site = new Site(block);
  const names = site.place(next, site.refs(block.end.edge.args));
  return site.finish(mapEnd(next.end, names));
}

/** A branch whose sides meet again, or both return. */
function branched(block: Block, program: Program): Block | undefined {
  const { end } = block;
  if (end.kind !== 'branch') return undefined;
  const then = sideOf(end.then, program);
  const otherwise = sideOf(end.else, program);
  const meet = meeting(then, otherwise, end);
  if (meet === undefined) return undefined;
  const site = new Site(block);
  const operands = [...end.then.args, ...end.else.args];
  const types = operands.map(site.typeOf);
  const yes = sideBody('then', meet.then, types, 0, end.then.args.length);
  const no = sideBody('else', meet.otherwise, types, end.then.args.length, end.else.args.length);
  const items = meet.types;
  const args: Arg[] = [
    ...site.refs([end.on]),
    { kind: 'graph', name: site.writer.body('then', yes) },
    { kind: 'graph', name: site.writer.body('else', no) },
    site.refs(operands),
  ];
  const values = site.results('cond', args, items);
  return site.finish(
    meet.to === undefined
      ? { kind: 'return', values }
      : { kind: 'jump', edge: { to: meet.to, args: values } },
  );
}

/** One side of a branch: its own block, or an edge straight to where the sides meet. */
interface Side {
  readonly edge: Edge;
  readonly block?: Block;
}

function sideOf(edge: Edge, program: Program): Side {
  const block = ownTarget(edge, program, program.entry);
  return block === undefined || block.end.kind === 'branch' ? { edge } : { edge, block };
}

interface Meeting {
  /** The block in which both sides meet; undefined where both return. */
  readonly to: string | undefined;
  readonly types: readonly ValueType[];
  readonly then: Side;
  readonly otherwise: Side;
}

function meeting(
  then: Side,
  otherwise: Side,
  end: Extract<BlockEnd, { kind: 'branch' }>,
): Meeting | undefined {
  const a = then.block?.end;
  const b = otherwise.block?.end;
  const typesOf = (block: Block | undefined, values: readonly string[]): ValueType[] =>
    values.map(
      typesIn((block ?? { graph: { name: '', nodes: [], outputs: [], subgraphs: {} } }).graph),
    );
  if (a?.kind === 'return' && b?.kind === 'return')
    return { to: undefined, types: typesOf(then.block, a.values), then, otherwise };
  if (a?.kind === 'jump' && b?.kind === 'jump' && a.edge.to === b.edge.to)
    return { to: a.edge.to, types: typesOf(then.block, a.edge.args), then, otherwise };
  // One side goes straight on.
  if (a?.kind === 'jump' && a.edge.to === end.else.to)
    return {
      to: a.edge.to,
      types: typesOf(then.block, a.edge.args),
      then,
      otherwise: { edge: end.else },
    };
  if (b?.kind === 'jump' && b.edge.to === end.then.to)
    return {
      to: b.edge.to,
      types: typesOf(otherwise.block, b.edge.args),
      then: { edge: end.then },
      otherwise,
    };
  return undefined;
}

/** The body of one side: it takes the operands of both and reads its own. */
function sideBody(
  name: string,
  { block }: Side,
  types: readonly ValueType[],
  from: number,
  count: number,
): Graph {
  const builder = new GraphBuilder(name);
  const writer = new BodyWriter(builder);
  const inputs = types.map((type, roleIndex) =>
    builder.placeholder(`arg${roleIndex}`, type, { role: 'arg', roleIndex }),
  );
  const own = inputs.slice(from, from + count);
  const names = block === undefined ? undefined : place(writer, block.graph, own);
  const end = block?.end;
  const values = end?.kind === 'jump' ? end.edge.args : end?.kind === 'return' ? end.values : [];
  const results = names === undefined ? own : values.map((value) => names.get(value));
  results.forEach((value, index) =>
    builder.output({ value: refName(value) ?? null, role: 'output', index }),
  );
  return builder.build();
}

/** A block that decides whether another one runs and comes back to it. */
function looped(header: Block, program: Program): Block | undefined {
  const { end } = header;
  if (end.kind !== 'branch') return undefined;
  const comesBack = (edge: Edge): Block | undefined => {
    const body = ownTarget(edge, program, '');
    return body?.end.kind === 'jump' && body.end.edge.to === header.id ? body : undefined;
  };
  const negated = comesBack(end.then) === undefined;
  const [inside, exit] = negated ? [end.else, end.then] : [end.then, end.else];
  const body = comesBack(inside);
  if (body?.end.kind !== 'jump' || exit.to === header.id || exit.to === body.id) return undefined;
  const params = placeholdersOf(header.graph);
  const types = params.map((param) => param.type);
  const condition = loopBody('while_cond', types, (builder, writer, inputs) => {
    const on = place(writer, header.graph, inputs).get(end.on) ?? null;
    if (!negated) return [on];
    const type: ValueType = { kind: 'tensor', dtype: 'b8', shape: [] };
    return [builder.call('aten.logical_not.default', [on], type, { meta: { phase: 'forward' } })];
  });
  const { args } = body.end.edge;
  const step = loopBody('while_body', types, (_builder, writer, inputs) => {
    const names = place(writer, header.graph, inputs);
    const inner = place(
      writer,
      body.graph,
      inside.args.map((value) => names.get(value) ?? null),
    );
    return args.map((value) => inner.get(value) ?? null);
  });
  const site = new Site(header, false);
  const operands = params.map((param): ValueRef => ref(param.name));
  const calls: Arg[] = [
    { kind: 'graph', name: site.writer.body('while_cond', condition) },
    { kind: 'graph', name: site.writer.body('while_body', step) },
    operands,
    [],
  ];
  const last = site.results('while_loop', calls, types);
  // The way out may read what the header computes: it runs once more on the last carry.
  const names = site.place(
    header,
    last.map((name): ValueRef => ref(name)),
  );
  return site.finish({ kind: 'jump', edge: mapEdge(exit, names) });
}

function loopBody(
  name: string,
  types: readonly ValueType[],
  write: (builder: GraphBuilder, writer: BodyWriter, inputs: readonly ValueRef[]) => readonly Arg[],
): Graph {
  const builder = new GraphBuilder(name);
  const inputs = types.map((type, roleIndex) =>
    builder.placeholder(`arg${roleIndex}`, type, { role: 'arg', roleIndex }),
  );
  const results = write(builder, new BodyWriter(builder), inputs);
  results.forEach((value, index) =>
    builder.output({ value: refName(value) ?? null, role: 'output', index }),
  );
  return builder.build();
}

/** A block that is rewritten. */
class Site {
  readonly builder: GraphBuilder;
  readonly writer: BodyWriter;
  readonly typeOf: (name: string) => ValueType;

  /** @param whole whether the block's calls stay, or only its parameters */
  constructor(
    private readonly block: Block,
    whole = true,
  ) {
    const { graph } = block;
    this.builder = new GraphBuilder(graph.name);
    this.writer = new BodyWriter(this.builder);
    this.typeOf = typesIn(graph);
    if (whole)
      for (const [name, body] of Object.entries(graph.subgraphs)) this.writer.body(name, body);
    for (const node of graph.nodes)
      if (whole || node.kind === 'placeholder') this.builder.keep(node);
  }

  refs(names: readonly string[]): ValueRef[] {
    return names.map((name) => ref(name));
  }

  place(block: Block, operands: readonly Arg[]): ReadonlyMap<string, Arg> {
    return place(this.writer, block.graph, operands);
  }

  /** Adds a control-flow call and reads its results. */
  results(target: string, args: readonly Arg[], items: readonly ValueType[]): string[] {
    const meta = { phase: 'forward' } as const;
    const call = this.builder.call(target, args, { kind: 'tuple', items }, { meta });
    return items.map(
      (item, i) => this.builder.call('operator.getitem', [call, i], item, { meta }).name,
    );
  }

  finish(end: BlockEnd): Block {
    return blockOf(this.block.id, this.builder.build(), end);
  }
}

/**
 * Copies a graph's calls with these values for its placeholders; returns the meaning of each name.
 */
function place(
  writer: BodyWriter,
  graph: Graph,
  operands: readonly Arg[],
): ReadonlyMap<string, Arg> {
  const names = new Map<string, Arg>();
  let position = 0;
  for (const node of graph.nodes) {
    if (node.kind === 'placeholder') names.set(node.name, operands[position++] ?? null);
    else names.set(node.name, writer.copy(node, graph, names));
  }
  return names;
}

function mapEdge({ to, args }: Edge, names: ReadonlyMap<string, Arg>): Edge {
  return { to, args: args.map((name) => refName(names.get(name)) ?? name) };
}

function mapEnd(end: BlockEnd, names: ReadonlyMap<string, Arg>): BlockEnd {
  switch (end.kind) {
    case 'jump':
      return { ...end, edge: mapEdge(end.edge, names) };
    case 'branch':
      return {
        ...end,
        on: refName(names.get(end.on)) ?? end.on,
        then: mapEdge(end.then, names),
        else: mapEdge(end.else, names),
      };
    case 'return':
      return { ...end, values: end.values.map((name) => refName(names.get(name)) ?? name) };
  }
}
