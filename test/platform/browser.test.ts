/**
 * The browser's platform gives what Node's gives: hashes, checksums, gzip and its faults, and a
 * thread that runs here.
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { packageDataModule } from '../../scripts/package-data.mjs';
import * as browser from '../../src/platform/browser.ts';
import * as node from '../../src/platform/node.ts';
import type { Platform, ThreadPort } from '../../src/platform/types.ts';

const platforms: Readonly<Record<'node' | 'browser', Platform>> = { node, browser };

describe('both platforms', () => {
  it('give every function that the planner asks for', () => {
    const names = Object.keys(platforms.node).sort();
    expect(names.length).toBeGreaterThan(15);
    expect(
      Object.keys(platforms.browser)
        .filter((name) => name !== 'provideThreads')
        .sort(),
    ).toEqual(names);
  });

  it('have the texts of the package: facts, and what reports and exported programs are made of', () => {
    const bundled = JSON.parse(
      packageDataModule(fileURLToPath(new URL('../../data/', import.meta.url)))
        .replace('export const PACKAGE_DATA = ', '')
        .replace(/;$/, ''),
    ) as Record<string, string>;
    for (const path of [
      'hardware.json',
      'report/page.css',
      'report/page.js',
      'export/torch-helpers.py',
      'export/torch-check.py',
      'export/jax-check.py',
      'export/jax-constrained.py',
    ])
      expect(bundled[path], path).toBe(node.packageData(path));
  });

  it('know the folder of their own scripts, with its slash, and where a script of it lies', () => {
    const own = new URL('../../src/platform/', import.meta.url).href;
    expect(browser.libraryFolder()).toBe(own);
    // Frames of the library begin with the folder on each platform, those of users do not.
    for (const { libraryFolder } of Object.values(platforms)) {
      expect(libraryFolder()).toMatch(/[\\/]$/);
      expect(libraryFolder()).not.toContain('/test/');
    }
    expect(browser.localPath(`${own}browser.ts?v=12#top`)).toBe(`${own}browser.ts`);
  });

  it('both platforms hash any text alike', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 200 }), (text) => {
        for (const hash of ['sha256', 'md5'] as const)
          expect(browser[hash](text)).toBe(node[hash](text));
      }),
    );
    // Around the ends of blocks, where the length no longer fits behind the text.
    for (let length = 50; length < 140; length++)
      for (const hash of ['sha256', 'md5'] as const)
        expect(browser[hash]('a'.repeat(length))).toBe(node[hash]('a'.repeat(length)));
  });

  it("the page's hashes give the published digests", () => {
    expect(browser.sha256('abc')).toBe(
      'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
    );
    expect(browser.md5('abc')).toBe('900150983cd24fb0d6963f7d28e17f72');
    expect(browser.crc32(new TextEncoder().encode('123456789'))).toBe(0xcbf43926);
  });

  it('both platforms read bytes alike', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
        expect(browser.crc32(bytes)).toBe(node.crc32(bytes));
        expect(browser.latin1(bytes)).toBe(node.latin1(bytes));
      }),
    );
    const long = new Uint8Array(20_000).fill(0xe9);
    expect(browser.latin1(long)).toBe(node.latin1(long));
  });
});

describe('gzip on a page', () => {
  const text = readFileSync(new URL('../../data/hardware.json', import.meta.url));
  const packed = gzipSync(text);

  it('unpacks what Node unpacks, members one after another too', () => {
    expect(browser.gunzip(packed, 1e9)).toEqual(new Uint8Array(text));
    const both = Buffer.concat([packed, gzipSync('end')]);
    expect(browser.gunzip(both, 1e9)).toEqual(new Uint8Array(node.gunzip(both, 1e9)!));
    const none = gzipSync('');
    expect(browser.gunzip(none, 10)).toEqual(new Uint8Array());
  });

  it('unpacking stops at the limit', () => {
    expect(
      [browser.gunzip(packed, text.length), node.gunzip(packed, text.length)].map((b) => b?.length),
    ).toEqual([text.length, text.length]);
    expect([browser.gunzip(packed, text.length - 1), node.gunzip(packed, text.length - 1)]).toEqual(
      [undefined, undefined],
    );
    expect(browser.gunzip(gzipSync(Buffer.alloc(1e7)), 1000)).toBeUndefined();
  });

  it.each([
    ['cut', (b: Buffer) => b.subarray(0, b.length - 9)],
    ['cut in the trailer', (b: Buffer) => b.subarray(0, b.length - 3)],
    ['with another checksum', (b: Buffer) => ((b[b.length - 6] ^= 1), b)],
    ['with another length', (b: Buffer) => ((b[b.length - 2] ^= 1), b)],
    ['of a head alone', (b: Buffer) => b.subarray(0, 4)],
  ])('refuses data %s, as Node does', (_, damage) => {
    const damaged = damage(Buffer.from(packed));
    for (const { gunzip } of Object.values(platforms)) expect(() => gunzip(damaged, 1e9)).toThrow();
  });
});

describe('a thread that runs here', () => {
  const thread = (
    body: (port: ThreadPort, data: { readonly list: number[] }) => void,
    data: unknown,
  ) =>
    browser.startThread(
      { from: import.meta.url, file: './none.mjs', body: () => Promise.resolve(body) },
      data,
    );

  it('answers messages in a later turn, with copies of what was sent', async () => {
    const sent = { list: [1] };
    const worker = thread((port, { list }) => {
      port.on('message', (more: number[]) => port.postMessage({ list, more }));
    }, sent);
    const answered = new Promise((resolve) => worker.on('message', resolve));
    const more = [2];
    worker.postMessage(more);
    more.push(3);
    expect(await answered).toEqual({ list: [1], more: [2] });
  });

  it('tells of a fault at the start and of one on a message', async () => {
    for (const body of [
      () => {
        throw new Error('fault');
      },
      (port: ThreadPort) => void port.on('message', () => Promise.reject(new Error('fault'))),
    ]) {
      const worker = thread(body, {});
      const fault = new Promise((resolve) => worker.on('error', resolve));
      worker.postMessage(1);
      expect(await fault).toEqual(new Error('fault'));
    }
  });

  it('is silent once it is ended', async () => {
    const worker = thread((port) => port.postMessage(1), {});
    let heard = 0;
    worker.on('message', () => heard++);
    await worker.terminate();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(heard).toBe(0);
  });
});
