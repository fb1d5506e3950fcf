// Keeps the code that V8 makes of the command line's script (src/cli/thread/compiled-program.mjs),
// in: the folder of a build. It plans the bundled model first, so that the functions of a plan are
// among what is kept. The build runs it in a process of its own, because the code is good for the
// flags that a command sets.
import { writeFileSync } from 'node:fs';
import { join, resolve, sep } from 'node:path';
import { pathToFileURL } from 'node:url';
import { setFlagsFromString } from 'node:v8';

const dist = resolve(process.argv[2] ?? 'dist');
/** @param {string[]} path */
const built = (...path) => pathToFileURL(join(dist, ...path)).href;

/** @type {typeof import('../src/cli/runtime.ts')} */
const { tuneRuntime } = await import(built('cli', 'runtime.js'));
tuneRuntime();
/** @type {typeof import('../src/cli/thread/compiled-program.mjs')} */
const { codeFile, loadProgram, placeOf } = await import(
  built('cli', 'thread', 'compiled-program.mjs')
);
const file = codeFile();
// Else V8 forgets the code of what runs at the start alone.
setFlagsFromString('--no-flush-bytecode');
const folder = pathToFileURL(join(dist, 'compiled') + sep);
const { script, program } = loadProgram(folder);
let errors = '';
const code = await program.runCli(['demo'], {
  stdout: () => undefined,
  stderr: (text) => void (errors += text),
  isTerminal: false,
});
if (code !== 0) throw new Error(`the bundled model cannot be planned (exit ${code}): ${errors}`);
setFlagsFromString('--flush-bytecode');
if (codeFile() !== file) throw new Error('the flags of V8 are not what they were');
writeFileSync(new URL(file, folder), Buffer.concat([script.createCachedData(), placeOf(folder)]));
