/**
 * Takes a forward graph and gives forward and backward pass in one graph, as AOTAutograd writes it.
 */

import { checkKinds } from '../../arguments.ts';
import { defined, nonEmpty } from '../../defined.ts';
import { checkOptions, ShardwrightError } from '../../errors.ts';
import { GraphBuilder } from '../../graph/build.ts';
import { lintGraph } from '../../graph/lint.ts';
import { typesByName } from '../../graph/nodes.ts';
import type {
  GivenSharding,
  Graph,
  Node,
  NodeMeta,
  Output,
  TensorType,
  ValueRef,
} from '../../graph/types.ts';
import { typeText } from '../../graph/value.ts';
import { builtinOperators } from '../../ops/builtin.ts';
import { inferCall } from '../../ops/record/infer.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { CallBuilder } from '../../ops/vjp/build.ts';
import type { Vjps } from '../../ops/vjp/vjp.ts';
import { withoutDeadCode } from '../dead-code.ts';
import { atExampleSizes } from '../sizes/fix-sizes.ts';
import { Activity } from './activity.ts';
import { Backward } from './backward.ts';
import { asProgram, neededNodes } from './bodies/body-gradients.ts';
import { ControlVjp } from './bodies/control-vjp.ts';
import { withDifferentiableLoops } from './bodies/differentiable-loops.ts';
import { ForwardCopy } from './forward.ts';
import { stampJointPhases } from './phases.ts';
import { retained } from './retention.ts';
import { differentiated, hasGradient, type Wanted } from './wanted.ts';

export type { Wanted } from './wanted.ts';

/** Which gradients are taken, and of what. */
export interface JointOptions {
  /**
   * The values that gradients are returned for: all parameters (default), parameters and inputs, or
   * these (role or node names).
   */
  readonly wrt?: Wanted;
  /**
   * Gradient of a scalar loss, as a constant instead of a tangent; then only scalar outputs are
   * differentiated. Without it every differentiable output has a tangent among the inputs.
   */
  readonly seed?: number;
  /** Zeros in place of `none` for a wanted gradient that nothing contributes to. Default false. */
  readonly materializeZeros?: boolean;
  /**
   * Indices of the outputs that gradients start at; by default all that depend on what is
   * differentiated.
   */
  readonly from?: readonly number[];
  /** Derivatives of operators that have none of their own, by canonical name. */
  readonly vjps?: Vjps;
  /** Operators; the built-in ones by default. */
  readonly table?: OperatorTable;
}

const OPTIONS: Readonly<Record<keyof JointOptions, true>> = {
  wrt: true,
  seed: true,
  materializeZeros: true,
  from: true,
  vjps: true,
  table: true,
};

/**
 * Forward and backward pass in one graph, as AOTAutograd writes it. Placeholders: parameters,
 * buffers, other inputs, then one tangent per differentiable output. Outputs: updated buffers, user
 * outputs, then one slot per placeholder with its gradient or none. A call is `backward` if it
 * depends on a tangent; each names the forward node that it came from.
 *
 * Contributions are added in reverse order of their users. Tied parameters get one gradient, in the
 * slot of the first of them. Values tagged `recompute` are made again in the backward pass.
 * Operators without a derivative of their own (`linear`, `layer_norm`, attention) are replaced by
 * those that PyTorch traces them to; in-place operators by their functional form. Code that no
 * output needs is left out. Symbolic sizes are fixed at their examples, and a note says so.
 *
 * @throws E_NO_VJP naming operator, node, place and the way from a parameter, where an operator on
 *   it has no derivative; E_GRAD_WHILE for a while loop; E_REF for an unknown name in `wrt`; E_TYPE
 *   for a name that has no gradient, or a seed without a scalar output; E_MUTATION for an in-place
 *   operator whose operand is used again through another name
 */
export function jointGraph(graph: Graph, options: JointOptions = {}): Graph {
  checkKinds('jointGraph', { graph: [graph, 'graph'] });
  checkOptions('jointGraph', options, OPTIONS);
  const table = options.table ?? builtinOperators();
  const sized = atExampleSizes(graph);
  const source = withDifferentiableLoops(sized, table, options.wrt ?? 'parameters');
  const builder = new GraphBuilder(graph.name);
  const calls = new CallBuilder(builder, table, new Set(source.nodes.map((node) => node.name)));
  const placeholders = inOrder(source.nodes.filter((node) => node.kind === 'placeholder'));
  const wanted = differentiated(source, placeholders, options.wrt ?? 'parameters');
  const ends = lossesOf(source, table, wanted, options.seed !== undefined, options.from);
  for (const node of placeholders) builder.keep(node);
  const tangents = options.seed === undefined ? ends.map((end, i) => tangent(calls, end, i)) : [];
  copyFacts(source, builder);
  const forward = new ForwardCopy(source, calls, wanted);
  const needed = neededNodes(
    source,
    ends.map((end) => end.value),
  );
  const control = new ControlVjp(calls, source, forward.activity, needed, (body, wrt, from) =>
    jointGraph(asProgram(body), {
      wrt,
      from,
      table,
      ...defined({ vjps: options.vjps }),
    }),
  );
  forward.run(control);
  const kept = source.outputs.filter((output) => output.role !== 'grad');
  const outputs = [
    ...forward.newMutations(kept),
    ...[...kept].sort((a, b) => rank(a) - rank(b)).map((output) => forward.output(output)),
  ];
  const { seed } = options;
  const starts =
    seed === undefined ? tangents : ends.map(({ type }) => calls.full([], seed, type.dtype));
  const backward = new Backward(calls, forward, options.vjps ?? {}, control);
  ends.forEach(({ output }, i) => backward.start(forward.output(output).value ?? '', starts[i]));
  backward.run();
  for (const output of outputs) builder.output(output);
  const slots = backward.slots(
    placeholders,
    source.ties ?? [],
    wanted,
    options.materializeZeros ?? false,
  );
  for (const [of, value] of slots) builder.output({ role: 'grad', of, value });

  const built = withoutDeadCode(builder.build());
  const stamped = stampJointPhases(
    { ...built, ...givenOf(source, built, (name) => forward.nameOf(name)) },
    new Set(seed === undefined ? [] : starts.map((ref) => ref.name)),
  );
  const joint = retained(stamped, savesOf(source, forward), table);
  lintGraph(joint, (node, typeOf) => inferCall(table, node, typeOf));
  return joint;
}

