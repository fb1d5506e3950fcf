// Builds dist/ from src/: tsc writes every module, then what Node loads is linked into a few files,
// because a third of a short command's time would go into finding and opening 400 modules; the
// modules themselves are left out. `npm ci` runs it through "prepare", so a fresh clone has a
// working CLI. It is built beside the old dist/, which works until the new one takes its place.
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

import { build } from 'esbuild';

import { packageDataModule } from './package-data.mjs';
import { SOURCES_HASH, sourcesHash } from './sources-hash.mjs';
import { TSC } from './tsc.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const require = createRequire(import.meta.url);
const dist = join(root, 'dist');
const next = join(root, `dist.next-${process.pid}`);
const old = join(root, `dist.old-${process.pid}`);
const linked = join(next, 'linked');
// Beside `linked`, so that paths lead from both to the same places.
const compiled = join(next, 'compiled');

/**
 * @type {{ exports: Record<string, string | { types: string, default: string }>, bin:
 *   Record<string, string>, dependencies: Record<string, string> }}
 */
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const exported = Object.values(manifest.exports).flatMap((entry) =>
  typeof entry === 'string' ? [] : [entry],
);
/** @param {string} path `./dist/index.js` of package.json */
const built = (path) => join(next, relative('dist', path));

// Of the sources before they are compiled: a file that is edited meanwhile makes the build an old
// one.
const hash = sourcesHash(root);
// A build that fails leaves the old dist/ and nothing else.
process.on('exit', () => rmSync(next, { recursive: true, force: true }));
execFileSync(process.execPath, [TSC, '-p', join(root, 'tsconfig.build.json'), '--outDir', next], {
  stdio: 'inherit',
});

const files = readdirSync(next, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => join(entry.parentPath, entry.name));
const workers = files.filter((path) => path.endsWith('.mjs'));

// What Node is told to load by its path: the package's own entries, what worker threads import, the
// module-loading hook.
const entries = [
  ...exported.map((entry) => built(entry.default)),
  ...Object.values(manifest.bin).map(built),
  // Awaited: an import in a comment is a type.
  ...workers.flatMap((path) =>
    [...readFileSync(path, 'utf8').matchAll(/\bawait import\('(\.[^']+)'\)/g)].map((match) =>
      resolve(dirname(path), match[1]),
    ),
  ),
  join(next, 'trace', 'source', 'loader.js'),
  // What the build itself loads.
  join(next, 'cli', 'runtime.js'),
  // What the package's import `#platform` leads to, on Node and in a page.
  join(next, 'platform', 'node.js'),
  join(next, 'platform', 'browser.js'),
  // In a file of its own: a bundler cannot know that graphlib does nothing when it is loaded.
  join(next, 'passes', 'control', 'cfg', 'cfg-flow.js'),
];

/**
 * The place of a module where a bundle of somebody else has none to give: one of CommonJS, which
 * esbuild makes for Node by default, has an empty `import.meta`.
 */
const PLACE =
  'import.meta.url ?? "file:///" + (typeof __filename === "string" ? encodeURI(__filename) : "")';

/**
 * A linked module still finds data and worker files where tsc wrote it.
 *
 * @type {import('esbuild').Plugin}
 */
const ownPlace = {
  name: 'own-place',
  setup({ onLoad }) {
    onLoad({ filter: /\.m?js$/ }, ({ path }) => {
      if (!path.startsWith(next + sep)) return undefined;
      const text = readFileSync(path, 'utf8');
      const from = relative(linked, path).replaceAll('\\', '/');
      return {
        contents: text.replaceAll(
          'import.meta.url',
          `new URL(${JSON.stringify(from)}, ${PLACE}).href`,
        ),
      };
    });
  },
};

/**
 * The platform is chosen by who loads the package (`imports` of package.json): Node, or what
 * bundles it for a page, which cannot read the folder `data`.
 *
 * @type {import('esbuild').Plugin}
 */
const platformByCondition = {
  name: 'platform-by-condition',
  setup({ onLoad, onResolve }) {
    onResolve({ filter: /\/platform\.js$/ }, ({ kind }) =>
      kind === 'entry-point' ? undefined : { path: '#platform', external: true },
    );
    onLoad({ filter: /[\\/]platform[\\/]package-data\.js$/ }, () => ({
      contents: packageDataModule(join(root, 'data')),
    }));
  },
};

// One link for all, so that a program traced by the CLI and the CLI itself share one library. Of
// the packages only zod, a hundred small modules, is linked in; its licence goes with it.
const { metafile } = await build({
  entryPoints: [...new Set(entries)],
  outdir: linked,
  entryNames: '[name]',
  chunkNames: '[name]-[hash]',
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node20',
  sourcemap: 'linked',
  // Stacks name the lines of src; their texts, 7 MB, are in the repository.
  sourcesContent: false,
  external: [
    ...Object.keys(manifest.dependencies),
    'typescript',
    'eslint',
    'typescript-eslint',
    'vite',
  ],
  plugins: [platformByCondition, ownPlace],
  metafile: true,
  logLevel: 'warning',
});
copyFileSync(
  join(dirname(require.resolve('zod/package.json')), 'LICENSE'),
  join(linked, 'zod.LICENSE'),
);

