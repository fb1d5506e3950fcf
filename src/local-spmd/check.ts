/**
 * Checks a program against the laws of a mode: what `auto`, `explicit`, `strict` or `manual`
 * forbids in it or does by itself, what strict mode would forbid, and where the meaning on one
 * device differs from that of the whole. Whether types can be stripped is found by doing it
 * (`simulate/strip.ts`).
 */
import { ShardwrightError } from '../errors.ts';
import { placeholdersOf } from '../graph/control.ts';
import { LOCAL_MAP, localMapCall } from '../graph/local-map.ts';
import { roleName } from '../graph/nodes.ts';
import type { Graph } from '../graph/types.ts';
import { getOwn, isRef } from '../graph/value.ts';
import { type DeviceMesh, parseMesh } from '../mesh/devices/mesh.ts';
import { readTypeSpec } from '../mesh/local-types/spec.ts';
import type { AxisType } from '../mesh/local-types/types.ts';
import { builtinOperators } from '../ops/builtin.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { spmdName } from '../ops/spmd/operators.ts';
import { type Advice, adviceFor } from './advice.ts';
import { type Mode, MODES } from './modes.ts';
import { typedAxes, typeGraph } from './type-graph.ts';
import type { ImplicitMove, Known, Violation } from './typed.ts';
import { type SpecWord, typeSpec } from './words.ts';

/** Under which mode, mesh and input types a program is checked. */
export interface CheckOptions {
  readonly mode: Mode;
  /** `dp=2,tp=4`; default the mesh of the graph. */
  readonly mesh?: string;
  /**
   * Types of inputs by role name or node name. Others have what `assertType` says, else they are I.
   */
  readonly types?: Readonly<Record<string, SpecWord>>;
  readonly table?: OperatorTable;
}

/** An operator whose result per device is not the piece of its result on the whole. */
export interface LocalNotGlobal {
  readonly node: string;
  readonly meshDim: string;
  readonly local: string;
  readonly global: string;
  readonly fix: string;
}

/** The laws of a program that a mode finds broken, and the casts that it inserts by itself. */
export interface ModeReport {
  readonly mode: Mode;
  readonly violations: readonly Violation[];
  readonly localNotGlobal: readonly LocalNotGlobal[];
  /** Redistributions that the mode makes without being told. */
  readonly implicit: readonly ImplicitMove[];
  /** Inputs that no type is stated of: they count as I. */
  readonly assumed: readonly string[];
  /** Where fewer collectives would do. */
  readonly advice: readonly Advice[];
}

/** A per-device program that ran on virtual devices, beside the program on one device. */
export interface StrippedRun {
  readonly of: 'program' | 'gradient';
  /** The sizes of the program, or smaller ones that stand for them. */
  readonly sizes: 'own' | 'reduced';
  readonly devices: number;
  readonly nodesCompared: number;
  readonly maxRelativeError: number;
  /** Collectives that ran, by kind. */
  readonly collectives: Readonly<Record<string, number>>;
}

/** The report of a mode on a program, and whether types can be stripped from it. */
export interface CheckReport extends ModeReport {
  /**
   * True if the program runs unchanged without its types: `strict` forbids nothing in it, and it
   * and its gradient ran so.
   */
  readonly eraseable: boolean;
  /** Refusals that its per-device form, or that of its gradient, met. */
  readonly refusals: readonly Violation[];
  /** The programs that ran; the gradient is missing where an operator has none. */
  readonly runs: readonly StrippedRun[];
}

/**
 * Checks the laws of a mode on a graph.
 *
 * @returns the report, and the laws that strict mode finds broken
 * @throws E_USAGE for no such mode; E_MESH where there is no mesh; E_SPMD_TYPE for a type of an
 *   input that does not fit
 */
export function checkMode(
  graph: Graph,
  options: CheckOptions,
): { readonly report: ModeReport; readonly strict: readonly Violation[] } {
  const { mode } = options;
  if (!MODES.includes(mode))
    throw new ShardwrightError('E_USAGE', `there is no mode '${String(mode)}'`, {
      hint: `modes are ${MODES.join(', ')}`,
    });
  const text = options.mesh ?? graph.mesh;
  if (text === undefined)
    throw new ShardwrightError('E_MESH', `graph ${graph.name} names no mesh to check it on`, {
      hint: 'give one: --mesh dp=2,tp=4',
    });
  const mesh = parseMesh(text);
  const table = options.table ?? builtinOperators();
  const { inputs, assumed } = inputTypes(graph, mesh, options.types ?? {});
  const run = (meaning: Mode | 'lint') =>
    typeGraph(
      table,
      graph,
      typedAxes(mesh, () => meaning),
      inputs,
    );
  const found = run(mode);
  const strict = mode === 'strict' ? found : run('strict');
  return {
    strict: strict.violations,
    report: {
      mode,
      violations: found.violations,
      localNotGlobal: mode === 'manual' ? lintOf(run('lint').violations) : regionLint(table, graph),
      implicit: found.implicit,
      assumed,
      advice: adviceFor(graph),
    },
  };
}

/**
 * Types of the inputs on the axes of more than one device. A region that reads an input says with
 * its spec how it is held.
 */