/** Hands on all of a graph but its nodes and outputs. */
function copyFacts(source: Graph, builder: GraphBuilder): void {
  for (const [name, body] of Object.entries(source.subgraphs)) builder.subgraph(name, body);
  for (const note of source.notes ?? []) builder.note(note);
  for (const group of source.ties ?? []) builder.tie(group);
  for (const [name, range] of Object.entries(source.dims ?? {})) builder.dim(name, range);
}

/** The marks in the source that keep or recompute a value, by the present name of the value. */
function savesOf(
  { nodes }: Graph,
  forward: ForwardCopy,
): Map<string, NonNullable<NodeMeta['save']>> {
  return new Map(
    nodes.flatMap(({ name, meta: { save } }) =>
      save === undefined ? [] : [[forward.nameOf(name), save] as const],
    ),
  );
}

interface End {
  readonly output: Output;
  readonly value: string;
  readonly type: TensorType;
}

/**
 * The outputs where gradients start: those that depend on what is differentiated; scalars only, if
 * they start at a constant.
 */
function lossesOf(
  graph: Graph,
  table: OperatorTable,
  wanted: ReadonlySet<string>,
  scalars: boolean,
  from: readonly number[] | undefined,
): End[] {
  const activity = new Activity(table, wanted);
  const types = typesByName(graph);
  for (const node of graph.nodes) activity.visit(node);
  const ends = graph.outputs.flatMap((output): End[] => {
    if (output.value === null || output.role !== 'output' || !activity.has(output.value)) return [];
    if (from !== undefined && !from.includes(output.index ?? -1)) return [];
    const type = types.get(output.value);
    return type?.kind === 'tensor' && hasGradient(type)
      ? [{ output, value: output.value, type }]
      : [];
  });
  if (!scalars) return ends;
  const losses = ends.filter(({ type }) => type.shape.length === 0);
  if (losses.length > 0 || ends.length === 0) return losses;
  throw new ShardwrightError(
    'E_TYPE',
    `a seed needs a scalar output; ${ends[0].value} is ${typeText(ends[0].type)}`,
    {
      node: ends[0].value,
      hint: 'return a loss, or leave the seed out: then each output has a tangent among the inputs',
    },
  );
}

function tangent(calls: CallBuilder, { output, type }: End, position: number): ValueRef {
  const name = calls.freshName(`tangents_${position + 1}`);
  const plain: TensorType = { kind: 'tensor', dtype: type.dtype, shape: type.shape };
  return calls.graph.placeholder(name, plain, {
    role: 'tangent',
    roleIndex: output.index ?? position,
  });
}

/**
 * The mesh and the shardings that the source states, as far as their values and outputs are still
 * there.
 */
function givenOf(
  source: Graph,
  built: Graph,
  nameOf: (name: string) => string,
): Pick<Graph, 'mesh' | 'given'> {
  const names = new Set(built.nodes.map((node) => node.name));
  const given = (source.given ?? []).flatMap((stated): GivenSharding[] => {
    if (stated.value !== undefined) {
      const value = nameOf(stated.value);
      return names.has(value) ? [{ ...stated, value }] : [];
    }
    const { role, index, of } = source.outputs[stated.output ?? -1] ?? {};
    const at = built.outputs.findIndex((o) => o.role === role && o.index === index && o.of === of);
    return at < 0 ? [] : [{ ...stated, output: at }];
  });
  return {
    ...defined({ mesh: source.mesh }),
    ...nonEmpty({ given }),
  };
}

/** Updated buffers and new states come before the user outputs. */
function rank(output: Output): number {
  return output.role === 'mutation' ? 0 : output.role === 'newstate' ? 1 : 2;
}

const ROLE_ORDER = ['parameter', 'buffer'];

/** Parameters, buffers, then all others, each in the given order. */
function inOrder(placeholders: readonly Node[]): Node[] {
  const place = (node: Node): number => {
    const at = ROLE_ORDER.indexOf(node.meta.role ?? '');
    return at < 0 ? ROLE_ORDER.length : at;
  };
  return [...placeholders].sort((a, b) => place(a) - place(b));
}
