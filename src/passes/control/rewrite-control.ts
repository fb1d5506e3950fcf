/**
 * Walks the control-flow calls of a graph, bodies first, and replaces each by what a pass returns
 * for it.
 */

import { defined, nonEmpty } from '../../defined.ts';
import { internalError } from '../../errors.ts';
import { GraphBuilder } from '../../graph/build.ts';
import { lintGraph } from '../../graph/lint.ts';
import type { Arg, Graph, Node, Output } from '../../graph/types.ts';
import { getOwn, isRef, mapOperands, setOwn } from '../../graph/value.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { CallBuilder } from '../../ops/vjp/build.ts';
import { withoutDeadCode } from '../dead-code.ts';
import { BodyWriter, isBodyName, mapArg } from './body-writer.ts';
import { type ControlForm, controlForm } from './control-form.ts';

/** A control-flow call that a pass looks at, its operands being those of the new graph. */
export interface Site {
  readonly node: Node;
  readonly form: ControlForm;
  /** Appends to the new graph. */
  readonly calls: CallBuilder;
  readonly writer: BodyWriter;
}

/** Results of the call as values of the new graph; undefined keeps the call. */
type Replace = (site: Site) => readonly Arg[] | undefined;

/**
 * The graph with control-flow calls replaced by what a pass writes for them. Bodies are rewritten
 * before the graph that holds them. A graph in which nothing is replaced is returned as it is.
 *
 * @param nested whether bodies are rewritten too; default true
 */
export function rewriteControl(
  graph: Graph,
  table: OperatorTable,
  replace: Replace,
  nested = true,
): Graph {
  const result = rewritten(graph, table, replace, nested, new Map());
  if (result !== graph) lintGraph(result);
  return result;
}

/** Bodies that are one object stay one object. */
function rewritten(
  graph: Graph,
  table: OperatorTable,
  replace: Replace,
  nested: boolean,
  done: Map<Graph, Graph>,
): Graph {
  const known = done.get(graph);
  if (known !== undefined) return known;
  const subgraphs: Record<string, Graph> = {};
  let changed = false;
  for (const name of Object.keys(graph.subgraphs)) {
    const before = getOwn(graph.subgraphs, name);
    if (before === undefined) continue;
    const after = nested ? rewritten(before, table, replace, nested, done) : before;
    changed ||= after !== before;
    setOwn(subgraphs, name, after);
  }
  const source = changed ? { ...graph, subgraphs } : graph;
  const result = source.nodes.some((node) => controlForm(node, subgraphs) !== undefined)
    ? new Rewrite(source, table, replace).run()
    : source;
  done.set(graph, result);
  return result;
}

class Rewrite {
  private readonly builder: GraphBuilder;
  private readonly calls: CallBuilder;
  private readonly writer: BodyWriter;
  private readonly names = new Map<string, Arg>();
  private readonly results = new Map<string, readonly Arg[]>();

  constructor(
    private readonly source: Graph,
    table: OperatorTable,
    private readonly replace: Replace,
  ) {
    this.builder = new GraphBuilder(source.name);
    this.calls = new CallBuilder(
      this.builder,
      table,
      source.nodes.map((node) => node.name),
    );
    this.writer = new BodyWriter(this.builder, (base) => this.calls.freshName(base));
  }

  run(): Graph {
    const { source, builder } = this;
    for (const name of Object.keys(source.subgraphs)) {
      const body = getOwn(source.subgraphs, name);
      if (body !== undefined) this.writer.body(name, body);
    }
    for (const node of source.nodes) this.visit(node);
    if (this.results.size === 0) return source;
    for (const output of source.outputs) builder.output(this.output(output));
    const { mesh, given, notes, ties, dims } = source;
    const built = builder.build();
    const kept = new Set(built.nodes.map((node) => node.name));
    const still = (given ?? []).filter(({ value }) => value === undefined || kept.has(value));
    return withoutDeadCode({
      ...built,
      ...defined({ notes, ties, dims, mesh }),
      ...nonEmpty({ given: still }),
    });
  }

  private visit(original: Node): void {
    if (original.kind === 'placeholder') {
      this.builder.keep(original);
      return;
    }
    if (isBodyName(original, this.source)) {
      this.calls.keep(original);
      return;
    }
    const [read, index] = original.args;
    const parts =
      original.target === 'operator.getitem' && isRef(read)
        ? this.results.get(read.name)
        : undefined;
    if (parts !== undefined && typeof index === 'number') {
      this.names.set(original.name, parts[index < 0 ? index + parts.length : index] ?? null);
      return;
    }
    const node = this.renamed(original);
    const form = controlForm(node, this.source.subgraphs);
    if (form !== undefined) {
      this.calls.meta = node.meta;
      const results = this.replace({ node, form, calls: this.calls, writer: this.writer });
      this.calls.meta = {};
      if (results !== undefined) {
        this.results.set(node.name, results);
        return;
      }
    }
    this.calls.keep(node);
  }

  private renamed(node: Node): Node {
    if (this.names.size === 0) return node;
    let changed = false;
    mapOperands(node, (name) => {
      changed ||= this.names.has(name);
      return name;
    });
    if (!changed) return node;
    const kwargs: Record<string, Arg> = {};
    for (const key of Object.keys(node.kwargs))
      setOwn(kwargs, key, mapArg(node.kwargs[key], this.names));
    return { ...node, args: node.args.map((arg) => mapArg(arg, this.names)), kwargs };
  }

  private output(output: Output): Output {
    const now = output.value === null ? undefined : this.names.get(output.value);
    if (now === undefined) return output;
    if (now === null) return { ...output, value: null };
    if (isRef(now)) return { ...output, value: now.name };
    throw internalError(`${this.source.name} returns ${output.value}, which became a literal`);
  }
}
