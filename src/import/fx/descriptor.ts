/** Reads AOTAutograd's descriptors of inputs and outputs as torch 2.13 prints them in comments. */

import { pythonString } from './text/literal.ts';

/**
 * AOTAutograd's descriptions of inputs and outputs, as torch 2.13 prints them in comments:
 * `ParamAOTInput(target='fc1.weight')`,
 * `GradAOTOutput(grad_of=ParamAOTInput(target='fc1.weight'))`.
 */
export type InputDescriptor =
  | { readonly kind: 'parameter' | 'buffer'; readonly target: string }
  | { readonly kind: 'input'; readonly index: number | undefined }
  | { readonly kind: 'tangent'; readonly output: number | undefined };

type OutputDescriptor =
  | { readonly kind: 'output'; readonly index: number | undefined }
  | { readonly kind: 'grad' | 'mutation'; readonly of: InputDescriptor };

/**
 * Meaning of an input descriptor. Kinds that torch has and we have no word for count as plain
 * inputs.
 */
export function inputDescriptor(text: string): InputDescriptor {
  const { name, rest } = split(text);
  const target = stringField(rest, 'target');
  if (name === 'ParamAOTInput' && target !== undefined) return { kind: 'parameter', target };
  if (name === 'BufferAOTInput' && target !== undefined) return { kind: 'buffer', target };
  if (name === 'TangentAOTInput')
    return { kind: 'tangent', output: intField(rest, 'PlainAOTOutput(idx=') };
  return { kind: 'input', index: name === 'PlainAOTInput' ? intField(rest, 'idx=') : undefined };
}

/** Meaning of an output descriptor; a kind without a word of ours is a plain output. */
export function outputDescriptor(text: string): OutputDescriptor {
  const { name, rest } = split(text);
  if (name === 'GradAOTOutput' && rest.startsWith('grad_of='))
    return { kind: 'grad', of: inputDescriptor(rest.slice('grad_of='.length, -1)) };
  if (name === 'InputMutationAOTOutput' && rest.startsWith('mutated_input='))
    return { kind: 'mutation', of: inputDescriptor(rest.slice('mutated_input='.length, -1)) };
  return { kind: 'output', index: name === 'PlainAOTOutput' ? intField(rest, 'idx=') : undefined };
}

function split(text: string): { name: string; rest: string } {
  const open = text.indexOf('(');
  return {
    name: open < 0 ? text : text.slice(0, open),
    rest: open < 0 ? '' : text.slice(open + 1),
  };
}

function stringField(rest: string, field: string): string | undefined {
  if (!rest.startsWith(`${field}=`)) return undefined;
  const start = field.length + 1;
  const quote = rest[start];
  if (quote !== "'" && quote !== '"') return undefined;
  for (let end = start + 1; end < rest.length; end++) {
    if (rest[end] === '\\') end++;
    else if (rest[end] === quote) return pythonString(rest.slice(start, end + 1));
  }
  return undefined;
}

function intField(rest: string, before: string): number | undefined {
  const at = rest.indexOf(before);
  if (at < 0) return undefined;
  const digits = /^\d{1,9}/.exec(rest.slice(at + before.length))?.[0];
  return digits === undefined ? undefined : Number(digits);
}
