/**
 * Tells whether types can be stripped from a program by doing it: its per-device form and that of
 * its gradient are written, and run on virtual devices with the numbers of one device. Large
 * programs run at reduced sizes.
 */
import { checkKinds } from '../arguments.ts';
import { defined } from '../defined.ts';
import { checkOptions, ShardwrightError } from '../errors.ts';
import type { Graph } from '../graph/types.ts';
import {
  checkMode,
  type CheckOptions,
  type CheckReport,
  type StrippedRun,
} from '../local-spmd/check.ts';
import type { Violation } from '../local-spmd/typed.ts';
import { erase } from '../lower/typed/erased.ts';
import { builtinOperators } from '../ops/builtin.ts';
import { elements } from '../ops/record/record.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { jointGraph } from '../passes/autodiff/joint.ts';
import { atExampleSizes } from '../passes/sizes/fix-sizes.ts';
import { reduced, refuseUnevaluated } from './reduced.ts';
import { verifyProgram } from './verify.ts';

/**
 * Checks a graph: what a mode forbids in it, and whether its types can be stripped, which is tried.
 *
 * @throws E_USAGE for no such mode; E_MESH where there is no mesh; E_SPMD_TYPE for a type of an
 *   input that does not fit
 */
export function check(graph: Graph, options: CheckOptions): CheckReport {
  checkKinds('check', { graph: [graph, 'graph'] });
  checkOptions('check', options, { mode: true, mesh: true, types: true, table: true });
  const { report, strict } = checkMode(graph, options);
  const { runs, refusals } =
    strict.length > 0 ? { runs: [], refusals: [] } : stripped(atExampleSizes(graph), options);
  return { ...report, eraseable: strict.length === 0 && refusals.length === 0, refusals, runs };
}

/**
 * The obstacles to stripping types: laws that strict mode finds broken, each node and axis with
 * the cast that solves it, else what its per-device form or that of its gradient met; empty for a
 * program that erases.
 */
export function eraseable(
  graph: Graph,
  options: Omit<CheckOptions, 'mode'> = {},
): readonly Violation[] {
  checkKinds('eraseable', { graph: [graph, 'graph'], options: [options, 'record'] });
  const { violations, refusals } = check(graph, { ...options, mode: 'strict' });
  return [...violations, ...refusals];
}

/** Numbers of all values on all devices up to which a program runs at its own sizes. */
const MOST_NUMBERS = 2 ** 20;

function stripped(graph: Graph, options: CheckOptions): Pick<CheckReport, 'runs' | 'refusals'> {
  const table = options.table ?? builtinOperators();
  const runs: StrippedRun[] = [];
  const refusals: Violation[] = [];
  const attempt = (of: StrippedRun['of'], program: () => Graph | undefined): void => {
    try {
      const made = program();
      if (made !== undefined) runs.push(run(of, made, table, options, refusals));
    } catch (error) {
      if (!(error instanceof ShardwrightError)) throw error;
      refusals.push(refusal(of, error));
    }
  };
  attempt('program', () => graph);
  attempt('gradient', () => gradientOf(graph, table));
  return { runs, refusals };
}

/** Forward and backward of a program; undefined where it has both, or no gradient. */
function gradientOf(graph: Graph, table: OperatorTable): Graph | undefined {
  const isJoint =
    graph.outputs.some(({ role }) => role === 'grad') ||
    graph.nodes.some(({ meta }) => meta.role === 'tangent' || meta.phase === 'backward');
  if (isJoint) return undefined;
  try {
    const joint = jointGraph(graph, { wrt: 'all', table });
    return joint.outputs.some(({ role, value }) => role === 'grad' && value !== null)
      ? joint
      : undefined;
  } catch (error) {
    // A program may be made for inference alone.
    if (error instanceof ShardwrightError && WITHOUT_GRADIENT.has(error.code)) return undefined;
    throw error;
  }
}

const WITHOUT_GRADIENT: ReadonlySet<string> = new Set(['E_NO_VJP', 'E_GRAD_WHILE', 'E_MUTATION']);

function run(
  of: StrippedRun['of'],
  graph: Graph,
  table: OperatorTable,
  options: CheckOptions,
  refusals: Violation[],
): StrippedRun {
  const { mesh, types } = options;
  const given = { table, ...defined({ mesh }), ...(types && { types }) };
  refuseUnevaluated(graph, table);
  const own = erase(graph, given);
  const numbers = own.values.reduce((sum, { shape }) => sum + elements(shape), 0) * own.mesh.size;
  const small = numbers > MOST_NUMBERS;
  const source = small ? reduced(graph, table, { meshSizes: own.mesh.sizes }).graph : graph;
  const program = small ? erase(source, given) : own;
  const found = verifyProgram(source, program, undefined, table);
  for (const { where, target, message } of found.mismatches)
    refusals.push({
      node: where,
      meshDim: '',
      rule: 'run on ranks',
      types: [],
      fix: 'this is a fault of shardwright: please report the program',
      message:
        (of === 'gradient' ? 'in the gradient, ' : '') +
        `${target ?? 'the value'} (%${where}) ${message}`,
    });
  const { devices, nodesCompared, maxRelativeError, collectives } = found;
  return {
    of,
    sizes: small ? 'reduced' : 'own',
    devices,
    nodesCompared,
    maxRelativeError,
    collectives,
  };
}

function refusal(of: StrippedRun['of'], error: ShardwrightError): Violation {
  const { node = '', hint = '' } = error.details;
  return {
    node,
    meshDim: '',
    rule: error.code,
    types: [],
    fix: hint,
    message: `${of === 'gradient' ? 'in the gradient, ' : ''}${error.message}`,
  };
}
