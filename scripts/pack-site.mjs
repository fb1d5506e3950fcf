// Packs the built page for the npm package: site/packed/ holds the files of site/dist/, each by
// Brotli, which `shardwright serve` unpacks. HiGHS is left out: the package's own dependency has
// it; so is the picture for links, which nobody posts to a page of this machine.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, constants } from 'node:zlib';

const site = join(dirname(fileURLToPath(import.meta.url)), '../site');
const [from, to] = [join(site, 'dist'), join(site, 'packed')];
rmSync(to, { recursive: true, force: true });
let bytes = 0;
for (const entry of readdirSync(from, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || /\.(wasm|png)$/.test(entry.name)) continue;
  const path = join(entry.parentPath, entry.name);
  const packed = brotliCompressSync(readFileSync(path), {
    params: { [constants.BROTLI_PARAM_QUALITY]: 10, [constants.BROTLI_PARAM_LGWIN]: 22 },
  });
  const target = join(to, `${path.slice(from.length + 1)}.br`);
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, packed);
  bytes += packed.length;
}
console.log(`site/packed: ${(bytes / 1e6).toFixed(2)} MB`);
