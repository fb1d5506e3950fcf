/**
 * Reads the part of `str(ExportedProgram)` behind the class: roles with full names, and ranges of
 * symbolic sizes.
 */

import { defined } from '../../defined.ts';
import type { Graph, NodeMeta, Output } from '../../graph/types.ts';
import { setOwn } from '../../graph/value.ts';
import type { Scanner } from '../file/scan.ts';
import type { Signature } from './graph.ts';
import type { FxClass } from './record.ts';
import { withoutUnused } from './signature.ts';
import { pythonString } from './text/literal.ts';

interface ExportedParts {
  /** Offset of the class, behind the line `ExportedProgram:`. */
  readonly classStart: number;
  /** Offset of `Graph signature:`. */
  readonly classEnd: number;
}

/**
 * The place where the class ends and the signature starts; the whole text where no signature
 * follows.
 */
export function signatureStart(text: string): ExportedParts {
  const head = text.indexOf('ExportedProgram:');
  const classStart = text.indexOf('\n', head) + 1;
  const at = text.indexOf('\nGraph signature:', classStart);
  return {
    classStart: classStart === 0 ? text.length : classStart,
    classEnd: at < 0 ? text.length : at + 1,
  };
}

/**
 * Roles as the signature states them.
 *
 * @throws E_SYNTAX when a line cannot be read or the lists do not match the inputs and outputs
 */
export function exportedSignature(
  text: string,
  parts: ExportedParts,
  root: FxClass,
  scanner: Scanner,
): { signature: Signature; dims?: NonNullable<Graph['dims']> } {
  if (parts.classEnd >= text.length)
    scanner.fail(
      'E_SYNTAX',
      `expected 'Graph signature:' behind the class, found the end of the text`,
      text.length,
      'print the whole ExportedProgram',
    );
  const { inputs, outputs, dims } = readSignature(text, parts, scanner);
  if (inputs.length !== root.inputs.length || outputs.length !== root.returns.length)
    scanner.fail(
      'E_SYNTAX',
      `the signature lists ${inputs.length} inputs and ${outputs.length} outputs, the class ` +
        `has ${root.inputs.length} and ${root.returns.length}`,
      parts.classEnd,
    );
  return {
    signature: withoutUnused({ inputs, outputs, notes: [] }, root),
    ...defined({ dims }),
  };
}

/** The lines of the signature, up to the ranges of sizes. */
interface SignatureLines {
  readonly inputs: NodeMeta[];
  readonly outputs: Omit<Output, 'value'>[];
  readonly dims?: NonNullable<Graph['dims']> | undefined;
}

function readSignature(text: string, parts: ExportedParts, scanner: Scanner): SignatureLines {
  const inputs: NodeMeta[] = [];
  const outputs: Omit<Output, 'value'>[] = [];
  let section: 'none' | 'inputs' | 'outputs' = 'none';
  let userOutputs = 0;
  for (let pos = text.indexOf('\n', parts.classEnd) + 1; pos > 0 && pos < text.length;) {
    const stop = text.indexOf('\n', pos);
    const end = stop < 0 ? text.length : stop;
    const line = text.slice(pos, end).trim();
    const at = pos;
    pos = end + 1;
    if (line === '') continue;
    if (line === '# inputs') section = 'inputs';
    else if (line === '# outputs') section = 'outputs';
    else if (line.startsWith('Range constraints:'))
      return { inputs, outputs, dims: ranges(line, at, scanner) };
    else {
      const { name, kind, fqn } = signatureLine(line, section !== 'none', at, scanner);
      if (section === 'inputs') inputs.push(inputMeta(name, kind, fqn));
      else outputs.push(outputRole(kind, fqn) ?? { role: 'output', index: userOutputs++ });
    }
  }
  return scanner.fail(
    'E_SYNTAX',
    `expected 'Range constraints:', found the end of the text`,
    text.length,
    'print the whole ExportedProgram',
  );
}

/** `name: KIND target='...'` */
function signatureLine(
  line: string,
  isInSection: boolean,
  at: number,
  scanner: Scanner,
): { readonly name: string; readonly kind: string; readonly fqn: string | undefined } {
  const match = /^(\w+): ([A-Z_]+)((?: [a-z_]+=(?:'[^']*'|\w+))*)$/.exec(line);
  if (match === null || !isInSection)
    return scanner.fail(
      'E_SYNTAX',
      `expected 'name: KIND target=...', found '${line.slice(0, 60)}'`,
      at,
      'older torch prints another signature; use print_readable() or .pt2',
    );
  const [, name = '', kind = '', rest = ''] = match;
  const target = /target='([^']*)'/.exec(rest);
  const fqn = target === null ? undefined : pythonString(`'${target[1]}'`);
  return { name, kind, fqn };
}

function inputMeta(name: string, kind: string, fqn: string | undefined): NodeMeta {
  if (kind === 'PARAMETER' && fqn !== undefined) return { role: 'parameter', roleName: fqn };
  if (kind === 'BUFFER' && fqn !== undefined) return { role: 'buffer', roleName: fqn };
  if (kind === 'CONSTANT_TENSOR' && fqn !== undefined) return { role: 'constant', roleName: fqn };
  return { role: 'input', roleName: name };
}

function outputRole(kind: string, of: string | undefined): Omit<Output, 'value'> | undefined {
  if (of === undefined) return undefined;
  if (kind === 'PARAMETER_MUTATION' || kind === 'BUFFER_MUTATION' || kind === 'USER_INPUT_MUTATION')
    return { role: 'mutation', of };
  if (kind === 'GRADIENT_TO_PARAMETER' || kind === 'GRADIENT_TO_USER_INPUT')
    return { role: 'grad', of };
  return undefined;
}

/** `Range constraints: {s77: VR[2, 512]}`; `int_oo` is infinite. */
function ranges(
  line: string,
  at: number,
  scanner: Scanner,
): NonNullable<Graph['dims']> | undefined {
  const body = /^Range constraints: \{(.*)\}$/.exec(line)?.[1];
  if (body === undefined) {
    scanner.fail(
      'E_SYNTAX',
      `expected 'Range constraints: {...}', found '${line.slice(0, 60)}'`,
      at,
    );
    return undefined;
  }
  if (body.trim() === '') return undefined;
  const dims: Record<string, { min: number; max: number }> = {};
  const entry = /([^,:{}[\]]+): VR\[(\w+), (\w+)\](?:, |$)/y;
  while (entry.lastIndex < body.length) {
    const match = entry.exec(body);
    if (match === null) {
      scanner.fail('E_SYNTAX', `expected 'symbol: VR[low, high]' in '${line.slice(0, 60)}'`, at);
      return undefined;
    }
    const bound = (word: string): number => (word === 'int_oo' ? Infinity : Number(word));
    const [, name = '', low = '', high = ''] = match;
    if (Number.isNaN(bound(low)) || Number.isNaN(bound(high)))
      scanner.fail('E_SYNTAX', `'VR[${low}, ${high}]' is not a range`, at);
    setOwn(dims, name.trim(), { min: bound(low), max: bound(high) });
  }
  return dims;
}
