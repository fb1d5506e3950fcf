// What the page weighs and how long the demo's first plan takes in it, beside Node on the same
// machine. Usage: npm run site && node bench/site.mjs [runs] (a Chromium: /usr/bin/chromium, or
// CHROMIUM=PATH)
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

import { chromium } from 'playwright-core';

const root = fileURLToPath(new URL('../', import.meta.url));
const dist = join(root, 'site/dist');
const runs = Number(process.argv[2] ?? 5);
const median = (/** @type {number[]} */ list) =>
  [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

/** Parts of the page that are loaded on demand, in addition to the bundle. */
const LATER = [
  ['TypeScript and its types, with the editor', /^program-/],
  ['HiGHS, where a problem needs it', /\.wasm$/],
];
/** @type {Map<string, number>} */
const sizes = new Map([
  ['bundle', gzipSync(readFileSync(join(dist, 'index.html')), { level: 9 }).length],
]);
for (const name of readdirSync(join(dist, 'assets'))) {
  const bytes = gzipSync(readFileSync(join(dist, 'assets', name)), { level: 9 }).length;
  const [part] = LATER.find(([, pattern]) => /** @type {RegExp} */ (pattern).test(name)) ?? [
    'bundle',
  ];
  sizes.set(String(part), (sizes.get(String(part)) ?? 0) + bytes);
}
for (const [part, bytes] of sizes) console.log(`${part}: ${(bytes / 1e6).toFixed(3)} MB gzipped`);

/** @type {Record<string, string>} */
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.wasm': 'application/wasm' };
const server = createServer((request, response) => {
  const path = new URL(request.url ?? '/', 'http://page').pathname;
  const file = path === '/' ? '/index.html' : path;
  response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'text/plain' });
  response.end(readFileSync(join(dist, file)));
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());

// From nothing to the plan: the command line from its start to its end, the page from its address
// to its first summary.
const COMMAND = [
  'plan',
  'examples/llama3-8b-2l-b16.fx.txt.gz',
  '--mesh',
  'dp=8,tp=8',
  '--cluster',
  'dgx-h100',
  '--no-recipes',
  '--quiet',
];
const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
/** @type {number[]} */
const inNode = [];
/** @type {number[]} */
const inPage = [];
for (let k = 0; k < runs; k++) {
  let began = performance.now();
  execFileSync(process.execPath, [join(root, 'dist/cli/main.js'), ...COMMAND], { cwd: root });
  inNode.push((performance.now() - began) / 1000);
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
  const page = await browser.newPage();
  began = performance.now();
  await page.goto(`http://127.0.0.1:${port}/`);
  await page.waitForSelector('#q-summary:not([hidden])');
  inPage.push((performance.now() - began) / 1000);
  await browser.close();
}
server.close();
const [node, page] = [median(inNode), median(inPage)];
console.log(
  `first plan of the demo, median of ${runs}: Node ${node.toFixed(2)} s, page ` +
    `${page.toFixed(2)} s, ${(page / node).toFixed(2)} times`,
);
