/** The open table of placement kinds: how texts name each, and how its text is read. */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError, suggestion } from '../../errors.ts';
import type { Placement } from './placement.ts';
import type { Scanner } from './scan.ts';

/**
 * A kind of placement as texts know it: the words that start its texts, and how to read the rest.
 */
export interface PlacementKind {
  /** The `kind` of its placements. */
  readonly kind: string;
  /**
   * Words that start its texts: a capital letter, then letters and digits; a `_` may come first.
   */
  readonly words: readonly string[];
  /** Reads what follows the word and makes the placement. */
  readonly parse: (scan: Scanner, word: string) => Placement;
}

const WORD = /^_?[A-Z][A-Za-z0-9]*$/;

/**
 * The kinds of placement that texts may use: an open set. A table is a value that is passed to who
 * reads texts; there is no global one to change.
 */
export class PlacementKinds {
  private readonly kinds = new Map<string, PlacementKind>();
  /** Longest words first, so that `Shard` is not read as `S`. */
  private byLength: { readonly word: string; readonly kind: PlacementKind }[] = [];

  constructor(kinds: Iterable<PlacementKind> = []) {
    checkKinds('PlacementKinds', { kinds: [kinds, 'placementKinds', 'set', 'undefined'] });
    for (const kind of kinds) this.register(kind);
  }

  /**
   * Adds a kind.
   *
   * @throws E_DUP for a kind or word that is there already, E_PLACEMENT for a word that cannot be
   *   told from others
   */
  register(kind: PlacementKind): this {
    checkKinds('register', { kind: [kind, ['kind', 'words', 'parse']] });
    checkKinds('register', { words: [kind.words, 'names'] });
    if (this.kinds.has(kind.kind))
      throw new ShardwrightError('E_DUP', `placement kind '${kind.kind}' is registered twice`, {
        hint: 'remove the earlier one first, or choose another name',
      });
    if (kind.words.length === 0)
      throw new ShardwrightError(
        'E_PLACEMENT',
        `placement kind '${kind.kind}' has no word for its texts`,
      );
    const known = this.words();
    for (const word of kind.words) {
      if (!WORD.test(word))
        throw new ShardwrightError(
          'E_PLACEMENT',
          `'${word}' cannot start the text of a placement`,
          {
            hint: 'a capital letter, then letters and digits; a _ may stand before',
          },
        );
      if (known.includes(word))
        throw new ShardwrightError('E_DUP', `placement word '${word}' is taken`);
      // Texts are written without blanks between placements, so `RS` would read as R and S before
      // it.
      if (isSequence(word, known))
        throw new ShardwrightError(
          'E_PLACEMENT',
          `'${word}' reads as several placements in a row`,
          {
            hint: 'choose a word that is not made of other words',
          },
        );
    }
    this.kinds.set(kind.kind, kind);
    this.sort();
    return this;
  }

  /** Takes a kind away; whether it was there. */
  remove(kind: string): boolean {
    const found = this.kinds.delete(kind);
    if (found) this.sort();
    return found;
  }

  /** All kinds, in the order in which they were registered. */
  list(): PlacementKind[] {
    return [...this.kinds.values()];
  }

  get(kind: string): PlacementKind | undefined {
    return this.kinds.get(kind);
  }

  /** All words, longest first. */
  words(): string[] {
    return this.byLength.map((entry) => entry.word);
  }

  /** Reads one placement. @throws E_SYNTAX with the column */
  read(scan: Scanner): Placement {
    scan.blanks();
    const start = scan.position;
    for (const { word, kind } of this.byLength) {
      if (!scan.take(word)) continue;
      // A word ends before a bracket, a digit, a blank or the capital letter (or _) of the next
      // placement.
      if (!/[a-z]/.test(scan.peek())) return kind.parse(scan, word);
      scan.back(start);
    }
    const got = scan.match(/[A-Za-z_][A-Za-z0-9_]*/y);
    scan.back(start);
    return scan.fail(
      'a placement',
      got === undefined ? undefined : suggestion(got, this.words(), 'placements'),
    );
  }

  private sort(): void {
    this.byLength = this.list()
      .flatMap((kind) => kind.words.map((word) => ({ word, kind })))
      .sort((a, b) => b.word.length - a.word.length || (a.word < b.word ? -1 : 1));
  }
}

/** Tells whether a text is two or more words one after the other. */
function isSequence(text: string, words: readonly string[]): boolean {
  // reach[i]: the first i characters are whole words.
  const reach = new Uint8Array(text.length + 1);
  reach[0] = 1;
  for (let i = 1; i <= text.length; i++)
    for (const word of words)
      if (
        word.length <= i &&
        reach[i - word.length] === 1 &&
        text.startsWith(word, i - word.length)
      )
        reach[i] = 1;
  return reach[text.length] === 1;
}
