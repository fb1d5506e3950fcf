/**
 * The options that `getopts` takes from arguments, one a call. Source: the Bash manual, 4.1, and
 * POSIX.1-2017, `getopts`.
 */

/** Where the next option is looked for: the argument, and the character in it. */
export interface OptionPlace {
  /** From 1 on, as `OPTIND` counts. */
  readonly index: number;
  /** 0 before an argument that is not begun. */
  readonly character: number;
}

/** The option that one call of `getopts` finds. */
interface FoundOption {
  /** The letter; `?` for one that is not an option or has no argument, `:` in silent mode. */
  readonly name: string;
  /** The text that `OPTARG` becomes; undefined where it is unset. */
  readonly argument: string | undefined;
  readonly next: OptionPlace;
}

/** The next option; where there is none, the place at which the operands begin. */
export function nextOption(
  letters: string,
  args: readonly string[],
  { index, character }: OptionPlace,
): FoundOption | OptionPlace {
  const word = args.at(index - 1);
  if (index > args.length || word === undefined) return { index, character: 0 };
  if (character === 0) {
    if (word === '--') return { index: index + 1, character: 0 };
    if (!/^-./.test(word)) return { index, character: 0 };
  }
  const at = Math.max(1, character);
  const letter = word[at];
  const isLast = at + 1 >= word.length;
  const after = isLast ? { index: index + 1, character: 0 } : { index, character: at + 1 };
  const isSilent = letters.startsWith(':');
  const place = letter === ':' ? -1 : letters.indexOf(letter);
  if (place < 0) return { name: '?', argument: isSilent ? letter : undefined, next: after };
  if (letters[place + 1] !== ':') return { name: letter, argument: undefined, next: after };
  const behind = { index: index + 1, character: 0 };
  if (!isLast) return { name: letter, argument: word.slice(at + 1), next: behind };
  const argument = args.at(index);
  if (index < args.length && argument !== undefined)
    return { name: letter, argument, next: { index: index + 2, character: 0 } };
  return isSilent
    ? { name: ':', argument: letter, next: behind }
    : { name: '?', argument: undefined, next: behind };
}
