/** Names of settings as a list of words, from which a pattern of whole names is made. */

/** A pattern of the words of a text, in which `*` stands for any text. */
export function namesOf(words: string): RegExp {
  const names = words
    .trim()
    .split(/\s+/)
    .map((word) => word.replaceAll('.', '\\.').replaceAll('*', '.*'));
  return new RegExp(`^(${names.join('|')})$`);
}
