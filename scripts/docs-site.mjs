// Writes docs/built/site: the documents and the reference of all exports as pages with a search, ready
// for any static host (GitHub Pages: publish the folder). TypeDoc reads Markdown as well as docstrings;
// what it does not know, titles and groups of the pages, is put before copies of them.
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';

import { Application, TSConfigReader } from 'typedoc';

import { GROUPS } from './docs-pages.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const copies = join(root, 'docs/built/site-pages');
const out = join(root, 'docs/built/site');

const pages = Object.entries(GROUPS).flatMap(([group, paths]) =>
  paths.map((path) => ({ group, path })),
);
const staged = new Set(['README.md', ...pages.map(({ path }) => path)]);

rmSync(copies, { recursive: true, force: true });
cpSync(join(root, 'docs/pictures'), join(copies, 'docs/pictures'), { recursive: true });
for (const path of staged) {
  const group = pages.find((page) => page.path === path)?.group;
  const text = readFileSync(join(root, path), 'utf8');
  const [, title = path] = /^# (.*)$/m.exec(text) ?? [];
  const front =
    group === undefined ? '' : `---\ntitle: ${JSON.stringify(title)}\ngroup: ${group}\n---\n\n`;
  const target = join(copies, path);
  mkdirSync(dirname(target), { recursive: true });
  // The page has its title from there.
  const body = text.replace(/^# .*\n/, '');
  writeFileSync(target, front + withOwnLinks(body, path));
}

// What a command prints has 80 columns, and is not broken.
writeFileSync(join(copies, 'site.css'), 'pre, pre code { white-space: pre; overflow-x: auto; }\n');

/**
 * Links to files that are not a page of the site become the names of those files.
 *
 * @param {string} text @param {string} path @returns {string}
 */
function withOwnLinks(text, path) {
  const links = /(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)/g;
  /** @type {(link: string, words: string, to: string) => string} */
  const own = (link, words, to) => {
    const at = normalize(join(dirname(path), to));
    return staged.has(at) || at.startsWith('docs/pictures/') ? link : words;
  };
  return text.replaceAll(links, own);
}

/** @type {{ entryPoints: string[], tsconfig: string }} */
const reference = JSON.parse(readFileSync(join(root, 'typedoc.json'), 'utf8'));
// Without typedoc.json, which is for the reference as Markdown.
const options = {
  name: 'Shardwright',
  entryPoints: reference.entryPoints.map((path) => join(root, path)),
  tsconfig: join(root, reference.tsconfig),
  skipErrorChecking: true,
  disableSources: true,
  excludeExternals: true,
  excludeInternal: true,
  excludePrivate: true,
  excludeProtected: true,
  readme: join(copies, 'README.md'),
  projectDocuments: pages.map(({ path }) => join(copies, path)),
  highlightLanguages: ['typescript', 'python', 'bash', 'console', 'json', 'yaml', 'toml', 'csv'],
  customCss: join(copies, 'site.css'),
  searchGroupBoosts: { Guides: 4, Concepts: 3, 'Tests and measurements': 2 },
  searchInDocuments: true,
  searchInComments: true,
  groupOrder: [...Object.keys(GROUPS), '*'],
  sortEntryPoints: false,
  navigation: { includeGroups: true },
  validation: { notExported: false, invalidLink: true, invalidPath: true, notDocumented: false },
  out,
};
const app = await Application.bootstrap(options, [new TSConfigReader()]);
const project = await app.convert();
if (project === undefined) process.exit(1);
app.validate(project);
await app.generateDocs(project, out);
rmSync(copies, { recursive: true, force: true });
if (app.logger.hasErrors() || !existsSync(join(out, 'assets/search.js'))) process.exit(1);
