/**
 * Builds the page into `site/dist`: static files, which ask no network while they run. The
 * planner's platform is the browser's; the report's own script becomes a module, so that no policy
 * must allow inline scripts.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { defineConfig, type Plugin } from 'vite';

import { packageDataModule } from '../scripts/package-data.mjs';
import { pageStyle } from '../src/report/html/style.ts';
import { FAMOUS_RUNS } from './famous-runs.ts';
import { previewTags } from './link-preview.ts';

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/**
 * The planner asks `platform.ts`, which is Node's; a page has its own, with the texts of the folder
 * `data`.
 */
const browserPlatform = (): Plugin => ({
  name: 'browser-platform',
  enforce: 'pre',
  load: (id) =>
    id.endsWith('/src/platform/package-data.ts') ? packageDataModule(here('../data/')) : undefined,
  async resolveId(source, importer) {
    if (!source.endsWith('platform/platform.ts')) return undefined;
    return this.resolve(here('../src/platform/browser.ts'), importer, { skipSelf: true });
  },
});

const MODULES: Readonly<Record<string, () => string>> = {
  // What a report does beyond being read, to be called whenever one was put in place.
  'virtual:report-script': () =>
    `export default function run() {\n${readFileSync(here('../data/report/page.js'), 'utf8')}\n}`,
  'virtual:report-style': () => `export default ${JSON.stringify(pageStyle())}`,
  // The graph of the demo, in base64.
  'virtual:demo': () =>
    'export default ' +
    `${JSON.stringify(readFileSync(here('../examples/llama3-8b-2l-b16.fx.txt.gz')).toString('base64'))}`,
  // The runs of the gallery, as a table of measured runs.
  'virtual:famous-runs': () => `export default ${JSON.stringify(famousRuns())}`,
  // For the editor: types of the library as the package has them, and those of the language.
  'virtual:types': () => `export default ${JSON.stringify(declarations())}`,
};

const virtual = (): Plugin => ({
  name: 'virtual-modules',
  resolveId: (id) => (id in MODULES ? `\0${id}` : undefined),
  load: (id) => (id.startsWith('\0virtual:') ? MODULES[id.slice(1)]() : undefined),
});

/** The rows of the famous runs, below the header that all tables have. */
function famousRuns(): string {
  const [measured, others] = ['measured', 'others'].map((name) =>
    gunzipSync(readFileSync(here(`../test/fixtures/runs/${name}.csv.gz`)))
      .toString()
      .split('\n'),
  );
  const rows = Object.keys(FAMOUS_RUNS).map((id) => {
    const row = [...measured, ...others].find((line) => line.startsWith(`${id},`));
    if (row === undefined) throw new Error(`no table of measured runs has ${id}`);
    return row;
  });
  return `${[measured[0], ...rows].join('\n')}\n`;
}

/** Texts of declaration files by the path that TypeScript is given. */
function declarations(): Record<string, string> {
  const dist = here('../dist/');
  if (!existsSync(`${dist}index.d.ts`))
    throw new Error('the page shows the types of dist/: npm run build comes first');
  const texts: Record<string, string> = {};
  for (const path of readdirSync(dist, { recursive: true, encoding: 'utf8' }))
    if (/\.d\.m?ts$/.test(path) && !/^(cli|entries\/page)/.test(path))
      texts[`/shardwright/${path}`] = readFileSync(`${dist}${path}`, 'utf8');
  const lib = here('../node_modules/typescript/lib/');
  for (const name of readdirSync(lib))
    if (/^lib\.(es5|es20(1[5-9]|2[0-3])(\..*)?|decorators.*)\.d\.ts$/.test(name))
      texts[`/lib/${name}`] = readFileSync(`${lib}${name}`, 'utf8');
  return texts;
}

/** Tags for links to the page, which `SHARDWRIGHT_SITE` says the address of. */
const linkPreview = (): Plugin => ({
  name: 'link-preview',
  transformIndexHtml: () => previewTags(process.env.SHARDWRIGHT_SITE),
});

export default defineConfig({
  root: here('./'),
  base: './',
  plugins: [browserPlatform(), virtual(), linkPreview()],
  worker: { format: 'es', plugins: () => [browserPlatform(), virtual()] },
  build: {
    target: 'es2023',
    outDir: here('./dist/'),
    emptyOutDir: true,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 12_000,
  },
});
