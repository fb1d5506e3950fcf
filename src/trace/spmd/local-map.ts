/**
 * Records regions of per-device code in a traced program: a function of one device's pieces, with
 * specs for the cuts of its inputs and the joins of its results, becomes one `local_map` node with
 * a checked body in which every cast is written. Source: `shard_map` of JAX, `local_map` of
 * PyTorch.
 */
import { ShardwrightError } from '../../errors.ts';
import { LOCAL_MAP } from '../../graph/local-map.ts';
import { tensorType } from '../../graph/value.ts';
import { checkRegion, type Claim } from '../../local-spmd/region.ts';
import { type SpecWord, typeSpec } from '../../local-spmd/words.ts';
import { type DeviceMesh, parseMesh } from '../../mesh/devices/mesh.ts';
import { pieceShape, readTypeSpec } from '../../mesh/local-types/spec.ts';
import { type AxisType, cutOf } from '../../mesh/local-types/types.ts';
import {
  bodyName,
  captures,
  finishBody,
  type InputLike,
  operandRefs,
  tensorsOf,
  traceBody,
} from '../control/body.ts';
import { note } from '../control/site.ts';
import { asTensor, type BodyTree, flat, refill, valueOf } from '../control/traced-values.ts';
import { sourcePosition } from '../errors/position.ts';
import { refusal } from '../errors/refusal.ts';
import { needRecorder, type Recorder, type TracedValue } from '../record/recorder.ts';
import { isFloating } from '../record/typed-value.ts';
import type { Tensor } from '../tensor/tensor.ts';
import { axesOf, enterRegion } from './axes.ts';

/** The types of arguments and results of code that runs on one device's pieces. */
export interface LocalMapOptions {
  /** One for each argument. An axis that a spec does not name is I. */
  readonly inSpecs: readonly SpecWord[];
  /**
   * One for each result; of a single result that spec itself. An axis that a PartitionSpec does not
   * name must be I or R.
   */
  readonly outSpecs: SpecWord | readonly SpecWord[];
  /**
   * Axes on which the body is per device; all of the mesh by default. The others keep their global
   * meaning.
   */
  readonly axes?: readonly string[];
  /**
   * An I next to a V or an R is cast to it, by a node in the body. Default true; without, it is an
   * error.
   */
  readonly autoCast?: boolean;
}

/**
 * A function of pieces as a function of whole tensors. Sizes of the axes are those of the mesh that
 * `trace` was given.
 *
 * @param fn gets one device's piece of each argument; tensors that it reads from outside are I
 * @returns the function, to be called while tracing
 * @throws E_SPMD_TYPE at the user's line: what the types forbid, with the cast to insert; specs
 *   that do not fit mesh or shape
 */
export function localMap<const A extends readonly Tensor[], R extends BodyTree>(
  fn: (...pieces: A) => R,
  options: LocalMapOptions,
): (...args: A) => R {
  return (...args) => {
    const position = sourcePosition();
    const recorder = needRecorder('localMap()');
    const mesh = meshOf(recorder, 'localMap()');
    const axes = listedAxes(recorder, mesh, options.axes);
    const given = args.map((x) => recorder.own(valueOf(x, 'an argument of localMap'), 'localMap'));
    if (options.inSpecs.length !== given.length)
      throw refuse(
        recorder,
        `localMap has ${options.inSpecs.length} inSpecs for ${given.length} arguments`,
        'give one spec for each argument',
      );
    const specs = given.map((value, i) =>
      inSpec(recorder, mesh, axes, options.inSpecs[i], value, i),
    );
    const pieces = given.map((value, i): InputLike => ({ ...value, shape: specs[i].shape }));
    const traced = traceBody(recorder, bodyName(recorder, LOCAL_MAP), pieces, (values) => {
      enterRegion(needRecorder('localMap()'), axes, mesh);
      return fn(...(values.map(asTensor) as unknown as A));
    });
    const results = flat(traced.result);
    const read = captures([traced]);
    const operands = [...given, ...read];
    const leaves = results.leaves.map(({ leaf }) => leaf);
    const claims = outClaims(recorder, mesh, axes, options.outSpecs, leaves);
    const body = finishBody(traced, leaves);
    const inSpecs = [
      ...specs.map(({ types }) => types),
      ...read.map(() => axes.map((): AxisType => 'I')),
    ];
    const sizes = axes.map((name) => ({ name, size: mesh.sizes[mesh.indexOf(name)] }));
    const { table } = recorder.trace.settings;
    const autoCast = options.autoCast !== false;
    const checked = placed(recorder, () =>
      checkRegion(table, { body, axes: sizes, inSpecs, claims, autoCast }),
    );
    const name = recorder.subgraph(traced.recorder.name, checked.body);
    const made = recorder.controlCall(
      LOCAL_MAP,
      [{ kind: 'graph', name }, operandRefs(recorder, operands, 'localMap')],
      leaves.map((leaf, k) => joinedResult(leaf, checked.outSpecs[k], axes, mesh, operands)),
      {
        axes: sizes.map((axis) => `${axis.name}=${axis.size}`),
        in_specs: inSpecs,
        out_specs: checked.outSpecs,
      },
    );
    note(recorder, LOCAL_MAP, 'operators', `per device over ${axes.join(', ')}`, position);
    return tensorsOf(
      refill(
        results.tree,
        made.filter((value): value is TracedValue => value !== undefined),
      ),
    ) as R;
  };
}

