/**
 * Finds exported values of src/ that no product code uses: neither their own file nor another one.
 * The texts of the files go in, by path from the root; `path: name` of each comes out. Tests are
 * not among the files, so what only they use is found. The texts are read by their lines, as
 * prettier writes them: `export const NAME`, `import { NAME } from './path.ts'`.
 */
import { dirname, normalize } from 'node:path/posix';

const EXPORT = /^export (?:async |abstract )*(?:const|let|function\*?|class|enum) (\w+)/gm;
const LINK = /^(?:import|export) (?:type )?(\*[\w\s]*|\{[^}]*\}) from '(\.[^']+)'/gm;
/**
 * A module that is loaded when it is needed, or started as a thread: all of its exports count as
 * used.
 */
const LOADED = /(?:import\(|file: |new URL\()\s*'(\.[^']+)'/g;
const COMMENT = /^\s*(?:\/\*\*?|\*|\/\/).*$/gm;

/**
 * @param {ReadonlyMap<string, string>} texts
 * @param {readonly string[]} entries files whose exports are for users
 * @returns {string[]}
 */
export function unusedExports(texts, entries) {
  const used = new Set(entries.map((path) => `${path}: *`));
  for (const [path, text] of texts) {
    /** @param {string} to */
    const target = (to) => normalize(`${dirname(path)}/${to}`);
    for (const [, names, to] of text.matchAll(LINK))
      for (const name of names.startsWith('*') ? ['*'] : names.slice(1, -1).split(','))
        used.add(
          `${target(to)}: ${
            name
              .trim()
              .replace(/^type /, '')
              .split(' as ')[0]
          }`,
        );
    for (const [, to] of text.matchAll(LOADED)) used.add(`${target(to)}: *`);
  }
  /** @type {string[]} */
  const found = [];
  for (const [path, text] of texts) {
    if (!path.startsWith('src/') || used.has(`${path}: *`)) continue;
    const code = text.replace(COMMENT, '');
    for (const [, name] of text.matchAll(EXPORT)) {
      const places = code.match(new RegExp(`(?<![\\w$])${name}(?![\\w$])`, 'g')) ?? [];
      if (!used.has(`${path}: ${name}`) && places.length < 2) found.push(`${path}: ${name}`);
    }
  }
  return found;
}
