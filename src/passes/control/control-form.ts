/**
 * Control-flow calls by their parts, as passes read them. The forms are those of
 * `graph/control.ts`.
 */

import { internalError } from '../../errors.ts';
import { placeholdersOf, scanPositions } from '../../graph/control.ts';
import type { Arg, Graph, Node } from '../../graph/types.ts';
import { getOwn, isGraphRef, isList } from '../../graph/value.ts';

export interface BranchForm {
  readonly kind: 'branch';
  /** The deciding value; null for a plain call. */
  readonly test: Arg;
  readonly bodies: readonly { readonly name: string; readonly graph: Graph }[];
  readonly operands: readonly Arg[];
}

export interface WhileForm {
  readonly kind: 'while';
  readonly condition: Graph;
  readonly step: Graph;
  readonly carry: readonly Arg[];
  readonly captured: readonly Arg[];
  /**
   * Trips after which the loop ends, as the program states; a count that was worked out (`trips`)
   * is none.
   */
  readonly maxTrips?: number;
}

/** `scan`, or `map`: a scan without carry. */
export interface ScanForm {
  readonly kind: 'scan';
  readonly name: string;
  readonly step: Graph;
  readonly init: readonly Arg[];
  readonly xs: readonly Arg[];
  readonly captured: readonly Arg[];
  readonly reverse: boolean;
  readonly checkpoint: boolean;
}

export type ControlForm = BranchForm | WhileForm | ScanForm;

/**
 * The parts of a control-flow call; undefined for any other call and for wrappers of foreign
 * graphs.
 */
export function controlForm(
  node: Node,
  subgraphs: Readonly<Record<string, Graph>>,
): ControlForm | undefined {
  if (node.kind !== 'call') return undefined;
  const { args, kwargs } = node;
  const body = (arg: Arg | undefined): { name: string; graph: Graph } => {
    const graph = arg !== undefined && isGraphRef(arg) ? getOwn(subgraphs, arg.name) : undefined;
    if (graph === undefined || arg === undefined || !isGraphRef(arg))
      throw internalError(`${node.name} has no body`);
    return { name: arg.name, graph };
  };
  const list = (at: number): readonly Arg[] => {
    const arg: Arg | undefined = args[at];
    return arg !== undefined && isList(arg) ? arg : [];
  };
  switch (node.target) {
    case 'call':
      return { kind: 'branch', test: null, bodies: [body(args[0])], operands: list(1) };
    case 'cond':
      return {
        kind: 'branch',
        test: args[0],
        bodies: [body(args[1]), body(args[2])],
        operands: list(3),
      };
    case 'case':
      return { kind: 'branch', test: args[0], bodies: list(1).map(body), operands: list(2) };
    case 'while_loop': {
      const stated = getOwn(kwargs, 'max_trips');
      const maxTrips = typeof stated === 'number' ? { maxTrips: stated } : {};
      const [condition, step] = [body(args[0]).graph, body(args[1]).graph];
      return { kind: 'while', condition, step, carry: list(2), captured: list(3), ...maxTrips };
    }
    case 'scan':
    case 'map':
    case 'map_impl': {
      const { name, graph } = body(args[0]);
      const at = scanPositions(node.target);
      return {
        kind: 'scan',
        name,
        step: graph,
        init: at.init === undefined ? [] : list(at.init),
        xs: list(at.xs),
        captured: list(at.captured),
        reverse: getOwn(kwargs, 'reverse') === true,
        checkpoint: getOwn(kwargs, 'checkpoint') === true,
      };
    }
    default:
      return undefined;
  }
}

/**
 * Number of trips of a scan in a graph with fixed sizes; undefined where its length is symbolic.
 */
export function scanLength(
  node: Node,
  { init, step }: ScanForm,
  typeOf: (name: string) => Node['type'],
): number | undefined {
  const xs = node.args[scanPositions(node.target).xs];
  const first = xs !== undefined && isList(xs) ? xs[0] : undefined;
  if (
    first !== undefined &&
    first !== null &&
    typeof first === 'object' &&
    'kind' in first &&
    first.kind === 'value'
  ) {
    const type = typeOf(first.name);
    const dim = type.kind === 'tensor' ? type.shape[0] : undefined;
    return typeof dim === 'number' ? dim : dim?.example;
  }
  const stated = getOwn(node.kwargs, 'length');
  if (typeof stated === 'number') return stated;
  throw internalError(
    `${node.name}: a scan of ${init.length} values over @${step.name} has no length`,
  );
}

/** Names of a body's inputs, in order. */
export function inputNames(body: Graph): string[] {
  return placeholdersOf(body).map((node) => node.name);
}
