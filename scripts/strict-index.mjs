/**
 * Checks the folders of `STRICT` with `noUncheckedIndexedAccess`, in which every `list[i]` may be
 * undefined. TypeScript has the flag for a whole program alone, so errors elsewhere are left out.
 */
import { dirname, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

import ts from 'typescript';

const STRICT = ['src/cli/', 'src/import/', 'src/report/', 'src/text/'];

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const config = ts.getParsedCommandLineOfConfigFile(
  `${root}/tsconfig.strict-index.json`,
  {},
  {
    ...ts.sys,
    onUnRecoverableConfigFileDiagnostic: (fault) => {
      throw new Error(ts.flattenDiagnosticMessageText(fault.messageText, '\n'));
    },
  },
);
if (config === undefined) throw new Error('tsconfig.strict-index.json is not readable');
const program = ts.createProgram(config.fileNames, config.options);
const files = program
  .getSourceFiles()
  .filter(({ fileName }) => STRICT.some((at) => relative(root, fileName).startsWith(at)));
const faults = files.flatMap((file) => program.getSemanticDiagnostics(file));
if (faults.length > 0) {
  console.error(
    ts.formatDiagnostics(faults, {
      getCanonicalFileName: (name) => name,
      getCurrentDirectory: () => root,
      getNewLine: () => '\n',
    }),
  );
  process.exit(1);
}
