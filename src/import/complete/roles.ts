/** Applies the roles that a user gives to inputs to an imported graph. */

import { nonEmpty } from '../../defined.ts';
import { ShardwrightError, suggestion } from '../../errors.ts';
import { lintGraph } from '../../graph/lint.ts';
import type { Graph, Node, NodeMeta, Role } from '../../graph/types.ts';
import { sameType, typeText, without } from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';
import { withOneGradient } from './tie-gradients.ts';
import { notesOfTied } from './tie-notes.ts';

/** Roles that a user may give to an input. */
export const GIVABLE_ROLES = [
  'parameter',
  'buffer',
  'constant',
  'input',
] as const satisfies readonly Role[];
type GivableRole = (typeof GIVABLE_ROLES)[number];

export interface RoleCorrections {
  /** Role by name of the input: its role name or its name in the graph. */
  readonly roles?: Readonly<Record<string, GivableRole>>;
  /** Pairs of parameters that are one tensor (`--tie a=b`). */
  readonly ties?: readonly (readonly [string, string])[];
}

/**
 * Corrects the roles of inputs and ties parameters. Tied parameters count once and are to be placed
 * the same way (`Graph.ties`); pairs that share a name become one group.
 *
 * @throws E_REF for an unknown name, E_TYPE for a tie of unequal tensors or of no parameter; each
 *   names the correction as a flag
 */
export function applyRoles(graph: Graph, corrections: RoleCorrections): Graph {
  const nodes = withRoles(graph, corrections.roles ?? {});
  const ties = withTies({ ...graph, nodes }, corrections.ties ?? []);
  const tied = withOneGradient({
    ...without(graph, 'ties'),
    nodes,
    ...nonEmpty({ ties }),
  });
  const result: Graph =
    graph.notes === undefined ? tied : { ...tied, notes: notesOfTied(graph, tied) };
  lintGraph(result);
  return result;
}

/** The nodes with the roles that the user gives. */
function withRoles(
  graph: Graph,
  corrections: NonNullable<RoleCorrections['roles']>,
): readonly Node[] {
  const roles = new Map<string, GivableRole>();
  for (const [name, role] of Object.entries(corrections)) {
    const flag = `--role ${name}=${role}`;
    const node = inputNamed(graph, name, flag);
    if (node.meta.role === 'tangent')
      throw new ShardwrightError(
        'E_TYPE',
        `${flag}: '${name}' is the gradient of an output and keeps that role`,
        {
          node: node.name,
          hint: 'leave it out',
        },
      );
    if (node.type.kind !== 'tensor')
      throw new ShardwrightError(
        'E_TYPE',
        `${flag}: '${name}' is ${typeText(node.type)}, which cannot have the role '${role}'`,
        {
          node: node.name,
          hint: 'name a tensor',
        },
      );
    roles.set(node.name, role);
  }
  return graph.nodes.map((node) => {
    const role = roles.get(node.name);
    return role === undefined || role === node.meta.role
      ? node
      : { ...node, meta: stated(node.meta, role) };
  });
}

/** The groups of tied parameters, with the pairs that the user ties. */
function withTies(
  graph: Graph,
  pairs: NonNullable<RoleCorrections['ties']>,
): NonNullable<Graph['ties']> {
  const parameters = new Set(
    graph.nodes.flatMap(({ meta }) => (meta.role === 'parameter' ? [meta.roleName] : [])),
  );
  const groups = (graph.ties ?? []).map((group) => group.filter((name) => parameters.has(name)));
  for (const [a, b] of pairs) {
    const flag = `--tie ${a}=${b}`;
    const named = (name: string): Node => parameter(inputNamed(graph, name, flag), flag);
    join(groups, named(a), named(b), flag);
  }
  return ordered(
    groups.filter((group) => group.length > 1),
    graph.nodes,
  );
}

/** An input by its role name, or by its name in the graph. */
function inputNamed(graph: Graph, name: string, flag: string): Node {
  const inputs = graph.nodes.filter((node) => node.kind === 'placeholder');
  const found =
    inputs.find((node) => node.meta.roleName === name) ?? inputs.find((node) => node.name === name);
  if (found !== undefined) return found;
  const known = inputs.flatMap((node) => [
    node.name,
    ...(node.meta.roleName !== undefined ? [node.meta.roleName] : []),
  ]);
  throw new ShardwrightError('E_REF', `${flag}: there is no input '${name}'`, {
    hint: suggestion(name, [...new Set(known)], 'inputs'),
    ...(graph.name !== '' ? { path: graph.name } : {}),
  });
}

function stated(meta: NodeMeta, role: GivableRole): NodeMeta {
  return { ...without(meta, 'inferred'), role };
}

function parameter(node: Node, flag: string): Node {
  if (node.meta.role !== 'parameter')
    throw new ShardwrightError(
      'E_TYPE',
      `${flag}: '${node.meta.roleName}' is not a parameter but ${node.meta.role}; only ` +
        'parameters can be tied',
      {
        node: node.name,
        hint: `--role ${node.meta.roleName}=parameter makes it one`,
      },
    );
  return node;
}

function join(groups: string[][], a: Node, b: Node, flag: string): void {
  if (!sameType(a.type, b.type))
    throw new ShardwrightError(
      'E_TYPE',
      `${flag}: '${a.meta.roleName}' is ${typeText(a.type)}, '${b.meta.roleName}' is ` +
        `${typeText(b.type)}; tied parameters have one type`,
      { node: b.name, hint: 'tie parameters of equal shape and dtype' },
    );
  const names = [a.meta.roleName!, b.meta.roleName!];
  if (names[0] === names[1]) return;
  const touched = groups.filter((group) => group.some((name) => names.includes(name)));
  const merged = [...new Set([...touched.flat(), ...names])];
  for (const group of touched) groups.splice(groups.indexOf(group), 1);
  groups.push(merged);
}

/** Members in the order of the placeholders, groups by their first member. */
function ordered(groups: readonly string[][], nodes: readonly Node[]): string[][] {
  const position = new Map<string, number>();
  nodes.forEach((node, i) => {
    if (node.kind === 'placeholder' && node.meta.roleName !== undefined)
      position.set(node.meta.roleName, i);
  });
  const at = (name: string): number => position.get(name) ?? -1;
  const sorted = groups.map((group) => [...group].sort((a, b) => at(a) - at(b)));
  return sorted.sort((a, b) => at(itemAt(a, 0)) - at(itemAt(b, 0)));
}
