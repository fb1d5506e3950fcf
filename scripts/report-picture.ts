/**
 * Writes docs/pictures/report.png: the first screen of a report, as README.md shows it. The report is
 * of the bundled torchtitan configuration, priced and compared with the best layout of 16 H100s.
 *
 * Usage: npx tsx scripts/report-picture.ts (needs a Chromium: scripts/install-chromium.sh)
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

import { chromium } from 'playwright-core';

import { runCli } from '../src/cli/program.ts';
import { chromiumPath } from './chromium.ts';

const root = fileURLToPath(new URL('..', import.meta.url));

/** Path of the picture. */
export const PICTURE = join(root, 'docs/pictures/report.png');

/** The comparison that the report is of, without `shardwright`. */
export const COMPARED: readonly string[] = [
  ...['compare', 'llama-3.1-8b', '--devices', '16', '--cluster', 'h100'],
  ...['--layout', join(root, 'examples/torchtitan-llama3-8b.toml')],
  ...['--tokens', '1T', '--price', '2.5USD'],
];

async function printed(argv: readonly string[]): Promise<string> {
  let [out, err] = ['', ''];
  const code = await runCli(argv, {
    stdout: (text) => void (out += text),
    stderr: (text) => void (err += text),
    isTerminal: false,
  });
  if (code !== 0) throw new Error(`${argv.join(' ')}: ${err}`);
  return out;
}

/** Writes the page into the folder and takes its first screen. */
async function writePicture(folder: string): Promise<void> {
  const comparison = join(folder, 'comparison.json');
  const page = join(folder, 'report.html');
  writeFileSync(comparison, await printed([...COMPARED, '--json', '--quiet']));
  await printed(['report', comparison, '-o', page]);
  const browser = await chromium.launch({ executablePath: chromiumPath(), args: ['--no-sandbox'] });
  try {
    const tab = await browser.newPage({ viewport: { width: 1280, height: 800 } });
    await tab.goto(pathToFileURL(page).href);
    await tab.screenshot({ path: PICTURE });
  } finally {
    await browser.close();
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = mkdtempSync(join(tmpdir(), 'shardwright-picture-'));
  try {
    await writePicture(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}
