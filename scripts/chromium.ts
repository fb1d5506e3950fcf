/** Finds the Chromium that pictures and page tests are made with. */
import { existsSync } from 'node:fs';

/** Debian's Chromium, or the one that `CHROMIUM` names. */
export function chromiumPath(): string {
  const found = [
    process.env.CHROMIUM,
    '/usr/bin/chromium',
    '/usr/bin/chromium-browser',
    '/usr/bin/google-chrome',
  ].find((path) => path !== undefined && existsSync(path));
  if (found === undefined)
    throw new Error('this needs a Chromium: apt-get install chromium, or CHROMIUM=/path/to/it');
  return found;
}
