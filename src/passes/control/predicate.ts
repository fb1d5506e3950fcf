/**
 * Rewrites conditions and bounded loops into selections by `where`, and counts the work that is
 * wasted.
 */

import { checkKinds } from '../../arguments.ts';
import { placeholdersOf } from '../../graph/control.ts';
import { typesByName } from '../../graph/nodes.ts';
import type { Arg, Graph, Node, ValueRef, ValueType } from '../../graph/types.ts';
import { eachOperand, getOwn, isRef } from '../../graph/value.ts';
import { builtinOperators } from '../../ops/builtin.ts';
import { isFloating } from '../../ops/record/dtypes.ts';
import { bind } from '../../ops/record/infer.ts';
import type { OpWork } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { CallBuilder } from '../../ops/vjp/build.ts';
import { type BranchForm, controlForm, scanLength, type WhileForm } from './control-form.ts';
import { rewriteControl, type Site } from './rewrite-control.ts';

/** Options on the work of the branch that is not taken. */
export interface PredicateOptions {
  readonly table?: OperatorTable;
  /**
   * The value of floating operands on the untaken side; default 1. Integers become 0, truth values
   * stay.
   */
  readonly safeValue?: number;
}

/**
 * Work that a site does although the program would not need it; how much depends on what is
 * decided.
 */
interface Waste {
  /** The control-flow call that was replaced. */
  readonly node: string;
  readonly kind: 'cond' | 'while_loop';
  /**
   * `cond`: the cheaper branch, when the more expensive is taken. `while_loop`: nothing, when it
   * runs all its trips.
   */
  readonly least: OpWork;
  /**
   * `cond`: the more expensive branch, when the cheaper is taken. `while_loop`: all trips, when it
   * ends at once.
   */
  readonly most: OpWork;
}

/** A graph whose branches became selections, and the work that this wastes. */
export interface Predicated {
  readonly graph: Graph;
  readonly wasted: readonly Waste[];
  /**
   * Control flow that stays: explicit scans and maps, and loops without a bound. Names of the
   * calls.
   */
  readonly remaining: readonly string[];
}

/**
 * Control flow as selection. `cond` runs both bodies and selects by `where`; a `while_loop` with
 * `max_trips` runs that many times, its carry kept by an active flag. What the untaken side reads
 * is replaced by a safe value first, and its results are selected away, so no NaN or infinity
 * reaches values or gradients: the gradient of a replaced operand is selected to zero.
 */
export function predicate(graph: Graph, options: PredicateOptions = {}): Predicated {
  checkKinds('predicate', {
    graph: [graph, 'graph'],
    options: [options, 'record', 'undefined'],
  });
  const { table = builtinOperators(), safeValue = 1 } = options;
  const wasted: Waste[] = [];
  const result = rewriteControl(graph, table, (site) => {
    const { form, node } = site;
    if (form.kind === 'branch' && node.target === 'cond') {
      const [a, b] = form.bodies.map((body) => workOf(body.graph, table));
      const [least, most] = total(a) <= total(b) ? [a, b] : [b, a];
      wasted.push({ node: node.name, kind: 'cond', least, most });
      return branches(site, form, safeValue);
    }
    if (form.kind !== 'while' || form.maxTrips === undefined) return undefined;
    const [test, step] = [workOf(form.condition, table), workOf(form.step, table)];
    const times = (part: keyof OpWork): number => (form.maxTrips ?? 0) * (test[part] + step[part]);
    const most = { matrix: times('matrix'), vector: times('vector') };
    wasted.push({ node: node.name, kind: 'while_loop', least: { matrix: 0, vector: 0 }, most });
    return trips(site, form, form.maxTrips, safeValue);
  });
  return { graph: result, wasted, remaining: remaining(result) };
}

