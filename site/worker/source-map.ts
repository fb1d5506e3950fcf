/**
 * Places of a transpiled module in the text as it was written. In: a module with an inline source
 * map (version 3, base64 VLQ). Out: a function from line and column, both from 1, to those of the
 * text.
 */
const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

export interface Place {
  readonly line: number;
  readonly column: number;
}

interface Segment extends Place {
  /** Column of the module, from 1. */
  readonly from: number;
}

export function placesOf(module: string): (place: Place) => Place {
  const [, packed] = /sourceMappingURL=data:application\/json;base64,([\w+/=]+)/.exec(module) ?? [];
  if (packed === undefined) return (place) => place;
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const { mappings } = JSON.parse(new TextDecoder().decode(bytes)) as { readonly mappings: string };
  const lines = decoded(mappings);
  return ({ line, column }) =>
    lines[line - 1]?.findLast(({ from }) => from <= column) ??
    lines[line - 1]?.[0] ?? { line, column };
}

/**
 * Segments of each line of the module. Numbers are differences to the segment before; its column
 * begins anew on each line.
 */
function decoded(mappings: string): Segment[][] {
  let [line, column] = [0, 0];
  return mappings.split(';').map((row) => {
    let from = 0;
    return row
      .split(',')
      .filter((text) => text !== '')
      .map((text) => {
        const [a, , b = 0, c = 0] = numbers(text);
        from += a;
        line += b;
        column += c;
        return { from: from + 1, line: line + 1, column: column + 1 };
      });
  });
}

function numbers(text: string): number[] {
  const out: number[] = [];
  let [value, shift] = [0, 0];
  for (const digit of text) {
    const bits = DIGITS.indexOf(digit);
    value += (bits & 31) << shift;
    shift += 5;
    if (bits & 32) continue;
    out.push(value & 1 ? -(value >> 1) : value >> 1);
    [value, shift] = [0, 0];
  }
  return out;
}
