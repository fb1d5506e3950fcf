import fc from 'fast-check';

/** A character of Unicode, surrogates left out. */
const character = fc
  .oneof(fc.integer({ min: 0, max: 0xd7ff }), fc.integer({ min: 0xe000, max: 0x10ffff }))
  .map((code) => String.fromCodePoint(code));

/**
 * Texts of any characters of Unicode. `fc.string({ unit: 'binary' })` draws the same, but lists all
 * million characters first, which takes a second.
 */
export function binaryText(lengths: fc.ArrayConstraints = {}): fc.Arbitrary<string> {
  return fc.array(character, lengths).map((characters) => characters.join(''));
}