// The command line once more, as one script with all that it loads
// (src/cli/thread/compiled-program.mjs says what for): a function of what `import` gives a module.
await build({
  stdin: {
    contents:
      `export { runCli } from './program.js';\nexport { serve } from ` +
      `'./thread/command-thread-main.js';\n`,
    resolveDir: join(next, 'cli'),
  },
  outfile: join(compiled, 'program.js'),
  bundle: true,
  format: 'cjs',
  platform: 'node',
  target: 'node20',
  define: { 'import.meta.url': 'scriptUrl' },
  banner: { js: '(function (require, module, scriptUrl) {' },
  footer: { js: '})' },
  sourcemap: 'linked',
  sourcesContent: false,
  external: ['highs', 'typescript', 'eslint', 'typescript-eslint', 'vite'],
  plugins: [ownPlace],
  logLevel: 'warning',
});

// What is loaded does nothing until it is called (`sideEffects` of package.json), so that a bundle
// of one function is small: bare links, which are of evaluation order alone, go, and a namespace as
// a value is made by a call that may be left out.
for (const output of Object.keys(metafile.outputs)) {
  if (!output.endsWith('.js')) continue;
  const text = readFileSync(output, 'utf8')
    .replaceAll(/^import "\.\/chunk-[^"]+";$/gm, '')
    .replaceAll(
      /^var (\w+) = \{\};\n__export\(\1, \{$/gm,
      'var $1 = /* @__PURE__ */\n__export({}, {',
    )
    .replace(
      /^var __export = \(target, all\) => \{\n(.*\n.*\n)\};$/m,
      'var __export = (target, all) => {\n$1return target; };',
    );
  if (/^__export\(/m.test(text.replaceAll('/* @__PURE__ */\n__export(', '')))
    throw new Error(`${output}: the linker makes namespaces in another way now`);
  writeFileSync(output, text);
}

// Each entry becomes a line that leads to its link.
const kept = new Set(workers);
for (const [output, { entryPoint, exports }] of Object.entries(metafile.outputs)) {
  if (entryPoint === undefined || !entries.includes(resolve(entryPoint))) continue;
  const path = resolve(entryPoint);
  const to = JSON.stringify(
    `./${relative(dirname(path), resolve(output)).replaceAll('\\', '/')}`.replace('./..', '..'),
  );
  const lines = [
    ...(exports.some((name) => name !== 'default') ? [`export * from ${to};`] : []),
    ...(exports.includes('default') ? [`export { default } from ${to};`] : []),
  ];
  const program = Object.values(manifest.bin).map(built).includes(path);
  writeFileSync(
    path,
    `${program ? '#!/usr/bin/env node\n' : ''}${lines.length === 0 ? `import ${to};` : lines.join('\n')}\n`,
  );
  if (program) chmodSync(path, 0o755);
  kept.add(path);
}
const missing = entries.filter((path) => !kept.has(path));
if (missing.length > 0) throw new Error(`not linked: ${missing.join(', ')}`);

// Types that the package's own lead to.
const types = exported.map((entry) => built(entry.types));
for (let path = types.pop(); path !== undefined; path = types.pop()) {
  if (kept.has(path)) continue;
  kept.add(path);
  for (const [, from, inline] of readFileSync(path, 'utf8').matchAll(
    /\bfrom '(\.[^']+)'|\bimport\(["'](\.[^"']+)["']\)/g,
  )) {
    const target = resolve(dirname(path), from ?? inline);
    types.push(target.replace(/\.mjs$/, '.d.mts').replace(/\.[tj]s$/, '.d.ts'));
  }
}
for (const path of files) if (!kept.has(path)) rmSync(path);
removeEmpty(next);
writeFileSync(join(next, SOURCES_HASH), hash);

if (existsSync(dist)) renameSync(dist, old);
renameSync(next, dist);
rmSync(old, { recursive: true, force: true });
// Of the script at its place.
execFileSync(process.execPath, [join(root, 'scripts', 'compile-program.mjs'), dist], {
  stdio: 'inherit',
});

/** @param {string} folder @returns {boolean} whether it is gone */
function removeEmpty(folder) {
  const left = readdirSync(folder, { withFileTypes: true }).filter(
    (e) => !e.isDirectory() || !removeEmpty(join(folder, e.name)),
  );
  if (left.length > 0) return false;
  rmSync(folder, { recursive: true });
  return true;
}
