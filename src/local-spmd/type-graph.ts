/**
 * Types a whole graph on a mesh from the types of its inputs. A tangent has the type of the
 * gradient of its output, so that joint graphs need no more types than forward ones.
 */
import { placeholdersOf } from '../graph/control.ts';
import { roleName } from '../graph/nodes.ts';
import type { Graph } from '../graph/types.ts';
import { isRef } from '../graph/value.ts';
import type { DeviceMesh } from '../mesh/devices/mesh.ts';
import { gradientType } from '../mesh/local-types/types.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { spmdName } from '../ops/spmd/operators.ts';
import type { Meaning } from './operator-types.ts';
import { isTuple, type Known, type TypedAxis } from './typed.ts';
import { Typer, type TyperOptions } from './typer.ts';

/** Axes of a mesh that values have types on: those of more than one device. */
export function typedAxes(mesh: DeviceMesh, meaningOf: (axis: string) => Meaning): TypedAxis[] {
  return mesh.dims.flatMap(({ name, size }) =>
    size > 1 ? [{ name, size, meaning: meaningOf(name) }] : [],
  );
}

/**
 * Types a graph.
 *
 * @param inputs one type for each placeholder and axis of `axes`; undefined where nothing is stated
 */
export function typeGraph(
  table: OperatorTable,
  graph: Graph,
  axes: readonly TypedAxis[],
  inputs: readonly (readonly Known[])[],
  { autoCast = false, ...rest }: TyperOptions = {},
): Typer {
  const options: TyperOptions = { autoCast, ...rest };
  const first = new Typer(table, axes, options);
  first.run(graph, inputs);
  const placeholders = placeholdersOf(graph);
  if (placeholders.every(({ meta }) => meta.role !== 'tangent')) return withGradients(first, graph);
  const types = first.types.get(graph);
  const dual = placeholders.map(({ meta }, i): readonly Known[] => {
    if (meta.role !== 'tangent') return inputs[i];
    const output = graph.outputs.find(
      ({ role, index }) => role === 'output' && index === meta.roleIndex,
    );
    const typed = types?.get(output?.value ?? '');
    if (typed === undefined || isTuple(typed)) return inputs[i];
    return typed.map(
      (type, a) =>
        inputs[i][a] ?? (type === undefined || type === 'number' ? type : gradientType(type)),
    );
  });
  const second = new Typer(table, axes, options);
  second.run(graph, dual);
  return withGradients(second, graph);
}

/** The type that the gradient of an input is owed on an axis. */
export function owedType(type: Known): Known {
  return type === undefined || type === 'number' ? type : gradientType(type);
}

/** An input whose type is stated by `assert_type` alone has that type from the start: the value. */
export function firstTyped(typer: Typer, graph: Graph, name: string): string {
  const typed = typer.types.get(graph)?.get(name);
  if (typed !== undefined && !isTuple(typed) && typed.some((type) => type !== undefined))
    return name;
  const stated = graph.nodes.find(
    ({ target, args: [x] }) =>
      spmdName(target) === 'assert_type' && x !== undefined && isRef(x) && x.name === name,
  );
  return stated?.name ?? name;
}

/** A gradient is of the type that its input says, where the whole of a value is spoken of. */
function withGradients(typer: Typer, graph: Graph): Typer {
  const types = typer.types.get(graph);
  for (const { value, role, of } of graph.outputs) {
    const input = placeholdersOf(graph).find((node) => roleName(node) === of);
    const node = graph.nodes.find(({ name }) => name === value);
    const made = types?.get(value ?? '');
    const own = types?.get(firstTyped(typer, graph, input?.name ?? ''));
    if (role !== 'grad' || node === undefined || made === undefined || own === undefined) continue;
    if (isTuple(made) || isTuple(own)) continue;
    typer.axes.forEach(({ meaning, name }, a) => {
      const owed = owedType(own[a]);
      const known = made[a] !== undefined && made[a] !== 'number' && owed !== undefined;
      if (meaning !== 'strict' || !known || made[a] === owed || owed === 'number') return;
      typer.violate(graph, node, a, {
        rule: `gradient ${String(made[a])}`,
        operands: [node.name],
        reason: `the gradient of ${of} is ${String(made[a])}, and ${of} is ${String(own[a])}`,
        fix: `redistribute(${node.name}, "${name}", ${String(made[a])}→${String(owed)})`,
      });
    });
  }
  return typer;
}
