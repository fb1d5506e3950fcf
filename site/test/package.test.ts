/**
 * The package in a page of somebody else: bundled by esbuild and by Vite without more ado, it plans
 * in Chromium what it plans in Node.
 */
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { copyFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { build as esbuild } from 'esbuild';
import { build as vite } from 'vite';
import { afterAll, beforeAll, expect, it } from 'vitest';

import { root, Site } from './browser.ts';

let app: string;
let inNode: string;
beforeAll(async () => {
  expect(existsSync(join(root, 'dist/index.js')), 'npm run build comes first').toBe(true);
  app = mkdtempSync(join(tmpdir(), 'page-of-a-user-'));
  mkdirSync(join(app, 'node_modules'));
  symlinkSync(root, join(app, 'node_modules/shardwright'), 'dir');
  await copyFile(join(root, 'site/test/package-user.mjs'), join(app, 'user.mjs'));
  writeFileSync(
    join(app, 'main.mjs'),
    "import { answer } from './user.mjs';\nanswer().then((text) => (globalThis.answer = " +
      'text), (error) => (globalThis.answer = String(error)));\n',
  );
  writeFileSync(
    join(app, 'index.html'),
    '<!doctype html><link rel="icon" href="data:,"><script type="module" ' +
      'src="./main.mjs"></script>',
  );
  const print =
    "import('./user.mjs').then(({ answer }) => answer()).then((text) => " +
    'process.stdout.write(text))';
  inNode = execFileSync(process.execPath, ['--input-type=module', '-e', print], {
    cwd: app,
    encoding: 'utf8',
  });
});
afterAll(() => rmSync(app, { recursive: true }));

const BUNDLERS: Readonly<Record<string, (out: string) => Promise<unknown>>> = {
  esbuild: async (outdir) => {
    // HiGHS asks for `node:module` on Node alone.
    await esbuild({
      absWorkingDir: app,
      entryPoints: ['main.mjs'],
      outdir,
      bundle: true,
      format: 'esm',
      splitting: true,
      external: ['node:module'],
      outExtension: { '.js': '.mjs' },
      tsconfigRaw: '{}',
      logLevel: 'error',
    });
    await copyFile(join(app, 'index.html'), join(outdir, 'index.html'));
  },
  vite: (outDir) =>
    vite({
      root: app,
      configFile: false,
      logLevel: 'error',
      base: './',
      build: { outDir, target: 'es2023' },
    }),
};

it.each(Object.keys(BUNDLERS))('bundled by %s', async (name) => {
  const out = join(app, `out-${name}`);
  await BUNDLERS[name](out);
  expect(readdirSync(out)).toContain('index.html');
  const site = await Site.start(out);
  try {
    const { page, strange } = await site.open();
    const told = await page.waitForFunction(
      () => (globalThis as { readonly answer?: string }).answer,
    );
    expect(await told.jsonValue()).toBe(inNode);
    expect(JSON.parse(inNode)).toMatchObject({
      proof: { status: 'optimal', gap: 0 },
      verified: { mismatches: [], maxRelativeError: true, collectives: { all_reduce: 1 } },
    });
    expect(strange).toEqual([]);
  } finally {
    await site.close();
  }
});
