/**
 * Derives the types of all values of a graph on a mesh, as JAX prints them too, and lists every law
 * that is broken. It repairs none.
 */
import { checkKinds } from '../arguments.ts';
import { checkOptions, ShardwrightError } from '../errors.ts';
import { placeholdersOf } from '../graph/control.ts';
import type { Graph } from '../graph/types.ts';
import { parseMesh } from '../mesh/devices/mesh.ts';
import type { LocalType } from '../mesh/local-types/types.ts';
import { builtinOperators } from '../ops/builtin.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { statedInputs } from './check.ts';
import type { Meaning } from './operator-types.ts';
import { typedAxes, typeGraph } from './type-graph.ts';
import { isTuple, type Known, typeIn, type Violation } from './typed.ts';
import type { SpecWord } from './words.ts';

/** On which mesh, with which input types and in which sense a program is typed. */
export interface CheckTypesOptions {
  /** `strict` (default): operators act on whole values. `manual`: on one device's pieces. */
  readonly mode?: Meaning;
  /** `dp=2,tp=4`; default the mesh of the graph. */
  readonly mesh?: string;
  /** Types of inputs by role name or node name; an input without one gets it from `assertType`. */
  readonly types?: Readonly<Record<string, SpecWord>>;
  readonly table?: OperatorTable;
}

/** The local type of every value of a program, and what violates the rules of types. */
export interface TypedGraph {
  /**
   * By node name; values of bodies as `body/name`. Axes of size 1 and values with several results
   * have none.
   */
  readonly types: ReadonlyMap<string, LocalType>;
  /** `f32[4,8@dp,16]{U:tp}` by the same names. */
  readonly texts: ReadonlyMap<string, string>;
  readonly violations: readonly Violation[];
}

/**
 * Types a graph and everything in it. Inside of `local_map` a cut means pieces, whatever the mode.
 *
 * @throws E_MESH where there is no mesh; E_SPMD_TYPE for a type of an input that does not fit;
 *   E_REF for one of no input
 */
export function checkTypes(graph: Graph, options: CheckTypesOptions = {}): TypedGraph {
  checkKinds('checkTypes', { graph: [graph, 'graph'] });
  checkOptions('checkTypes', options, { mode: true, mesh: true, types: true, table: true });
  const text = options.mesh ?? graph.mesh;
  if (text === undefined)
    throw new ShardwrightError(
      'E_MESH',
      `graph ${graph.name} names no mesh to type its values on`,
      {
        hint: 'give one: --mesh dp=2,tp=4',
      },
    );
  const mesh = parseMesh(text);
  const meaning = options.mode ?? 'strict';
  const axes = typedAxes(mesh, () => meaning);
  const given = statedInputs(graph, mesh, options.types ?? {}, meaning === 'manual');
  const typer = typeGraph(
    options.table ?? builtinOperators(),
    graph,
    axes,
    placeholdersOf(graph).map(({ name }): readonly Known[] => {
      const types = given.get(name);
      return axes.map((axis) => (types === undefined ? undefined : (types.get(axis.name) ?? 'I')));
    }),
  );
  const types = new Map<string, LocalType>();
  const texts = new Map<string, string>();
  const walk = (of: Graph, prefix: string): void => {
    for (const [name, typed] of typer.types.get(of) ?? []) {
      if (isTuple(typed)) continue;
      types.set(`${prefix}${name}`, typer.localType(typed));
      texts.set(`${prefix}${name}`, typer.text(typeIn(of, name), typed));
    }
    for (const [name, body] of Object.entries(of.subgraphs)) walk(body, `${prefix}${name}/`);
  };
  walk(graph, '');
  return { types, texts, violations: typer.violations };
}
