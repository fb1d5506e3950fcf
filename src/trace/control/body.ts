/**
 * Bodies of control-flow operators while they are traced. A body runs on fresh inputs: one for each
 * operand, then one for each outer tensor that it reads, in the order of first use. The bodies of
 * one operator have identical inputs.
 */

import type { DType, Graph, ValueRef } from '../../graph/types.ts';
import { ref } from '../../graph/value.ts';
import { functionalForm } from '../../ops/record/in-place.ts';
import { refusal } from '../errors/refusal.ts';
import { type Recorder, recordInto, type TracedValue } from '../record/recorder.ts';
import { type HostValue, mapTree, type Tree, treeOf, valueOfTree } from '../record/tree.ts';
import { isFloating, valueText } from '../record/typed-value.ts';
import { tracedValue } from '../tensor/core.ts';
import { tensorOf } from '../tensor/tensor.ts';

/** The description of an input of a body. */
export type InputLike = Pick<TracedValue, 'name' | 'dtype' | 'shape' | 'requiresGrad'>;

/** The result of a body: tensors of the body itself, and host constants. */
export interface TracedBody {
  readonly recorder: Recorder;
  readonly result: Tree<TracedValue>;
}

/**
 * Runs `fn` on fresh inputs.
 *
 * @param shared outer values that the bodies before this one read; they are inputs of this one too,
 *   in the same places
 * @throws E_TRACE_INPUT when the body returns something that is neither tensor nor host constant
 */
export function traceBody(
  parent: Recorder,
  name: string,
  inputs: readonly InputLike[],
  fn: (inputs: readonly TracedValue[]) => unknown,
  shared: Iterable<TracedValue> = [],
): TracedBody {
  const recorder = parent.body(name);
  const made = inputs.map((input, roleIndex) =>
    recorder.placeholder(
      input.name,
      input.dtype,
      input.shape,
      { role: 'arg', roleIndex },
      input.requiresGrad,
    ),
  );
  for (const value of shared) recorder.lift(value);
  const result = recordInto(recorder, () => ownedTree(recorder, fn(made)));
  return { recorder, result };
}

/**
 * The outer values that any of the bodies reads, in the order of first use; afterwards all of them
 * have them all as inputs.
 */
export function captures(bodies: readonly TracedBody[]): TracedValue[] {
  const union = [...new Set(bodies.flatMap(({ recorder }) => [...recorder.captured.keys()]))];
  for (const { recorder } of bodies) for (const value of union) recorder.lift(value);
  return union;
}

/**
 * Names of outer values as operands of a call of `recorder`; a value of a recorder further out is
 * lifted.
 */
export function operandRefs(
  recorder: Recorder,
  values: readonly TracedValue[],
  where: string,
): ValueRef[] {
  return values.map((value) => ref(recorder.own(value, where).name));
}

/** Ends a body with these results. @throws E_HOP_MUTATION when it changes a tensor in place */
export function finishBody({ recorder }: TracedBody, results: readonly TracedValue[]): Graph {
  results.forEach((value, index) => recorder.output({ value: value.name, role: 'output', index }));
  const graph = recorder.finish();
  const inPlace = graph.nodes.find((node) => functionalForm(node.target) !== undefined);
  if (inPlace === undefined) return graph;
  throw refusal(
    'E_HOP_MUTATION',
    `${inPlace.name}: ${inPlace.target} changes a tensor in place inside the body @${graph.name}`,
    inPlace.meta,
    {
      node: inPlace.name,
      hint: `bodies are functional: use ${functionalForm(inPlace.target)} and return its result.`,
    },
  );
}

/** The tree of a value of the program, its tensors owned by the recorder. */
export function ownedTree(recorder: Recorder, value: unknown): Tree<TracedValue> {
  return treeOf(
    value,
    (leaf): TracedValue | undefined => {
      const traced = tracedValue(leaf);
      return traced === undefined ? undefined : recorder.own(traced, 'return');
    },
    'output',
  );
}

/** The tree of values as the user's function sees it. */
export function tensorsOf(tree: Tree<TracedValue>): unknown {
  return valueOfTree(mapTree(tree, tensorOf));
}

/**
 * A number or truth value of the host as a scalar tensor: whole numbers are i64, others f32, unless
 * `dtype` says otherwise.
 */
export function scalar(recorder: Recorder, value: number | boolean, dtype?: DType): TracedValue {
  const own: DType =
    typeof value === 'boolean' ? 'b8' : Number.isSafeInteger(value) ? 'i64' : 'f32';
  return recorder.call('aten.full.default', [[], value], {
    dtype: { kind: 'dtype', dtype: dtype ?? own },
  });
}

/**
 * The tree with numbers and truth values of the host as scalar tensors.
 *
 * @param like dtypes by the path of a leaf, where they are known
 */
export function withScalars(
  recorder: Recorder,
  tree: Tree<TracedValue>,
  like: ReadonlyMap<string, TracedValue> = new Map(),
): Tree<TracedValue> {
  switch (tree.kind) {
    case 'leaf':
      return tree;
    case 'host': {
      const { path, value } = tree;
      if (typeof value !== 'number' && typeof value !== 'boolean') return tree;
      return { kind: 'leaf', path, leaf: scalar(recorder, value, like.get(path)?.dtype) };
    }
    case 'list':
      return { kind: 'list', items: tree.items.map((item) => withScalars(recorder, item, like)) };
    case 'record':
      return {
        kind: 'record',
        entries: tree.entries.map(
          ([key, inner]) => [key, withScalars(recorder, inner, like)] as const,
        ),
      };
  }
}

/** `{h: f32[4, 16], t: 3}`. */
export function treeTypes(tree: Tree<TracedValue>): string {
  switch (tree.kind) {
    case 'leaf':
      return valueText(tree.leaf);
    case 'host':
      return hostText(tree.value);
    case 'list':
      return `[${tree.items.map(treeTypes).join(', ')}]`;
    case 'record':
      return `{${tree.entries.map(([key, inner]) => `${key}: ${treeTypes(inner)}`).join(', ')}}`;
  }
}

export function hostText(value: HostValue): string {
  return JSON.stringify(value);
}

/**
 * Results of a call, described as one of its bodies returns them; whether they need gradients
 * follows from the operands.
 */
export function resultLike(value: TracedValue, operands: readonly TracedValue[]): TracedValue {
  return {
    ...value,
    requiresGrad: isFloating(value.dtype) && operands.some((operand) => operand.requiresGrad),
  };
}

const counts = new WeakMap<Recorder, Map<string, number>>();

/** `true_0`, `true_1`: bodies of one kind are counted within the graph that holds them. */
export function bodyName(recorder: Recorder, kind: string): string {
  let known = counts.get(recorder);
  if (known === undefined) counts.set(recorder, (known = new Map<string, number>()));
  const count = known.get(kind) ?? 0;
  known.set(kind, count + 1);
  return `${kind}_${count}`;
}
