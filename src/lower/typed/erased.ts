/**
 * Strips the types from a typed graph, which gives the per-device program, and explains why a
 * collective is there by the chain of values from it to the operator that made it necessary.
 */
import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { checkOptions, ShardwrightError, valueText, wrongArgument } from '../../errors.ts';
import { LOCAL_MAP } from '../../graph/local-map.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { eachOperand, getOwn, isRef } from '../../graph/value.ts';
import { type CheckOptions, inputTypes } from '../../local-spmd/check.ts';
import { typedAxes, typeGraph } from '../../local-spmd/type-graph.ts';
import { isTuple, type Known } from '../../local-spmd/typed.ts';
import type { Typer } from '../../local-spmd/typer.ts';
import { parseMesh } from '../../mesh/devices/mesh.ts';
import { builtinOperators } from '../../ops/builtin.ts';
import { spmdName, verbAxes } from '../../ops/spmd/operators.ts';
import { type ErasedProgram, eraseTypes } from './erase.ts';

/** The options of `CheckOptions` without the mode, which is `strict`. */
export type EraseOptions = Omit<CheckOptions, 'mode'>;

const OPTIONS: Readonly<Record<keyof EraseOptions, true>> = {
  mesh: true,
  types: true,
  table: true,
};

/**
 * The program of each device, without types and specs.
 *
 * @throws E_SPMD_TYPE with the first law that strict mode finds broken; E_MESH where there is no
 *   mesh
 */
export function erase(graph: Graph, options: EraseOptions = {}): ErasedProgram {
  checkKinds('erase', { graph: [graph, 'graph'] });
  checkOptions('erase', options, OPTIONS);
  const mesh = meshOf(graph, options);
  const table = options.table ?? builtinOperators();
  const { inputs } = inputTypes(graph, mesh, options.types ?? {});
  const active = mesh.dims.flatMap(({ name, size }) => (size > 1 ? [name] : []));
  const byAxis = inputs.map((types) =>
    mesh.names.map((axis): Known => types[active.indexOf(axis)]),
  );
  return eraseTypes({ graph, mesh, table, inputs: byAxis });
}

function meshOf(graph: Graph, { mesh }: EraseOptions): ReturnType<typeof parseMesh> {
  const text = mesh ?? graph.mesh;
  if (text !== undefined) return parseMesh(text);
  throw new ShardwrightError('E_MESH', `graph ${graph.name} names no mesh`, {
    hint: "give one: { mesh: 'dp=2,tp=4' }",
  });
}

/** One value on the way from a collective to its cause. */
export interface Cause {
  readonly node: string;
  readonly target: string;
  /** The type as JAX prints it. */
  readonly type: string;
  readonly because: string;
  readonly source?: string;
}

/**
 * Why a collective or cast is there: the value that it changes, back to the operator that gave it
 * its type, then the cast of the forward pass that a gradient answers.
 *
 * @param name node of the graph, or of a body as `body/node`
 * @throws E_REF for no such node, or one that is not a verb
 */
export function why(graph: Graph, name: string, options: EraseOptions = {}): readonly Cause[] {
  checkKinds('why', { graph: [graph, 'graph'] });
  if (typeof (name as unknown) !== 'string')
    throw wrongArgument('why', 'name', valueText(name), 'give the name of a node.');
  checkOptions('why', options, OPTIONS);
  const mesh = meshOf(graph, options);
  const { inputs } = inputTypes(graph, mesh, options.types ?? {});
  const typer = typeGraph(
    options.table ?? builtinOperators(),
    graph,
    typedAxes(mesh, () => 'strict'),
    inputs,
  );
  const parts = name.split('/');
  const of = parts
    .slice(0, -1)
    .reduce<Graph | undefined>(
      (at, body) => (at === undefined ? at : getOwn(at.subgraphs, body)),
      graph,
    );
  const verb = of?.nodes.find((node) => node.name === parts.at(-1));
  const verbs = (of ?? graph).nodes
    .filter(({ target }) => spmdName(target) !== undefined)
    .map((n) => n.name);
  if (of === undefined || verb === undefined || spmdName(verb.target) === undefined)
    throw new ShardwrightError('E_REF', `there is no collective or cast '${name}'`, {
      hint:
        verbs.length === 0 ? 'the graph has none' : `verbs are ${verbs.slice(0, 12).join(', ')}`,
    });
  return chain(typer, of, verb);
}

function chain(typer: Typer, graph: Graph, verb: Node): Cause[] {
  const [, axes] = verb.args;
  const [first] = typeof axes === 'string' ? verbAxes(axes) : [];
  const axis = typer.axes.findIndex(({ name }) => name === first);
  const text = (at: number): string => (typeof verb.args[at] === 'string' ? verb.args[at] : '?');
  const words = [
    spmdName(verb.target) === 'permute' ? 'permute' : `${text(3)}→${text(4)}`,
    text(1),
  ];
  const from = verb.meta.of === undefined ? 'as written' : `the gradient of %${verb.meta.of}`;
  const out: Cause[] = [causeOf(typer, graph, verb, `${words.join(' on ')}, ${from}`)];
  const typeOn = (name: string): Known => {
    const typed = typer.types.get(graph)?.get(name);
    return typed === undefined || isTuple(typed) ? undefined : typed[axis];
  };
  let at: string | undefined =
    verb.args[0] !== undefined && isRef(verb.args[0]) ? verb.args[0].name : undefined;
  while (at !== undefined) {
    const node = graph.nodes.find((n) => n.name === at);
    if (node === undefined) break;
    const own = typeOn(node.name);
    const operands: string[] = [];
    eachOperand(node, (name) => operands.push(name));
    const same = operands.find((name) => typeOn(name) === own);
    const made = operands.map((name) => `%${name}: ${typer.textOf(graph, name)}`).join(', ');
    if (node.kind === 'placeholder' || same === undefined || node.target === LOCAL_MAP) {
      const stated = node.kind === 'placeholder' || spmdName(node.target) !== undefined;
      out.push(
        causeOf(
          typer,
          graph,
          node,
          stated ? `is ${String(own)} as stated` : `makes ${String(own)} of ${made}`,
        ),
      );
      break;
    }
    out.push(causeOf(typer, graph, node, `passes ${String(own)} of %${same} on`));
    at = same;
  }
  return out;
}

function causeOf(typer: Typer, graph: Graph, node: Node, because: string): Cause {
  const { source } = node.meta;
  return {
    node: node.name,
    target: node.target,
    type: typer.textOf(graph, node.name),
    because,
    ...defined({ source }),
  };
}
