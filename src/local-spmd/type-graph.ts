/**
 * Types of a whole program. In: a graph, a mesh, types of its inputs. Out: the typer after its run.
 * A tangent has the type of the gradient of the output that it belongs to, so that joint graphs
 * need no more types than forward ones.
 */
import { placeholdersOf } from '../graph/control.ts';
import type { Graph } from '../graph/types.ts';
import type { DeviceMesh } from '../mesh/devices/mesh.ts';
import { gradientType } from '../mesh/local-types/types.ts';
import type { OperatorTable } from '../ops/record/table.ts';
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
  if (placeholders.every(({ meta }) => meta.role !== 'tangent')) return first;
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
  return second;
}
