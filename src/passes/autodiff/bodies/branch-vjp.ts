/** Writes the derivative of a condition as a second condition on the same predicate. */

import { ShardwrightError } from '../../../errors.ts';
import { GraphBuilder } from '../../../graph/build.ts';
import { placeholdersOf } from '../../../graph/control.ts';
import { typesByName } from '../../../graph/nodes.ts';
import type { Arg, Graph, Node, ValueRef, ValueType } from '../../../graph/types.ts';
import { exampleShape, isRef } from '../../../graph/value.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import type { CallBuilder } from '../../../ops/vjp/build.ts';
import { BodyWriter, isBodyName } from '../../control/body-writer.ts';
import type { BranchForm } from '../../control/control-form.ts';
import { drawsWithoutKey } from '../../control/loops/hoist-invariants.ts';
import {
  type Contribution,
  type Differentiate,
  gradientSlots,
  neededNodes,
} from './body-gradients.ts';

interface BranchGradient {
  readonly node: Node;
  readonly form: BranchForm;
  /** Positions of the operands that gradients are wanted of. */
  readonly wrt: readonly number[];
  /** By result. */
  readonly gradients: readonly (ValueRef | undefined)[];
  /** Results of the forward call that the backward body reads instead of making them again. */
  readonly saved: readonly { readonly output: number; readonly value: ValueRef }[];
  readonly calls: CallBuilder;
  readonly differentiate: Differentiate;
}

/** A second condition on the same predicate, on the same operands and the gradients. */
export function branchBackward(site: BranchGradient): Contribution[] {
  const { node, form, wrt, gradients, saved, calls } = site;
  const from = gradients.flatMap((gradient, i) => (gradient === undefined ? [] : [i]));
  const joints = form.bodies.map(({ graph }) => jointOf(site, graph, from));
  // Operands that no branch has a gradient for are left out.
  const live = wrt.filter((_, k) => joints.some(({ slots }) => slots[k] !== null));
  if (live.length === 0) return [];
  const bodies = form.bodies.map(({ name, graph }, b) => {
    const body = backwardBody(graph, joints[b], {
      wrt,
      live,
      from,
      saved: saved.map(({ output }) => output),
      table: calls.table,
    });
    return {
      kind: 'graph',
      name: calls.graph.subgraph(`${name}_backward`, { ...body, name: `${name}_backward` }),
    } as const;
  });
  const operands: Arg[] = [
    ...form.operands,
    ...saved.map(({ value }) => value),
    ...from.flatMap((i): ValueRef[] => (gradients[i] === undefined ? [] : [gradients[i]])),
  ];
  const items = live.map((position) => operandType(form.operands[position], calls));
  const args: Arg[] =
    node.target === 'call'
      ? [bodies[0], operands]
      : node.target === 'case'
        ? [form.test, bodies, operands]
        : [form.test, ...bodies, operands];
  const call = calls.graph.call(
    node.target,
    args,
    { kind: 'tuple', items },
    {
      meta: calls.meta,
      name: calls.freshName(node.target),
      ...(node.kwargs.prob === undefined ? {} : { kwargs: { prob: node.kwargs.prob } }),
    },
  );
  return live.flatMap((position, i): Contribution[] => {
    const operand = form.operands[position];
    return isRef(operand) ? [{ operand, gradient: calls.item(call, i) }] : [];
  });
}

interface BranchJoint {
  readonly joint: Graph;
  /** By wanted operand: its gradient, or null. */
  readonly slots: readonly (string | null)[];
}

function jointOf(
  { node, wrt, calls, differentiate }: BranchGradient,
  body: Graph,
  from: readonly number[],
): BranchJoint {
  const inputs = placeholdersOf(body);
  const names = wrt.map((position) => inputs[position].name);
  const joint = differentiate(body, names, from);
  const random = joint.nodes.find((inner) => drawsWithoutKey(inner, calls.table));
  if (random !== undefined) throw keyless(node, random);
  return { joint, slots: gradientSlots(joint, names) };
}

