/**
 * The verbs of typed per-device code as a program calls them: each takes a tensor, a mesh axis and
 * the types before and after, and records one node. Inside a `localMap` over the axis the verb acts
 * on one device's piece; in a global program it states a redistribution of the whole value, which
 * is unchanged. Source: the package spmd_types, and JAX's names for the same.
 */
import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import {
  checkOptions,
  checkType,
  ShardwrightError,
  suggestion,
  valueText,
  wrongArgument,
} from '../../errors.ts';
import { axisType, type SpecWord, typeSpec, type TypeWord } from '../../local-spmd/words.ts';
import { primitive, type PrimitiveName, verbBetween } from '../../mesh/local-types/primitives.ts';
import { readTypeSpec } from '../../mesh/local-types/spec.ts';
import type { AxisType } from '../../mesh/local-types/types.ts';
import { spmdTarget } from '../../ops/spmd/operators.ts';
import { valueOf } from '../control/traced-values.ts';
import { needRecorder, type Recorder, type TraceArg } from '../record/recorder.ts';
import { type Tensor, tensorOf } from '../tensor/tensor.ts';
import { axesOf } from './axes.ts';
import { meshOf, refuse } from './local-map.ts';

/** From which local type to which a verb goes. */
export interface VerbTypes {
  readonly src: TypeWord;
  readonly dst: TypeWord;
  /** It is seldom what is meant; the program says that it is. */
  readonly expert?: boolean;
}

/** The types of a call. @throws E_USAGE where JavaScript gives none, or a misspelt one */
function givenTypes<T extends { readonly dst: TypeWord }>(call: string, types: T): T {
  checkOptions(call, types, { src: true, dst: true, expert: true });
  return types;
}

/**
 * The size of an axis that is per device; undefined where it is global. @throws E_SPMD_TYPE for a
 * name that is not an axis here
 */
function manualSize(recorder: Recorder, what: string, axis: string): number | undefined {
  const manual = axesOf(recorder);
  const size = manual.get(axis);
  if (size !== undefined) return size;
  const mesh = meshOf(recorder, what);
  if (typeof (axis as unknown) !== 'string')
    throw wrongArgument(what, 'axis', valueText(axis), `axes: ${mesh.names.join(', ')}.`);
  if (!mesh.names.includes(axis))
    throw refuse(
      recorder,
      `${what}: the mesh ${mesh.text} has no axis '${axis}'`,
      suggestion(axis, mesh.names, 'axes'),
    );
  if (manual.size > 0)
    throw refuse(
      recorder,
      `${what}: the axis '${axis}' is not per device in this region (those are: ` +
        `${[...manual.keys()].join(', ')})`,
      `add '${axis}' to the axes of localMap`,
    );
  return undefined;
}

/**
 * A verb as the program calls it.
 *
 * @param others types besides `src` that it takes: which one its operand has is known when the
 *   region is whole
 */
export function verb(
  op: PrimitiveName,
  x: Tensor,
  axis: string,
  types: VerbTypes,
  others: readonly AxisType[] = [],
): Tensor {
  givenTypes(op, types);
  const [src, dst] = [axisType(types.src), axisType(types.dst)];
  const { expert = false } = types;
  const recorder = needRecorder(`${op}()`);
  const value = recorder.own(valueOf(x, `the operand of ${op}`), op);
  const size = manualSize(recorder, `${op}()`, axis);
  try {
    primitive(op, src, dst, { axis, expert });
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    throw refuse(recorder, error.message, error.details.hint ?? '');
  }
  if (size !== undefined)
    return record(recorder, op, [value, axis, size, [src, ...others].join('|'), dst]);
  if (op === 'reinterpret')
    throw refuse(
      recorder,
      `reinterpret(${src}→${dst}) on ${axis}: the meaning of a whole value does not depend ` +
        'on how its bytes are read',
      `write it in a localMap over '${axis}', or use outPartial`,
    );
  if (src === 'V' || dst === 'V')
    throw refuse(
      recorder,
      `${op}(${src}→${dst}) on ${axis}: V has no meaning for a whole value`,
      'name the dim: S(0)',
    );
  const mesh = meshOf(recorder, op);
  return record(recorder, 'redistribute', [value, axis, mesh.sizes[mesh.indexOf(axis)], src, dst]);
}

function record(recorder: Recorder, name: string, args: readonly TraceArg[]): Tensor {
  return tensorOf(recorder.call(spmdTarget(name), args));
}

/** The sum of all ranks' addends, on every rank. */
export function allReduce(
  x: Tensor,
  axis: string,
  types: { src?: TypeWord; dst: TypeWord },
): Tensor {
  const { src = 'P', dst } = givenTypes('allReduce', types);
  return verb('all_reduce', x, axis, { src, dst });
}

/** All pieces: S(i) joined on dim i, V stacked on a new dim 0. */
export function allGather(
  x: Tensor,
  axis: string,
  types: { src: TypeWord; dst: TypeWord },
): Tensor {
  return verb('all_gather', x, axis, types);
}

/** The own piece of the sum: S(i) cut on dim i, V one row of dim 0 (which goes). */
export function reduceScatter(
  x: Tensor,
  axis: string,
  types: { src?: TypeWord; dst: TypeWord },
): Tensor {
  const { src = 'P', dst } = givenTypes('reduceScatter', types);
  return verb('reduce_scatter', x, axis, { src, dst });
}