export function inputTypes(
  graph: Graph,
  mesh: DeviceMesh,
  stated: Readonly<Record<string, SpecWord>>,
): { inputs: (readonly Known[])[]; assumed: string[] } {
  const placeholders = placeholdersOf(graph);
  const given = statedInputs(graph, mesh, stated);
  const asserted = new Set(
    graph.nodes.flatMap(({ target, args: [x] }) =>
      spmdName(target) === 'assert_type' && x !== undefined && isRef(x) ? [x.name] : [],
    ),
  );
  const axes = mesh.dims.filter(({ size }) => size > 1).map(({ name }) => name);
  const assumed: string[] = [];
  const regions = regionInputs(graph);
  const inputs = placeholders.map(({ name, meta, type }): readonly Known[] => {
    if (type.kind !== 'tensor') return axes.map(() => 'number');
    const types = given.get(name);
    if (types === undefined) {
      if (asserted.has(name) || meta.role === 'tangent') return axes.map(() => undefined);
      const region = regions.get(name);
      if (region !== undefined) return axes.map((axis) => region.get(axis) ?? 'I');
      assumed.push(roleName({ name, meta }));
      return axes.map(() => 'I');
    }
    return axes.map((axis) => types.get(axis) ?? 'I');
  });
  return { inputs, assumed };
}

/**
 * Types that are stated of inputs, by node name and axis.
 *
 * @param pieces sizes are those of pieces, so that nothing need divide
 * @throws E_REF for a name of no input; E_SPMD_TYPE, with the input, for a type that does not fit
 *   it
 */
export function statedInputs(
  graph: Graph,
  mesh: DeviceMesh,
  stated: Readonly<Record<string, SpecWord>>,
  pieces = false,
): Map<string, ReadonlyMap<string, AxisType>> {
  const placeholders = placeholdersOf(graph);
  const names = new Set(placeholders.flatMap((node) => [node.name, roleName(node)]));
  const unknown = Object.keys(stated).find((name) => !names.has(name));
  if (unknown !== undefined)
    throw new ShardwrightError('E_REF', `graph ${graph.name} has no input '${unknown}' to type`, {
      hint: `inputs are ${[...names].slice(0, 12).join(', ')}`,
    });
  return new Map(
    placeholders.flatMap((node) => {
      const { name, type } = node;
      const spec = getOwn(stated, roleName(node)) ?? getOwn(stated, name);
      if (spec === undefined || type.kind !== 'tensor') return [];
      const shape = type.shape.map((size) =>
        pieces ? mesh.size : typeof size === 'number' ? size : size.example,
      );
      try {
        return [[name, readTypeSpec(typeSpec(spec), mesh, mesh.names, shape)] as const];
      } catch (error) {
        if (!(error instanceof ShardwrightError)) throw error;
        throw new ShardwrightError(
          error.code,
          `type of ${roleName(node)}: ${error.message}`,
          error.details,
        );
      }
    }),
  );
}

/**
 * Types of values that regions read, by the spec of the first one, by axis; on axes of a region
 * inside of it by that one's.
 */
function regionInputs(graph: Graph): Map<string, Map<string, AxisType>> {
  const found = new Map<string, Map<string, AxisType>>();
  for (const node of graph.nodes) {
    if (node.target !== LOCAL_MAP) continue;
    const call = localMapCall(node);
    const body = getOwn(graph.subgraphs, call.body);
    const inner = body === undefined ? new Map<string, never>() : regionInputs(body);
    const names = body === undefined ? [] : placeholdersOf(body).map(({ name }) => name);
    call.operands.forEach((operand, i) => {
      if (isRef(operand) && !found.has(operand.name))
        found.set(
          operand.name,
          new Map([
            ...(inner.get(names[i]) ?? []),
            ...call.axes.map(({ name }, a) => [name, call.inSpecs[i][a] as AxisType] as const),
          ]),
        );
    });
  }
  return found;
}

const WHOLE: readonly [RegExp, string, string][] = [
  [/^sum over S$/, 'one sum for each rank', 'the sum over all ranks: addends of it'],
  [
    /^mean over /,
    'one mean for each rank',
    'the mean over all ranks, of which these are not addends',
  ],
  [/not passed on$/, 'one result for each piece', 'one result over the whole dim'],
  [/^nonlinear\(P\)$/, 'the function of an addend', 'the function of the sum'],
  [/^P with P$/, 'the product of addends', 'the product of the sums'],
  [/^P with /, 'counted once for each rank', 'counted once'],
  [/ with /, 'pieces of other rows meet', 'rows of the same number meet'],
];

function lintOf(violations: readonly Violation[]): LocalNotGlobal[] {
  return violations.flatMap(({ node, meshDim, rule, fix }): LocalNotGlobal[] => {
    const found = WHOLE.find(([pattern]) => pattern.test(rule));
    return found === undefined || /^[IR] with/.test(rule)
      ? []
      : [{ node, meshDim, local: found[1], global: found[2], fix }];
  });
}

/**
 * Regions whose pieces are known to be cuts: where their operators mean something else than on the
 * whole.
 */
function regionLint(table: OperatorTable, graph: Graph): LocalNotGlobal[] {
  return graph.nodes.flatMap((node): LocalNotGlobal[] => {
    if (node.target !== LOCAL_MAP) return [];
    const call = localMapCall(node);
    const body = getOwn(graph.subgraphs, call.body);
    if (body === undefined) return [];
    const active = call.axes.flatMap((axis, a) => (axis.size > 1 ? [{ ...axis, a }] : []));
    const axes = active.map(({ name, size }) => ({ name, size, meaning: 'lint' as const }));
    const inputs = call.inSpecs.map((spec) =>
      active.map(({ a }): Known => (spec[a] === 'I' ? 'R' : (spec[a] as AxisType))),
    );
    return lintOf(typeGraph(table, body, axes, inputs).violations);
  });
}
