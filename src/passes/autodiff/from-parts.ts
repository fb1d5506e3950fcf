/** Joins AOTAutograd's separate forward and backward graphs into one joint graph. */

import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError, suggestion } from '../../errors.ts';
import { lintGraph } from '../../graph/lint.ts';
import { freeKey, NameSet } from '../../graph/names.ts';
import { linePosition, roleName } from '../../graph/nodes.ts';
import { withPhases } from '../../graph/phases.ts';
import type { Arg, Graph, Node, NodeMeta, Output } from '../../graph/types.ts';
import { isGraphRef, isList, mapOperands, sameType, setOwn, typeText } from '../../graph/value.ts';

/**
 * Joins the forward and backward graphs that AOTAutograd compiles apart into the joint graph that
 * it cut.
 *
 * The forward graph returns the user's outputs and then the values that the backward graph saves;
 * the backward graph takes those, by name, and one tangent per differentiable output, in order, and
 * returns one gradient or none per forward input. Values that the backward graph recomputes stay,
 * under a name of their own where the forward graph has the name too. A forward input with a
 * gradient counts as a parameter where its role was not stated.
 *
 * @throws E_REF for a saved value that the forward graph does not have; E_TYPE where types differ,
 *   or the backward graph does not return one gradient per input of the forward graph
 */
export function joinForwardBackward(forward: Graph, backward: Graph): Graph {
  checkKinds('joinForwardBackward', {
    forward: [forward, 'graph'],
    backward: [backward, 'graph'],
  });
  const inputs = forward.nodes.filter(isPlaceholder);
  const taken = backward.nodes.filter(isPlaceholder);
  const tangents = taken.filter((node) => node.meta.role === 'tangent');
  if (backward.outputs.length !== inputs.length)
    throw new ShardwrightError(
      'E_TYPE',
      `the backward graph returns ${backward.outputs.length} gradients, the forward graph ` +
        `has ${inputs.length} inputs`,
      {
        path: backward.name,
        hint: 'give the two halves of one compilation; the forward graph first',
      },
    );
  const names = new Names(forward);
  for (const node of taken) {
    if (node.meta.role !== 'tangent') matchSaved(node, forward);
    else names.add(node.name);
  }
  const { subgraphs, bodies } = bothBodies(forward, backward);
  const calls = backward.nodes
    .filter((node) => !isPlaceholder(node))
    .map((node) => names.moved(withBodies(node, bodies)));
  const gradients = inputs.map((_, i) => {
    const { value } = backward.outputs[i];
    return value === null ? null : names.of(value);
  });
  // User outputs come first; what is saved, last.
  const outputs = forward.outputs.slice(
    0,
    forward.outputs.length - (taken.length - tangents.length),
  );
  const joined: Graph = {
    ...forward,
    nodes: [
      ...inputs.map((node, i) => asParameter(node, gradients[i] !== null)),
      ...tangents.map((node) => names.moved(node)),
      ...forward.nodes.filter((node) => !isPlaceholder(node)),
      ...calls,
    ],
    outputs: [
      ...outputs,
      ...inputs.map((node, i): Output => ({
        role: 'grad',
        of: roleName(node),
        value: gradients[i],
      })),
    ],
    subgraphs,
  };
  lintGraph(joined);
  return withPhases(joined);
}

/** The bodies of both graphs, and the names that those of the backward graph have there. */
function bothBodies(
  forward: Graph,
  backward: Graph,
): {
  readonly subgraphs: Readonly<Record<string, Graph>>;
  readonly bodies: ReadonlyMap<string, string>;
} {
  const bodies = new Map<string, string>();
  const subgraphs: Record<string, Graph> = { ...forward.subgraphs };
  for (const [name, body] of Object.entries(backward.subgraphs)) {
    const own = freeKey(subgraphs, name);
    bodies.set(name, own);
    setOwn(subgraphs, own, body);
  }
  return { subgraphs, bodies };
}

function isPlaceholder(node: Node): boolean {
  return node.kind === 'placeholder';
}

/** A saved value is a forward value of the same name and type. */
function matchSaved(saved: Node, forward: Graph): void {
  const source = forward.nodes.find((node) => node.name === saved.name);
  if (source === undefined)
    throw new ShardwrightError(
      'E_REF',
      `the backward graph takes '${saved.name}', which the forward graph does not have`,
      {
        node: saved.name,
        ...defined({ position: linePosition(saved.meta.line) }),
        hint: suggestion(
          saved.name,
          forward.nodes.map((node) => node.name),
          'values of the forward graph',
        ),
      },
    );
  if (!sameType(source.type, saved.type))
    throw new ShardwrightError(
      'E_TYPE',
      `'${saved.name}' is ${typeText(source.type)} in the forward graph and ` +
        `${typeText(saved.type)} in the backward graph`,
      { node: saved.name, hint: 'give the two halves of one compilation' },
    );
}

function asParameter(node: Node, hasGradient: boolean): Node {
  if (node.meta.role !== 'input' || node.meta.inferred !== true || !hasGradient) return node;
  const meta: NodeMeta = { ...node.meta, role: 'parameter' };
  return { ...node, meta };
}

function withBodies(node: Node, bodies: ReadonlyMap<string, string>): Node {
  if (bodies.size === 0) return node;
  const map = (arg: Arg): Arg => {
    if (isList(arg)) return arg.map(map);
    return isGraphRef(arg) ? { kind: 'graph', name: bodies.get(arg.name) ?? arg.name } : arg;
  };
  const target = node.kind === 'get_attr' ? (bodies.get(node.target) ?? node.target) : node.target;
  const kwargs: Record<string, Arg> = {};
  for (const [key, arg] of Object.entries(node.kwargs)) setOwn(kwargs, key, map(arg));
  return { ...node, target, args: node.args.map(map), kwargs };
}

/**
 * Names of backward values that avoid the forward ones: a saved value keeps its name, a new one
 * gets a free one.
 */
class Names {
  private readonly used: NameSet;
  private readonly renamed = new Map<string, string>();

  constructor(forward: Graph) {
    this.used = new NameSet(forward.nodes.map((node) => node.name));
  }

  of(name: string): string {
    return this.renamed.get(name) ?? name;
  }

  add(name: string): string {
    const free = this.used.take(name);
    if (free !== name) this.renamed.set(name, free);
    return free;
  }

  /** The node under its free name, its operands under theirs. */
  moved(node: Node): Node {
    if (node.kind === 'placeholder')
      return { ...node, name: this.of(node.name), target: this.of(node.name) };
    const operands = mapOperands(node, (name) => this.of(name));
    return { ...operands, name: this.add(node.name) };
  }
}