interface BackwardParts {
  readonly wrt: readonly number[];
  readonly live: readonly number[];
  readonly from: readonly number[];
  /** Results of the branch that are given. */
  readonly saved: readonly number[];
  readonly table: OperatorTable;
}

/**
 * The derivative of one branch: inputs are the operands, what was saved and all gradients, results
 * those of the live operands.
 */
function backwardBody(
  body: Graph,
  { joint, slots }: BranchJoint,
  { wrt, live, from, saved, table }: BackwardParts,
): Graph {
  const builder = new GraphBuilder(joint.name);
  const writer = new BodyWriter(builder);
  const names = new Map<string, Arg>();
  const inputs = placeholdersOf(body);
  inputs.forEach(({ name, type }, roleIndex) => {
    names.set(name, builder.placeholder(name, type, { role: 'arg', roleIndex }));
  });
  const tangents = new Map(
    placeholdersOf(joint).map((p) => [
      p.meta.role === 'tangent' ? p.meta.roleIndex : undefined,
      p.name,
    ]),
  );
  const types = typesByName(body);
  const given = new Set<string>();
  saved.forEach((output, i) => {
    const value =
      joint.outputs.find((one) => one.role === 'output' && one.index === output)?.value ?? '';
    const type = types.get(body.outputs[output].value ?? '') ?? { kind: 'none' as const };
    const role = { role: 'arg' as const, roleIndex: inputs.length + i };
    names.set(value, builder.placeholder(`saved_${i + 1}`, type, role));
    given.add(value);
  });
  from.forEach((output, i) => {
    const type = types.get(body.outputs[output].value ?? '') ?? { kind: 'none' as const };
    const ref = builder.placeholder(`tangent_${i + 1}`, type, {
      role: 'arg',
      roleIndex: inputs.length + saved.length + i,
    });
    const tangent = tangents.get(output);
    if (tangent !== undefined) names.set(tangent, ref);
  });
  const needed = neededNodes(joint, slots, given);
  for (const inner of joint.nodes)
    if (
      needed.has(inner.name) &&
      !given.has(inner.name) &&
      inner.kind !== 'placeholder' &&
      !isBodyName(inner, joint)
    )
      names.set(inner.name, writer.copy(inner, joint, names));
  live.forEach((position, index) => {
    const slot = slots[wrt.indexOf(position)];
    const value = slot === null ? zeros(builder, inputs[position].type, table) : names.get(slot);
    builder.output({
      value: value !== undefined && isRef(value) ? value.name : null,
      role: 'output',
      index,
    });
  });
  return builder.build();
}

function operandType(operand: Arg, calls: CallBuilder): ValueType {
  return isRef(operand) ? calls.typeOf(operand) : { kind: 'none' };
}

/** A call that makes zeros of a type. */
export function zeros(builder: GraphBuilder, type: ValueType, table: OperatorTable): ValueRef {
  if (type.kind !== 'tensor' || table.get('aten.full.default') === undefined)
    throw new ShardwrightError(
      'E_UNKNOWN_OP',
      'a derivative needs aten.full.default, which the operator table lacks',
    );
  const shape = exampleShape(type, 0);
  const kwargs = { dtype: { kind: 'dtype', dtype: type.dtype } } as const;
  const plain: ValueType = { kind: 'tensor', dtype: type.dtype, shape };
  return builder.call('aten.full.default', [shape, { kind: 'float', value: 0 }], plain, { kwargs });
}

function keyless(node: Node, random: Node): ShardwrightError {
  return new ShardwrightError(
    'E_NO_VJP',
    `${node.name}: the backward pass runs the branch again, but ${random.name} ` +
      `(${random.target}) would draw other numbers`,
    { node: random.name, hint: 'draw with a key (generator), or before the condition' },
  );
}
