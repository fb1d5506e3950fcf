/** Finds which results of a jitted program take the place of the inputs that it donates. */

import { typeText } from '../../graph/value.ts';
import type { Jaxpr, Variable } from './text/syntax.ts';

/** The primitive of `jax.jit`, and its name before JAX 0.7. */
const JIT: ReadonlySet<string> = new Set(['jit', 'pjit']);

/**
 * Names of donated inputs by the position of the output that replaces each, of a program that is
 * one call of `jit`: each result takes the first donated input of its type that no other has, as
 * when JAX lowers the program (`_set_up_aliases` in `jax/_src/interpreters/mlir.py`, JAX 0.10.2).
 */
export function replacedInputs({ equations, outputs }: Jaxpr): ReadonlyMap<number, string> {
  const replaced = new Map<number, string>();
  const [call] = equations;
  if (call === undefined || equations.length > 1 || !JIT.has(call.primitive)) return replaced;
  const flags = call.parameters.get('donated_invars')?.text.match(/True|False/g) ?? [];
  const [body] = call.parameters.get('jaxpr')?.bodies ?? [];
  if (body === undefined || flags.length !== call.operands.length) return replaced;
  const offered = new Map<string, string[]>();
  call.operands.forEach((operand, i) => {
    const input = body.inputs[i];
    if (flags[i] !== 'True' || operand.kind !== 'variable' || input === undefined) return;
    const key = typeKey(input);
    const same = offered.get(key);
    if (same === undefined) offered.set(key, [operand.name]);
    else same.push(operand.name);
  });
  for (const result of call.results) {
    const name = offered.get(typeKey(result))?.shift();
    if (name === undefined) continue;
    const at = outputs.findIndex((atom) => atom.kind === 'variable' && atom.name === result.name);
    if (at >= 0 && result.name !== '_') replaced.set(at, name);
  }
  return replaced;
}

function typeKey({ type, key = '' }: Variable): string {
  return `${typeText(type)} ${key}`;
}
