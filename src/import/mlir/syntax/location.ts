/**
 * Locations: `loc("file.py":12:3)`, `loc("name"(#loc2))`, `loc(fused[...])`, `loc(callsite(a at
 * b))`, `loc(#loc1)`. Of a fused or call-site location the first part with a name or a place
 * counts.
 */

import { defined } from '../../../defined.ts';
import type { MlirReader } from './reader.ts';
import type { MlirLocation } from './syntax.ts';

/** Reads `loc(...)`. */
export function readMlirLocation(reader: MlirReader): MlirLocation {
  reader.expectWord('loc');
  reader.expect('(');
  const location = readLocation(reader);
  reader.expect(')');
  return location;
}

export function optionalLocation(reader: MlirReader): MlirLocation | undefined {
  return reader.peekWord('loc') ? readMlirLocation(reader) : undefined;
}

function readLocation(reader: MlirReader): MlirLocation {
  return reader.nested(() => {
    if (reader.peekWord('loc')) return readMlirLocation(reader);
    if (reader.peek('#')) return { alias: reader.sigil('#', 'a location') };
    if (reader.peek('"')) return readNamed(reader);
    const at = reader.pos;
    switch (reader.word('a location')) {
      case 'unknown':
        return {};
      case 'callsite': {
        reader.expect('(');
        const callee = readLocation(reader);
        reader.expectWord('at');
        const caller = readLocation(reader);
        reader.expect(')');
        return isKnown(callee) ? callee : caller;
      }
      case 'fused': {
        if (reader.accept('<')) reader.balanced();
        const parts = reader.list('[', ']', () => readLocation(reader));
        return parts.find(isKnown) ?? {};
      }
      default:
        return reader.fail('expected a location', at);
    }
  });
}

function isKnown(location: MlirLocation): boolean {
  return (
    location.name !== undefined || location.place !== undefined || location.alias !== undefined
  );
}

/**
 * `"file":line:column`, with `to` and further numbers in ranges, or `"name"` with the location that
 * it names.
 */
function readNamed(reader: MlirReader): MlirLocation {
  const text = reader.string('a string');
  if (reader.accept(':')) {
    const line = reader.size('a line');
    const column = reader.accept(':') ? reader.size('a column') : undefined;
    if (reader.acceptWord('to')) readRangeEnd(reader);
    return { place: column === undefined ? `${text}:${line}` : `${text}:${line}:${column}` };
  }
  if (!reader.accept('(')) return { name: text };
  const child = readLocation(reader);
  reader.expect(')');
  return { ...child, name: text };
}

/** `:column` of the same line, or `line:column`, as MLIR prints the end of a range. */
function readRangeEnd(reader: MlirReader): void {
  if (reader.peekNumber()) reader.size('a line');
  while (reader.accept(':')) reader.size('a number');
}

/**
 * A location with its aliases followed: name from the outermost, place from the first that has one.
 */
export function resolveLocation(
  location: MlirLocation | undefined,
  aliases: ReadonlyMap<string, MlirLocation>,
): { readonly name?: string; readonly place?: string } {
  let name: string | undefined;
  let place: string | undefined;
  let at = location;
  // A chain of aliases longer than their number goes round.
  for (let hops = 0; at !== undefined && hops <= aliases.size; hops++) {
    name ??= at.name;
    place ??= at.place;
    at = at.alias === undefined ? undefined : aliases.get(at.alias);
  }
  return { ...defined({ name, place }) };
}
