/**
 * Loads the whole command line as one script with the code that V8 made of it, so that a command
 * neither finds a hundred modules nor compiles them. Where the build left no code for this V8 and
 * its flags, the caller loads the modules, which do the same. The build keeps the code of the Node
 * that built, in `dist/compiled`; the published package has none. It is plain JavaScript, because a
 * thread starts with it.
 *
 * Source: "Code caching for JavaScript developers" of v8.dev, on `cachedData`.
 */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { cachedDataVersionTag } from 'node:v8';
import { constants, Script } from 'node:vm';

/**
 * @typedef {object} Program
 * @property {typeof import('../program.ts').runCli} runCli
 * @property {typeof import('./command-thread-main.ts').serve} serve
 */

/** Commands whose work starts with a good part of all modules; the others load few. */
const LARGE = new Set(['demo', 'plan', 'compare', 'audit', 'verify', 'batch']);

/**
 * The program that a command line is run by, where it is at hand.
 *
 * @param {readonly string[]} argv
 * @returns {Program | undefined}
 */
export function compiledProgram(argv) {
  if (!LARGE.has(argv[0] ?? '')) return undefined;
  // A traced program shares the library with the command: both load its modules.
  if (argv.some((word) => /\.m?[jt]s$/.test(word))) return undefined;
  const folder = new URL('../../compiled/', import.meta.url);
  const file = new URL(codeFile(), folder);
  if (!existsSync(file)) return undefined;
  const kept = readFileSync(file);
  const place = placeOf(folder);
  const code = kept.subarray(0, Math.max(0, kept.length - place.length));
  return kept.subarray(code.length).equals(place) ? loadProgram(folder, code).program : undefined;
}

/** The file of the code that this V8 takes, with the flags that it has now. */
export function codeFile() {
  return `program-${cachedDataVersionTag()}.code`;
}

/**
 * The bytes after the code in its file: the script's path, which the code contains and stack traces
 * show. A checkout that was moved has no code until it is built again.
 *
 * @param {URL} folder
 */
export function placeOf(folder) {
  return Buffer.from(fileURLToPath(folder));
}

/**
 * Loads the script of a folder that the build wrote. Code that V8 refuses costs time and changes
 * nothing.
 *
 * @param {URL} folder
 * @param {Buffer} [code]
 * @returns {{ script: Script, program: Program }}
 */
export function loadProgram(folder, code) {
  const url = new URL('program.js', folder);
  // The linker writes ASCII: read so, the text takes a byte a character.
  const script = new Script(readFileSync(url, 'latin1'), {
    filename: fileURLToPath(url),
    ...(code === undefined ? {} : { cachedData: code }),
    importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
  /** @type {{ exports: Program }} */
  const module = { exports: /** @type {Program} */ ({}) };
  script.runInThisContext()(createRequire(url), module, url.href);
  return { script, program: module.exports };
}
