/**
 * Reads pins from the types that a program with verbs of typed code states: the placement of every
 * value whose type is known on all mesh dims. For a program without violations of strict mode these
 * are all values, so that its plan runs the collectives that it states and no others; for any other
 * program, those of inputs and of redistributed values.
 */
import type { Graph, Node } from '../../graph/types.ts';
import { isRef } from '../../graph/value.ts';
import { inputTypes } from '../../local-spmd/check.ts';
import { typedAxes, typeGraph } from '../../local-spmd/type-graph.ts';
import { isTuple, type Known } from '../../local-spmd/typed.ts';
import { parseMesh } from '../../mesh/devices/mesh.ts';
import { chunksOf } from '../../mesh/local-types/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { spmdName } from '../../ops/spmd/operators.ts';
import type { Pin } from '../request/request.ts';

interface TypedPins {
  readonly pins: readonly Pin[];
  /** The placements of the values that a strict program returns, by position in `Graph.outputs`. */
  readonly outputs: readonly { readonly output: number; readonly spec: string }[];
}

const NONE: TypedPins = { pins: [], outputs: [] };

/** Pins of the top level of a program; none where it states no type, or speaks of another mesh. */
export function typedPins(program: Graph, meshText: string, table: OperatorTable): TypedPins {
  const stated = program.nodes.filter(({ target }) => STATEMENTS.has(spmdName(target) ?? ''));
  if (stated.length === 0) return NONE;
  const mesh = parseMesh(meshText);
  const own = program.mesh === undefined ? mesh : parseMesh(program.mesh);
  if (own.text !== mesh.text) return NONE;
  const axes = typedAxes(mesh, () => 'strict');
  const typer = typeGraph(table, program, axes, inputTypes(program, mesh, {}).inputs);
  const types = typer.types.get(program);
  const specOf = (name: string): string | undefined => {
    const typed = types?.get(name);
    if (typed === undefined || isTuple(typed)) return undefined;
    const words = mesh.names.map((axis) =>
      placementText(
        typed[axes.findIndex((known) => known.name === axis)],
        mesh.sizes[mesh.indexOf(axis)],
      ),
    );
    return words.every((word) => word !== undefined) ? words.join('') : undefined;
  };
  const isStrict = typer.violations.length === 0;
  const byName = new Map(
    stated.flatMap((node): [string, string][] => {
      const [x] = node.args;
      return spmdName(node.target) === 'assert_type' && x !== undefined && isRef(x)
        ? [[x.name, node.name]]
        : [];
    }),
  );
  const pinned = (node: Node): string | undefined => {
    // An input that `assertType` gives its type keeps it.
    if (node.kind === 'placeholder')
      return byName.has(node.name)
        ? specOf(byName.get(node.name) ?? '')
        : isStrict
          ? specOf(node.name)
          : undefined;
    if (node.kind !== 'call' || node.type.kind !== 'tensor') return undefined;
    return isStrict || stated.includes(node) ? specOf(node.name) : undefined;
  };
  const pins = program.nodes.flatMap((node): Pin[] => {
    const spec = pinned(node);
    return spec === undefined ? [] : [{ node: node.name, spec }];
  });
  const outputs = program.outputs.flatMap(({ value, role }, output) => {
    const spec = isStrict && role === 'output' && value !== null ? specOf(value) : undefined;
    return spec === undefined ? [] : [{ output, spec }];
  });
  return { pins, outputs };
}

const STATEMENTS: ReadonlySet<string> = new Set(['assert_type', 'redistribute', 'out_partial']);

/**
 * Data of a type on a mesh dim; undefined where a placement does not say it, or nothing is known.
 */
function placementText(type: Known, size: number): string | undefined {
  if (size === 1) return 'R';
  if (type === 'I' || type === 'R') return 'R';
  if (type === 'P') return 'P(sum)';
  return type === undefined || type === 'number' || type === 'V' || chunksOf(type)?.chunks !== 1
    ? undefined
    : type;
}