/** Another cut: S(i)→S(j) joins on i and cuts on j; V→V exchanges the rows of dim 0. */
export function allToAll(x: Tensor, axis: string, types: { src: TypeWord; dst: TypeWord }): Tensor {
  return verb('all_to_all', x, axis, types);
}

/** The same meaning in another type, without communication: it may slice, or zero. */
export function convert(x: Tensor, axis: string, types: VerbTypes): Tensor {
  return verb('convert', x, axis, types);
}

/** The same bytes in another type; what they mean may change. */
export function reinterpret(x: Tensor, axis: string, types: VerbTypes): Tensor {
  return verb('reinterpret', x, axis, types);
}

/** The one verb that takes a value from one type to another and keeps its meaning. */
export function redistribute(x: Tensor, axis: string, types: VerbTypes): Tensor {
  givenTypes('redistribute', types);
  const [src, dst] = [axisType(types.src), axisType(types.dst)];
  const { expert } = types;
  return verb(verbBetween(src, dst), x, axis, {
    src,
    dst,
    ...defined({ expert }),
  });
}

/** Sends pieces along an axis: member i to member `targets[i]`. */
export function permute(x: Tensor, axis: string, targets: readonly number[]): Tensor {
  const recorder = needRecorder('permute()');
  const value = recorder.own(valueOf(x, 'the operand of permute'), 'permute');
  const size = manualOnly(recorder, 'permute()', axis);
  return record(recorder, 'permute', [value, axis, size, [...targets]]);
}

function manualOnly(recorder: Recorder, what: string, axis: string): number {
  const size = manualSize(recorder, what, axis);
  if (size !== undefined) return size;
  throw refuse(
    recorder,
    `${what}: '${axis}' has a global meaning here, where ranks do not show`,
    `write it in a localMap over '${axis}'`,
  );
}

/** Number of the own rank along an axis: a whole number that varies. */
export function axisIndex(axis: string): Tensor {
  const recorder = needRecorder('axisIndex()');
  return record(recorder, 'axis_index', [axis, manualOnly(recorder, 'axisIndex()', axis)]);
}

/**
 * @throws E_SPMD_TYPE, in the name of the function that was called, for what is not an axis here
 */
export function needAxis(what: string, axis: string): void {
  manualSize(needRecorder(what), what, axis);
}

/** Number of ranks along an axis of the mesh. */
export function axisSize(axis: string): number {
  const recorder = needRecorder('axisSize()');
  const mesh = meshOf(recorder, 'axisSize()');
  manualSize(recorder, 'axisSize()', axis);
  return mesh.sizes[mesh.indexOf(axis)];
}

/**
 * The result of a sum or a product over a dim that the axes cut, as addends of the whole: the sum
 * is completed later, by name. In per-device code it reads V as P.
 */
export function outPartial(x: Tensor, axes: string | readonly string[]): Tensor {
  checkKinds('outPartial', { axes: [axes, 'string', 'names'] });
  const recorder = needRecorder('outPartial()');
  const mesh = meshOf(recorder, 'outPartial()');
  return (Array.isArray(axes) ? (axes as readonly string[]) : [axes as string]).reduce(
    (now, axis) => {
      const size = manualSize(recorder, 'outPartial()', axis);
      if (size !== undefined) return verb('reinterpret', now, axis, { src: 'V', dst: 'P' });
      const value = recorder.own(valueOf(now, 'the operand of outPartial'), 'outPartial');
      return record(recorder, 'out_partial', [value, axis, mesh.sizes[mesh.indexOf(axis)]]);
    },
    x,
  );
}

/**
 * States the type of a value of a global program: that of an input, or of another value, where it
 * must be what the types of the operators say. Axes that the spec does not name are I.
 *
 * @throws E_SPMD_TYPE for an unknown axis, a dim that is not there or does not divide
 */
export function assertType(x: Tensor, spec: SpecWord): Tensor {
  const recorder = needRecorder('assertType()');
  const value = recorder.own(valueOf(x, 'the operand of assertType'), 'assertType');
  const mesh = meshOf(recorder, 'assertType()');
  const manual = axesOf(recorder);
  const axes = mesh.names.filter((axis) => !manual.has(axis));
  const shape = value.shape.map((size) => (typeof size === 'number' ? size : undefined));
  try {
    const types = readTypeSpec(typeSpec(spec), mesh, axes, shape);
    const varying = [...types].find(([, type]) => type === 'V');
    if (varying !== undefined)
      throw new ShardwrightError(
        'E_SPMD_TYPE',
        `V on ${varying[0]} has no meaning for a whole value`,
        { hint: 'name the dim: S(0)' },
      );
    const texts = axes.map((axis) => `${axis}: ${types.get(axis) ?? 'I'}`);
    return record(recorder, 'assert_type', [value, texts]);
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    throw refuse(
      recorder,
      `assertType(%${value.name}): ${error.message}`,
      error.details.hint ?? '',
    );
  }
}

/**
 * `einsum` as one node, whose letters types and rules read. @throws E_SHAPE for letters that do not
 * fit
 */
export function contract(equation: string, ...operands: readonly Tensor[]): Tensor {
  checkType('contract', 'equation', equation, 'string');
  const recorder = needRecorder('contract()');
  const values = operands.map((x) =>
    recorder.own(valueOf(x, 'an operand of contract'), 'contract'),
  );
  return tensorOf(recorder.call('aten.einsum.default', [equation, values]));
}
