/**
 * A Chromium without a window on the built page, which a plain file server gives: nothing but
 * files, on this machine only.
 */
import { existsSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';

import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';

import { chromiumPath } from '../../scripts/chromium.ts';

export const root = fileURLToPath(new URL('../../', import.meta.url));
const dist = join(root, 'site/dist');
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.wasm': 'application/wasm',
};

export interface Opened {
  readonly page: Page;
  /** What the page asked for outside of its own files, and what went wrong in it. */
  readonly strange: readonly string[];
}

export class Site {
  private constructor(
    private readonly server: Server,
    private readonly browser: Browser,
  ) {}

  /** @param folder of files to give; default: the built page */
  static async start(folder = dist): Promise<Site> {
    if (!existsSync(join(folder, 'index.html'))) throw new Error('npm run site comes first');
    const server = createServer((request, response) => {
      const path = normalize(new URL(request.url ?? '/', 'http://page').pathname);
      const file = join(folder, path === '/' ? 'index.html' : path);
      readFile(file).then(
        (bytes) =>
          response
            .writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'text/plain' })
            .end(bytes),
        () => response.writeHead(404).end(),
      );
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return new Site(
      server,
      await chromium.launch({ executablePath: chromiumPath(), args: ['--no-sandbox'] }),
    );
  }

  get address(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/`;
  }

  async open(
    hash = '',
    options: BrowserContextOptions = {},
    address = this.address,
    early?: (page: Page) => Promise<void>,
  ): Promise<Opened> {
    const context = await this.browser.newContext({
      viewport: { width: 1280, height: 900 },
      ...options,
    });
    const page = await context.newPage();
    page.setDefaultTimeout(90_000);
    const { origin } = new URL(address);
    const strange: string[] = [];
    page.on('pageerror', (error) => strange.push(`error: ${error.message}`));
    page.on('console', (message) => {
      // The text of a failed request does not say what was asked for.
      if (message.type() === 'error')
        strange.push(`console: ${message.text()} ${message.location().url}`);
    });
    page.on('dialog', (dialog) => {
      strange.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on('request', (request) => {
      const url = request.url();
      if (new URL(url).origin !== origin && !/^(blob|data):/.test(url))
        strange.push(`request: ${url}`);
    });
    // What is done before the page has loaded its planner.
    await page.goto(address + hash, early === undefined ? {} : { waitUntil: 'commit' });
    await early?.(page);
    return { page, strange };
  }

  /**
   * Most resident bytes that a page of the browser, workers included, has had; Linux counts them.
   */
  async mostRendererBytes(): Promise<number> {
    const session = await this.browser.newBrowserCDPSession();
    const { processInfo } = await session.send('SystemInfo.getProcessInfo');
    const peaks = processInfo
      .filter(({ type }) => type === 'renderer')
      .map(({ id }) => /VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${id}/status`, 'utf8'))?.[1]);
    return 1024 * Math.max(...peaks.map(Number));
  }

  /** Closes every page, so that what one still computes takes no time of the next test. */
  async closePages(): Promise<void> {
    await Promise.all(this.browser.contexts().map((context) => context.close()));
  }

  async close(): Promise<void> {
    await this.browser.close();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

/** Waits until the question is answered, or failed. */
export async function answered(page: Page, milliseconds = 90_000): Promise<void> {
  await page.waitForFunction(
    () => {
      const step = document.getElementById('q-step')?.textContent ?? '';
      return /^(Done|Stopped)/.test(step) || document.getElementById('q-fault')?.hidden === false;
    },
    undefined,
    { timeout: milliseconds },
  );
}

export const text = (page: Page, selector: string): Promise<string> =>
  page.locator(selector).innerText();
