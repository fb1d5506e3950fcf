// Builds dist/ from src/: tsc writes every module, then the library and the CLI are linked into a few files, because a
// third of a short command's time would go into finding and opening 400 modules. `npm ci` runs it through "prepare", so a
// fresh clone has a working CLI.
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const require = createRequire(import.meta.url);
const tsc = join(dirname(require.resolve('typescript/package.json')), 'bin', 'tsc');
const dist = join(root, 'dist');
const linked = join(dist, 'linked');

rmSync(dist, { recursive: true, force: true });
execFileSync(process.execPath, [tsc, '-p', join(root, 'tsconfig.build.json')], { stdio: 'inherit' });

/**
 * A linked module still finds data and worker files where tsc wrote it.
 *
 * @type {import('esbuild').Plugin}
 */
const ownPlace = {
  name: 'own-place',
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]dist[\\/].*\.js$/ }, ({ path }) => {
      const text = readFileSync(path, 'utf8');
      const from = relative(linked, path).replaceAll('\\', '/');
      return { contents: text.replaceAll('import.meta.url', `new URL(${JSON.stringify(from)}, import.meta.url).href`) };
    });
  },
};

// One link for both, so that a program traced by the CLI and the CLI itself share one library. Of the packages only zod,
// a hundred small modules, is linked in; its licence goes with it.
await build({
  entryPoints: [join(dist, 'index.js'), join(dist, 'cli', 'main.js')],
  outdir: linked,
  entryNames: '[name]',
  chunkNames: '[name]-[hash]',
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node20',
  external: Object.keys(JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).dependencies).filter(
    (name) => name !== 'zod',
  ),
  plugins: [ownPlace],
  logLevel: 'warning',
});
copyFileSync(join(dirname(require.resolve('zod/package.json')), 'LICENSE'), join(linked, 'zod.LICENSE'));
writeFileSync(join(dist, 'index.js'), "export * from './linked/index.js';\n");
const main = join(dist, 'cli', 'main.js');
writeFileSync(main, "#!/usr/bin/env node\nimport '../linked/main.js';\n");
chmodSync(main, 0o755);
