/**
 * The state that a traced function may read in addition to its arguments: named parameters and
 * buffers, module paths, host state.
 */

import { checkKinds } from '../../arguments.ts';
import { checkType, ShardwrightError, valueText as kindText, wrongArgument } from '../../errors.ts';
import type { DType } from '../../graph/types.ts';
import { parseMesh } from '../../mesh/devices/mesh.ts';
import { localShape } from '../../mesh/sharding/sharding.ts';
import { parseShardingFor } from '../../notations/einshard/on-mesh.ts';
import { refusal } from '../errors/refusal.ts';
import { inModule, needRecorder } from '../record/recorder.ts';
import { DimSpec, knownDtype, type TensorSpec } from '../record/spec.ts';
import type { HostValue } from '../record/tree.ts';
import { valueText } from '../record/typed-value.ts';
import type { Size } from '../sizes/sizes.ts';
import { tracedValue } from './core.ts';
import { type Tensor, tensorOf } from './tensor.ts';

/** The description of a parameter or buffer; a `spec` or a bare shape says the same. */
interface StateSpec {
  readonly shape: readonly Size[];
  /** f32 by default. */
  readonly dtype?: DType;
}

/** Runs `body` with the module path one step longer; the paths of nested scopes join with `.`. */
export function scope<T>(path: string, body: () => T): T {
  checkType('scope', 'path', path, 'string');
  checkType('scope', 'body', body, 'function');
  return inModule(path, body);
}

/**
 * The trainable tensor of this name, below the module path of the scopes around the call. It is
 * declared at its first use; later uses of the same name are the same tensor.
 *
 * @throws E_TRACE_INPUT when the name is declared with another shape, dtype or role
 */
export function param(fqn: string, spec: StateSpec | TensorSpec | readonly Size[]): Tensor {
  return state(fqn, spec, 'parameter');
}

/** A tensor that the model keeps but does not train. @throws E_TRACE_INPUT as `param` does */
export function buffer(fqn: string, spec: StateSpec | TensorSpec | readonly Size[]): Tensor {
  return state(fqn, spec, 'buffer');
}

function state(
  fqn: string,
  given: StateSpec | TensorSpec | readonly Size[],
  role: 'parameter' | 'buffer',
): Tensor {
  checkType(role, 'name', fqn, 'string');
  const { trace } = needRecorder(`${role} '${fqn}'`);
  if (typeof (given as unknown) !== 'object' || (given as unknown) === null)
    throw wrongArgument(role, 'shape', kindText(given), "give param('w', [8, 16]).");
  const { shape: described, dtype = 'f32' } = isShape(given) ? { shape: given } : given;
  knownDtype(dtype);
  const shape = described.map((size): Size => {
    if (!(size instanceof DimSpec)) return size;
    throw refusal(
      'E_TRACE_INPUT',
      `${role} '${fqn}' has the open size '${size.range.name}'`,
      trace.place(),
      {
        hint: 'a parameter has fixed sizes, or sizes of the inputs: x.shape[1].',
      },
    );
  });
  const name = trace.path === '' ? fqn : `${trace.path}.${fqn}`;
  const text = `${role} ${valueText({ dtype, shape })}`;
  const known = trace.declared.get(name);
  if (known !== undefined) {
    if (known.text === text) return tensorOf(known.value);
    throw refusal(
      'E_TRACE_INPUT',
      `'${name}' is declared as ${text}, but was declared as ${known.text}`,
      trace.place(),
      {
        hint: 'give one of them another name, or one shape to both.',
      },
    );
  }
  const value = trace.root.placeholder(
    name,
    dtype,
    shape,
    { role, roleName: name },
    role === 'parameter',
  );
  trace.declared.set(name, { value, role, text });
  return tensorOf(value);
}

function isShape(given: StateSpec | TensorSpec | readonly Size[]): given is readonly Size[] {
  return Array.isArray(given);
}

/** Tells whether the trace is of a training step; dropout and the like ask. */
export function isTraining(): boolean {
  return needRecorder('isTraining()').trace.settings.training;
}

/**
 * Reads host state and makes its value a guard: a cached graph holds only while `read()` gives the
 * same.
 *
 * @param name what the guard is called: `mode == "train"`
 */
export function guardOn<T extends HostValue>(name: string, read: () => T): T {
  checkKinds('guardOn', { name: [name, 'string'], read: [read, 'function'] });
  const { trace } = needRecorder('guardOn()');
  const value = read();
  trace.hostGuards.push({ name, value, read });
  return value;
}

/**
 * States where a tensor must live: one placement for each dim of the mesh that `trace` was given,
 * such as `S(0)R` or `['S(0)', 'R']`; or einshard, `a b -> a2 b 4`; or a PartitionSpec, `P("dp",
 * None)`. `plan` takes it for a pin.
 *
 * @throws E_TRACE_INPUT when the trace has no mesh, the placements do not fit mesh and tensor, or
 * the tensor has another sharding already
 */
export function withSharding(tensor: Tensor, placements: string | readonly string[]): Tensor {
  checkKinds('withSharding', { placements: [placements, 'string', 'names'] });
  const { trace } = needRecorder('withSharding()');
  const value = tracedValue(tensor);
  if (trace.settings.mesh === undefined || value === undefined || value.recorder !== trace.root)
    throw refusal(
      'E_TRACE_INPUT',
      `withSharding(${String(placements)}): the trace ` +
        (trace.settings.mesh === undefined
          ? 'has no mesh'
          : 'runs a body, which has no shardings of its own'),
      trace.place(),
      {
        hint: "name the mesh: trace(fn, inputs, { mesh: 'dp=2,tp=4' }).",
      },
    );
  const text = typeof placements === 'string' ? placements : placements.join('');
  const wrong = (why: string, hint: string): ShardwrightError =>
    refusal('E_TRACE_INPUT', `withSharding(%${value.name}, ${text}): ${why}`, trace.place(), {
      hint,
    });
  let sharding: string;
  try {
    const mesh = parseMesh(trace.settings.mesh);
    // Sizes may be open; whether there is such a dim is known.
    const shape = value.shape.map((size) => (typeof size === 'number' ? size : mesh.size));
    const parsed = parseShardingFor(text, mesh, shape);
    localShape(parsed, mesh, shape);
    sharding = parsed.text;
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    throw wrong(
      error.message,
      error.details.hint ?? 'one placement for each dim of the mesh: S(0)R.',
    );
  }
  const earlier = trace.given.find((stated) => stated.value === value.name);
  if (earlier !== undefined && earlier.sharding !== sharding)
    throw wrong(
      `it is ${earlier.sharding} already`,
      'a tensor lives in one placement; state one of the two.',
    );
  if (earlier === undefined) trace.given.push({ value: value.name, sharding, strength: 'pin' });
  return tensor;
}