/** Both bodies, each on operands that are safe where it is not taken. */
function branches({ calls, writer }: Site, form: BranchForm, safe: number): Arg[] {
  const { test, bodies, operands } = form;
  if (!isRef(test)) return [];
  const not = calls.unary('logical_not', test);
  const yes = writer.inline(
    bodies[0].graph,
    guarded(calls, test, bodies[0].graph, operands, safe),
    (node) => node.meta,
  );
  const no = writer.inline(
    bodies[1].graph,
    guarded(calls, not, bodies[1].graph, operands, safe),
    (node) => node.meta,
  );
  return yes.map((value, i) => chosen(calls, test, value, no[i]));
}

/** The body as often as the loop may run; an ended loop keeps its carry. */
function trips({ calls, writer }: Site, form: WhileForm, count: number, safe: number): Arg[] {
  const { captured, condition, step } = form;
  let carry = [...form.carry];
  for (let trip = 0; trip < count; trip++) {
    const [active] = writer.inline(condition, [...carry, ...captured]);
    if (!isRef(active)) return carry;
    const next = writer.inline(step, guarded(calls, active, step, [...carry, ...captured], safe));
    carry = carry.map((value, i) => chosen(calls, active, next[i], value));
  }
  return carry;
}

/**
 * The operands where the side is taken, else safe values. An operand that occurs twice is replaced
 * once; one that no call of the body reads stays, since results are selected.
 */
function guarded(
  calls: CallBuilder,
  taken: ValueRef,
  body: Graph,
  operands: readonly Arg[],
  safe: number,
): Arg[] {
  const known = new Map<string, ValueRef>();
  const read = new Set<string>();
  for (const node of body.nodes) eachOperand(node, (name) => read.add(name));
  const inputs = placeholdersOf(body);
  return operands.map((operand, i) => {
    if (!isRef(operand) || !read.has(inputs[i].name)) return operand;
    const type = calls.typeOf(operand);
    if (type.kind !== 'tensor' || type.dtype === 'b8') return operand;
    let made = known.get(operand.name);
    if (made === undefined) {
      const value: Arg = isFloating(type.dtype) ? { kind: 'float', value: safe } : 0;
      made = calls.call('aten.where.ScalarOther', [taken, operand, value]);
      known.set(operand.name, made);
    }
    return made;
  });
}

function chosen(calls: CallBuilder, taken: ValueRef, yes: Arg, no: Arg): Arg {
  if (!isRef(yes) || !isRef(no) || yes.name === no.name) return yes;
  return calls.where(taken, yes, no);
}

const total = ({ matrix, vector }: OpWork): number => matrix + vector;

/** Work of one run of a body; loops inside by their length, unknown ones once. */
function workOf(graph: Graph, table: OperatorTable): OpWork {
  const types = typesByName(graph);
  const typeOf = (name: string): ValueType => types.get(name) ?? { kind: 'none' };
  let [matrix, vector] = [0, 0];
  const add = (work: OpWork | undefined, times = 1): void => {
    matrix += (work?.matrix ?? 0) * times;
    vector += (work?.vector ?? 0) * times;
  };
  for (const node of graph.nodes) {
    if (node.kind !== 'call') continue;
    const form = controlForm(node, graph.subgraphs);
    if (form?.kind === 'scan') add(workOf(form.step, table), scanLength(node, form, typeOf) ?? 1);
    else if (form?.kind === 'while') add(workOf(form.step, table), form.maxTrips ?? 1);
    else if (form !== undefined) for (const body of form.bodies) add(workOf(body.graph, table));
    else {
      const context = bind(table, node, typeOf);
      if (context !== undefined) add(table.get(node.target)?.flops(context));
    }
  }
  return { matrix, vector };
}

function remaining(graph: Graph): string[] {
  const own = graph.nodes.flatMap((node: Node) =>
    controlForm(node, graph.subgraphs) === undefined ? [] : [node.name],
  );
  const inner = Object.keys(graph.subgraphs).flatMap((name) => {
    const body = getOwn(graph.subgraphs, name);
    return body === undefined ? [] : remaining(body).map((call) => `${name}.${call}`);
  });
  return [...own, ...inner];
}
