/** Takes a joint graph and an optimizer and gives one training step in one graph. */

import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { checkOptions, checkRecord, internalError, ShardwrightError } from '../../errors.ts';
import { GraphBuilder } from '../../graph/build.ts';
import { lintGraph } from '../../graph/lint.ts';
import { roleName } from '../../graph/nodes.ts';
import type {
  DType,
  Graph,
  Node,
  NodeMeta,
  Output,
  TensorType,
  ValueRef,
} from '../../graph/types.ts';
import { ref } from '../../graph/value.ts';
import { builtinOperators } from '../../ops/builtin.ts';
import { inferCall } from '../../ops/record/infer.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { CallBuilder } from '../../ops/vjp/build.ts';
import { type Optimizer, stateType } from './optimizer.ts';

/** Results of a training step in addition to the new parameters and states. */
export interface TrainStepOptions {
  /** True if the gradients stay among the outputs. Default false. */
  readonly keepGradients?: boolean;
  /** Operators; the built-in ones by default. */
  readonly table?: OperatorTable;
}

/** Role name and state name of the step counter, a scalar that all parameters share. */
const STEP = { roleName: 'optimizer', stateName: 'step' } as const;

/**
 * One step of training: the joint graph with the optimizer's calls after it, in phase `optimizer`,
 * all element-wise, and a name for each gradient (an alias) right behind the call that makes it: a
 * plan may cut it there or later.
 *
 * Every parameter that has a gradient gets its states as inputs (`state "fc1.weight" "exp_avg"`),
 * in float32 whatever its own dtype (float64 for float64), and a float32 `master` copy if it is
 * narrower, of which the parameter is the rounded value. Returned are updated buffers, the new
 * parameters (as mutations), the new states, and the user outputs. A parameter without a gradient
 * stays as it is and adds nothing. The graph must have its loss folded in (`jointGraph` with a
 * seed), or tangents stay among the inputs.
 *
 * @throws E_TYPE when no parameter has a gradient
 */
export function trainStep(
  joint: Graph,
  optimizer: Optimizer,
  options: TrainStepOptions = {},
): Graph {
  checkKinds('trainStep', { graph: [joint, 'graph'] });
  checkRecord('trainStep', 'optimizer', optimizer, {
    fields: ['states', 'update'],
    hint: 'sgd, adam and adamw give one.',
  });
  checkOptions('trainStep', options, { keepGradients: true, table: true });
  const table = options.table ?? builtinOperators();
  const builder = new GraphBuilder(joint.name);
  const calls = new CallBuilder(builder, table, new Set(joint.nodes.map((node) => node.name)));
  const placeholders = joint.nodes.filter((node) => node.kind === 'placeholder');
  for (const node of placeholders) builder.keep(node);
  const trained = trainedParameters(joint, placeholders);
  const inputs = trained.map((t) => stateInputs(calls, optimizer, t));
  const counter = optimizer.counts
    ? state(calls, STEP.roleName, STEP.stateName, scalar('f32'))
    : undefined;
  for (const [name, body] of Object.entries(joint.subgraphs)) builder.subgraph(name, body);
  const early = keepWithGradients(calls, joint, trained);

  calls.meta = { phase: 'optimizer' };
  const step = counter === undefined ? undefined : calls.add(counter, 1);
  const shared = step === undefined ? {} : (optimizer.shared?.(calls, step) ?? {});
  const updated = trained.map((one, i) => {
    const gradient = early.get(one.gradient.name) ?? one.gradient;
    return updateOf(calls, optimizer, { ...one, gradient }, { inputs: inputs[i], step, shared });
  });
  const counted: Output[] =
    step === undefined
      ? []
      : [{ role: 'newstate', of: STEP.roleName, stateName: STEP.stateName, value: step.name }];

  const kept = joint.outputs.filter(
    (output) => output.role !== 'grad' || options.keepGradients === true,
  );
  for (const output of [
    ...kept.filter(({ role }) => role === 'mutation' || role === 'newstate'),
    ...updated.map(({ parameter }) => parameter),
    ...updated.flatMap(({ states }) => states),
    ...counted,
    ...kept.filter(({ role }) => role === 'output' || role === 'grad'),
  ])
    builder.output(output);
  const { nodes, outputs, subgraphs } = builder.build();
  const result = { ...withoutOutputHints(joint), nodes, outputs, subgraphs };
  lintGraph(result, (node, typeOf) => inferCall(table, node, typeOf));
  return result;
}

/**
 * The calls of the joint graph, with a name of its own for each gradient where it is made: it may
 * be cut there, summed and cut in one (ZeRO-2), or only when it is used. Returns these names.
 */
