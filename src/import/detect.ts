/**
 * Tells the format of a model from its bytes: the first code line, the magic number, the JSON keys.
 */

import { ShardwrightError } from '../errors.ts';
import { itemAt } from '../item-at.ts';
import { refuseUtf16 } from '../utf8.ts';
import { type Format, FORMAT_NAMES } from './formats.ts';

/**
 * Format of a model by its content: the first code line of a text, the magic of an archive, the
 * keys of a JSON object. File names are never asked. Compiler dumps mention each other's syntax in
 * comments, so comments do not count.
 *
 * @param content unpacked bytes or text
 * @throws E_FORMAT_UNKNOWN with the first 60 characters and the list of formats, E_ENCODING for
 *   text that is not UTF-8
 */
export function detectFormat(content: Uint8Array | string): Format {
  if (typeof content !== 'string') {
    const binary = detectBinary(content);
    if (binary !== undefined) return binary;
    refuseUtf16(content);
  }
  const head = typeof content === 'string' ? content.slice(0, HEAD) : decodeHead(content);
  const found = detectText(head, content.length <= HEAD ? undefined : content);
  if (found !== undefined) return found;
  throw new ShardwrightError(
    'E_FORMAT_UNKNOWN',
    `this is not a format we know; it begins with ${JSON.stringify(head.slice(0, 60))}`,
    { hint: `known formats: ${FORMAT_NAMES.join(', ')}; --format NAME says which it is` },
  );
}

const HEAD = 1 << 16;

function detectBinary(bytes: Uint8Array): Format | undefined {
  if (bytes[0] === 0x50 && bytes[1] === 0x4b && bytes[2] === 3 && bytes[3] === 4)
    return isPt2(bytes) ? 'pt2' : undefined;
  return isOnnx(bytes) ? 'onnx' : undefined;
}

/** A zip whose directory has `NAME/models/x.json`, or the member of the old format. */
function isPt2(bytes: Uint8Array): boolean {
  const names = new TextDecoder('latin1').decode(
    bytes.subarray(Math.max(0, bytes.length - (1 << 20))),
  );
  return /models\/[^/\0]{1,255}\.json|serialized_exported_program\.json/.test(names);
}

/**
 * Protobuf whose field 1 is a small varint (IR version) and that has a field 7 (the graph) of bytes
 * within the file.
 */
function isOnnx(bytes: Uint8Array): boolean {
  const [key, version = 0] = bytes;
  if (key !== 0x08 || version === 0 || version > 64) return false;
  let pos = 2;
  for (let fields = 0; fields < 64 && pos < bytes.length; fields++) {
    const key = varint(bytes, pos);
    if (key === undefined) return false;
    pos = key.end;
    const field = Math.floor(key.value / 8);
    const wire = key.value % 8;
    const value = wire === 0 || wire === 2 ? varint(bytes, pos) : undefined;
    if (value === undefined) return false;
    pos = wire === 2 ? value.end + value.value : value.end;
    if (pos > bytes.length) return false;
    if (field === 7) return wire === 2;
  }
  return false;
}

function varint(bytes: Uint8Array, from: number): { value: number; end: number } | undefined {
  let value = 0;
  for (let i = 0; i < 8; i++) {
    const b = bytes[from + i];
    if (b === undefined) return undefined;
    value += (b & 127) * 2 ** (7 * i);
    if (b < 128) return { value, end: from + i + 1 };
  }
  return undefined;
}

function decodeHead(bytes: Uint8Array): string {
  return new TextDecoder('utf-8').decode(bytes.subarray(0, HEAD));
}

function detectText(head: string, all: Uint8Array | string | undefined): Format | undefined {
  const text = head.startsWith('\ufeff') ? head.slice(1) : head;
  if (/^\s*\{\s*lambda\b|^\s*let\s+\w+\s*=\s*\{\s*lambda\b/.test(text)) return 'jaxpr';
  if (/^\s*\{/.test(text)) return detectJson(text, all);
  const line = firstCodeLine(text);
  if (/^swgraph\s+\d/.test(line)) return 'swgraph';
  if (line.startsWith('ExportedProgram:')) return 'exported-program';
  if (line.startsWith('graph():')) return 'fx-graph';
  if (/^(\S+ )?class (\w+|<lambda>)\([\w.]*\):/.test(line)) return 'fx';
  if (/^[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ /.test(line))
    return /\] \{/.test(line) ? 'torch-trace' : 'torch-log';
  if (line.startsWith('HloModule ')) return 'hlo';
  if (/^(module\b|"builtin\.module"|#loc|func\.func\b|sdy\.mesh\b)/.test(line)) return 'stablehlo';
  // Python files that define a graph class after their imports.
  if (/^(import|from) /.test(line) && /^class \w+\([\w.]*\):/m.test(text)) return 'fx';
  // Inductor's repro files may begin with the values of sizes and settings of the compiler.
  if (/^\w+ = \d+$|^os\.environ|^torch\./.test(line) && /^class Repro\([\w.]*\):/m.test(text))
    return 'fx';
  return undefined;
}

/**
 * First line that is neither blank nor a comment of Python (`#`) or MLIR (`//`); `#loc` is code.
 */
function firstCodeLine(text: string): string {
  let pos = 0;
  for (;;) {
    const stop = text.indexOf('\n', pos);
    const line = text.slice(pos, stop < 0 ? undefined : stop).trim();
    const comment = (line.startsWith('#') && !line.startsWith('#loc')) || line.startsWith('//');
    if (line !== '' && !comment) return line;
    if (stop < 0) return '';
    pos = stop + 1;
  }
}

/** Top-level keys decide; they are searched in the text, as the values may be huge. */
function detectJson(head: string, all: Uint8Array | string | undefined): Format | undefined {
  const has = (key: string): boolean => {
    if (head.includes(`"${key}"`)) return true;
    if (all === undefined) return false;
    return typeof all === 'string' ? all.includes(`"${key}"`) : indexOfBytes(all, `"${key}"`);
  };
  if (head.includes('"shardwright"') || (head.includes('"version"') && has('mesh') && has('proof')))
    return 'plan';
  if (has('graph_module') && has('schema_version')) return 'pt2-json';
  if (/"(model_type|architectures)"/.test(head)) return 'hf-config';
  return undefined;
}

function indexOfBytes(bytes: Uint8Array, word: string): boolean {
  const wanted = new TextEncoder().encode(word);
  const first = itemAt(wanted, 0);
  for (let at = bytes.indexOf(first); at >= 0; at = bytes.indexOf(first, at + 1))
    if (wanted.every((byte, k) => bytes[at + k] === byte)) return true;
  return false;
}