/** The mesh of the trace. @throws E_SPMD_TYPE where it has none */
export function meshOf(recorder: Recorder, what: string): DeviceMesh {
  const { mesh } = recorder.trace.settings;
  if (mesh !== undefined) return parseMesh(mesh);
  throw refuse(
    recorder,
    `${what}: the trace has no mesh`,
    "name it: trace(fn, inputs, { mesh: 'dp=2,tp=4' })",
  );
}

export function refuse(recorder: Recorder, message: string, hint: string): ShardwrightError {
  return refusal('E_SPMD_TYPE', message, recorder.trace.place(), { hint });
}

/** Axes of the region in mesh order. */
function listedAxes(
  recorder: Recorder,
  mesh: DeviceMesh,
  listed: readonly string[] | undefined,
): string[] {
  const outer = axesOf(recorder);
  for (const [i, axis] of (listed ?? []).entries()) {
    if (!mesh.names.includes(axis))
      throw refuse(
        recorder,
        `localMap: the mesh ${mesh.text} has no axis '${axis}'`,
        `axes are ${mesh.names.join(', ')}`,
      );
    if (listed?.indexOf(axis) !== i)
      throw refuse(recorder, `localMap lists the axis '${axis}' twice`, 'list each axis once');
    if (outer.has(axis))
      throw refuse(
        recorder,
        `localMap: the axis '${axis}' is per device already, in the region around`,
        `leave '${axis}' out of axes`,
      );
  }
  const axes = mesh.names.filter((axis) =>
    listed === undefined ? !outer.has(axis) : listed.includes(axis),
  );
  if (axes.length > 0) return axes;
  throw refuse(recorder, 'localMap has no axes', 'list one axis of the mesh at least');
}

/**
 * Gives the place of the region to an error that has none: errors about the region's inputs belong
 * to no line of its body.
 */
function placed<T>(recorder: Recorder, body: () => T): T {
  try {
    return body();
  } catch (error) {
    if (!(error instanceof ShardwrightError) || error.details.position !== undefined) throw error;
    throw refuse(recorder, error.message, error.details.hint ?? '');
  }
}

/** Runs what may find a spec wrong, and adds the user's place to what it says. */
function located<T>(recorder: Recorder, what: string, body: () => T): T {
  try {
    return body();
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    throw refuse(recorder, `${what}: ${error.message}`, error.details.hint ?? '');
  }
}

function inSpec(
  recorder: Recorder,
  mesh: DeviceMesh,
  axes: readonly string[],
  spec: SpecWord,
  value: TracedValue,
  i: number,
): { types: AxisType[]; shape: TracedValue['shape'] } {
  const open = value.shape.map((size) => (typeof size === 'number' ? size : undefined));
  return located(recorder, `inSpecs[${i}]`, () => {
    const types = readTypeSpec(typeSpec(spec), mesh, axes, open);
    const varying = [...types].find(([, type]) => type === 'V');
    if (varying !== undefined)
      throw new ShardwrightError(
        'E_SPMD_TYPE',
        `a whole tensor has no pieces of type V on ${varying[0]}`,
        {
          hint: `say how it is cut: ${varying[0]}: S(0)`,
        },
      );
    const cut = open.every((size) => size !== undefined);
    const local = cut ? pieceShape(types, mesh, open) : [];
    const shape = value.shape.map((size, d) => (cut ? local[d] : size));
    return { types: axes.map((axis) => types.get(axis) ?? 'I'), shape };
  });
}

function outClaims(
  recorder: Recorder,
  mesh: DeviceMesh,
  axes: readonly string[],
  outSpecs: SpecWord | readonly SpecWord[],
  leaves: readonly TracedValue[],
): Claim[][] {
  const list = isList(outSpecs) ? outSpecs : [outSpecs];
  if (list.length !== leaves.length)
    throw refuse(
      recorder,
      `localMap has ${list.length} outSpecs for ${leaves.length} results`,
      'give one spec for each result',
    );
  return list.map((spec, k) =>
    located(recorder, `outSpecs[${k}]`, () => {
      // Pieces join, so nothing must divide: only the dims must be there.
      const types = readTypeSpec(
        typeSpec(spec),
        mesh,
        axes,
        leaves[k].shape.map(() => mesh.size),
      );
      const varying = [...types].find(([, type]) => type === 'V');
      if (varying !== undefined)
        throw new ShardwrightError(
          'E_SPMD_TYPE',
          `V on ${varying[0]} does not say how the pieces assemble`,
          {
            hint: `name the dim on which they concatenate: ${varying[0]}: S(0)`,
          },
        );
      return axes.map((axis) => types.get(axis));
    }),
  );
}

function isList(specs: SpecWord | readonly SpecWord[]): specs is readonly SpecWord[] {
  return Array.isArray(specs);
}

/** A result as the whole tensor that its pieces join to. */
function joinedResult(
  leaf: TracedValue,
  spec: readonly AxisType[],
  axes: readonly string[],
  mesh: DeviceMesh,
  operands: readonly TracedValue[],
): TracedValue {
  const shape = leaf.shape.map((size, d) =>
    axes.reduce<typeof size>((n, axis, a) => {
      if (cutOf(spec[a]) !== d || typeof n !== 'number') return n;
      return n * mesh.sizes[mesh.indexOf(axis)];
    }, size),
  );
  const type = tensorType(
    leaf.dtype,
    shape.map((size, d) => (typeof size === 'number' ? size : leaf.type.shape[d])),
  );
  return {
    ...leaf,
    shape,
    type,
    requiresGrad: isFloating(leaf.dtype) && operands.some((x) => x.requiresGrad),
  };
}