function keepWithGradients(
  calls: CallBuilder,
  joint: Graph,
  trained: readonly Trained[],
): ReadonlyMap<string, ValueRef> {
  const early = new Map<string, ValueRef>();
  const made = new Map(trained.map(({ gradient, node }) => [gradient.name, node]));
  for (const node of joint.nodes) {
    if (node.kind === 'placeholder') continue;
    calls.keep(node);
    const of = made.get(node.name);
    if (of === undefined) continue;
    calls.meta = metaOf(of, 'backward');
    early.set(node.name, calls.call('aten.alias.default', [ref(node.name)]));
  }
  return early;
}

/** The inputs of the optimizer in addition to a parameter and its gradient. */
interface UpdateInputs {
  readonly inputs: ReturnType<typeof stateInputs>;
  readonly step: ValueRef | undefined;
  readonly shared: Readonly<Record<string, ValueRef>>;
}

/** The calls that update one parameter: its new value and its new states. */
function updateOf(
  calls: CallBuilder,
  optimizer: Optimizer,
  { node, type, gradient, fqn }: Trained,
  { inputs: { master, state: before }, step, shared }: UpdateInputs,
): { readonly parameter: Output; readonly states: readonly Output[] } {
  calls.meta = metaOf(node, 'optimizer');
  const current: ValueRef = master ?? ref(node.name);
  const update = {
    parameter: current,
    gradient: calls.cast(gradient, stateType(type.dtype)),
    state: before,
  };
  const after = optimizer.update(calls, step === undefined ? update : { ...update, step }, shared);
  const value = calls.cast(after.parameter, type.dtype).name;
  const all = master === undefined ? after.state : { ...after.state, master: after.parameter };
  return {
    parameter: { role: 'mutation', of: fqn, value },
    states: stateNames(optimizer, type.dtype).map((name) => ({
      role: 'newstate',
      of: fqn,
      stateName: name,
      value: all[name].name,
    })),
  };
}

function metaOf({ meta: { path } }: Node, phase: 'backward' | 'optimizer'): NodeMeta {
  return { phase, ...defined({ path }) };
}

interface Trained {
  readonly node: Node;
  readonly type: TensorType;
  readonly fqn: string;
  readonly gradient: ValueRef;
}

function trainedParameters(joint: Graph, placeholders: readonly Node[]): Trained[] {
  const gradients = new Map<string, string>();
  for (const { role, of, value } of joint.outputs)
    if (role === 'grad' && of !== undefined && value !== null) gradients.set(of, value);
  const trained = placeholders.flatMap((node): Trained[] => {
    const fqn = roleName(node);
    const gradient = gradients.get(fqn);
    if (node.meta.role !== 'parameter' || gradient === undefined) return [];
    if (node.type.kind !== 'tensor') throw internalError(`parameter ${node.name} is not a tensor`);
    return [{ node, type: node.type, fqn, gradient: ref(gradient) }];
  });
  if (trained.length > 0) return trained;
  throw new ShardwrightError('E_TYPE', `graph ${joint.name} returns no gradient of a parameter`, {
    hint: 'make the backward pass first, with jointGraph',
  });
}

/** States of a parameter, the master copy among them, in their order. */
function stateNames(optimizer: Optimizer, dtype: DType): readonly string[] {
  return stateType(dtype) === dtype ? optimizer.states : ['master', ...optimizer.states];
}

function stateInputs(calls: CallBuilder, optimizer: Optimizer, { type, fqn, node }: Trained) {
  const own: TensorType = { kind: 'tensor', dtype: stateType(type.dtype), shape: type.shape };
  const refs: Record<string, ValueRef> = {};
  for (const name of stateNames(optimizer, type.dtype))
    refs[name] = state(calls, fqn, name, own, node.meta.path);
  const { master, ...others } = refs;
  return { master: master as ValueRef | undefined, state: others };
}

function state(
  calls: CallBuilder,
  fqn: string,
  name: string,
  type: TensorType,
  path?: string,
): ValueRef {
  const base = `${fqn}_${name}`.replaceAll(/[^A-Za-z0-9_]/g, '_');
  const meta: NodeMeta = {
    role: 'state',
    roleName: fqn,
    stateName: name,
    ...defined({ path }),
  };
  return calls.graph.placeholder(
    calls.freshName(/^[A-Za-z_]/.test(base) ? base : `_${base}`),
    type,
    meta,
  );
}

function scalar(dtype: DType): TensorType {
  return { kind: 'tensor', dtype, shape: [] };
}

/** Shardings stated for outputs by position hold no more; those of values do. */
function withoutOutputHints(joint: Graph): Graph {
  const given = joint.given?.filter((stated) => stated.value !== undefined);
  return given === undefined ? joint : { ...joint, given };
}
