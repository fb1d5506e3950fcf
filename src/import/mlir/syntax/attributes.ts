/** Reads the attribute values of MLIR text into plain records. */

import { readMlirLocation } from './location.ts';
import type { MlirReader } from './reader.ts';
import type { Attributes, MlirAttribute, MlirTensor } from './syntax.ts';
import { readType } from './types.ts';

const MAX_ENTRIES = 1_000_000;

export function readAttribute(reader: MlirReader): MlirAttribute {
  return reader.nested(() => readOne(reader));
}

function readOne(reader: MlirReader): MlirAttribute {
  reader.skip();
  const at = reader.pos;
  const c = reader.text[at];
  switch (reader.pos < reader.end ? c : '') {
    case '"': {
      const value = reader.string('a string');
      if (reader.accept(':')) readType(reader);
      return { kind: 'string', value };
    }
    case '[': {
      const items = reader.list('[', ']', () => readAttribute(reader));
      if (items.length > MAX_ENTRIES) reader.fail('the list is too long', at, 'E_LIMIT');
      return { kind: 'list', items };
    }
    case '{':
      return { kind: 'dict', entries: readDictionary(reader) };
    case '@': {
      let name = reader.sigil('@', 'a symbol');
      while (reader.accept('::')) name += `::${reader.sigil('@', 'a symbol')}`;
      return { kind: 'symbol', name };
    }
    case '#':
      return readDialect(reader);
    case '(':
    case '!':
      return { kind: 'type', type: readType(reader) };
    default:
      break;
  }
  if (reader.peekNumber()) return readNumber(reader);
  return readWord(reader);
}

function readNumber(reader: MlirReader): MlirAttribute {
  const { text, form } = reader.number();
  const type = reader.accept(':') ? readType(reader) : undefined;
  const float = type?.kind === 'other' && /^(bf|tf|f)\d/.test(type.text);
  if (form === 'float') return { kind: 'float', value: Number(text) };
  if (form === 'hex' && float) return { kind: 'float', value: Number.NaN, bits: text };
  const value = BigInt(text);
  return { kind: 'int', value: value >= -MAX_SAFE && value <= MAX_SAFE ? Number(value) : value };
}
const MAX_SAFE = BigInt(Number.MAX_SAFE_INTEGER);

function readWord(reader: MlirReader): MlirAttribute {
  const at = reader.pos;
  const word = reader.wordHere();
  switch (word) {
    case undefined:
      return reader.expected('an attribute value');
    case 'true':
    case 'false':
      return { kind: 'bool', value: word === 'true' };
    case 'unit':
      return { kind: 'unit' };
    case 'dense': {
      reader.expect('<');
      const payload = reader.balanced();
      reader.expect(':');
      return { kind: 'dense', payload, type: tensorType(reader) };
    }
    case 'dense_resource': {
      reader.expect('<');
      const name = reader.wordHere() ?? reader.string('the name of a resource');
      reader.expect('>');
      reader.expect(':');
      return { kind: 'resource', name, type: tensorType(reader) };
    }
    case 'array': {
      reader.expect('<');
      readType(reader);
      const items: MlirAttribute[] = [];
      if (reader.accept(':')) {
        do items.push(readAttribute(reader));
        while (reader.accept(','));
      }
      reader.expect('>');
      return { kind: 'list', items };
    }
    case 'loc':
      reader.pos = at;
      readMlirLocation(reader);
      return { kind: 'unit' };
    case 'affine_map':
    case 'affine_set':
    case 'strided':
    case 'opaque':
    case 'sparse':
      reader.expect('<');
      return { kind: 'dialect', name: word, body: reader.balanced() };
    default:
      reader.pos = at;
      return { kind: 'type', type: readType(reader) };
  }
}

function tensorType(reader: MlirReader): MlirTensor {
  const at = reader.pos;
  const type = readType(reader);
  return type.kind === 'tensor' ? type : reader.fail('expected a tensor type', at);
}

/** `#alias`, `#dialect.name<body>`, `#dialect.name`, `#dialect<name body>`. */
function readDialect(reader: MlirReader): MlirAttribute {
  const at = reader.pos;
  const name = reader.sigil('#', 'an attribute');
  // The body starts right behind the name; a blank would begin a comparison, which attributes do
  // not have.
  if (reader.text[reader.pos] === '<' && reader.pos < reader.end) {
    reader.pos++;
    return { kind: 'dialect', name, body: reader.balanced() };
  }
  return name.includes('.')
    ? { kind: 'dialect', name, body: undefined }
    : { kind: 'alias', name, at };
}

/** `{a = 1, b, "c d" = "x"}`; an entry without a value is a flag. */
export function readDictionary(reader: MlirReader): Map<string, MlirAttribute> {
  const entries = new Map<string, MlirAttribute>();
  reader.list('{', '}', () => {
    reader.skip();
    const at = reader.pos;
    const key = reader.peek('"')
      ? reader.string('a name')
      : reader.word('the name of an attribute');
    if (entries.has(key))
      reader.fail(`attribute '${key}' is given twice`, at, 'E_DUP', 'keep one of them');
    entries.set(key, reader.accept('=') ? readAttribute(reader) : { kind: 'unit' });
  });
  return entries;
}

/** Reads the optional dictionary at the position. */
export function optionalDictionary(reader: MlirReader): Attributes | undefined {
  return reader.peek('{') ? readDictionary(reader) : undefined;
}
