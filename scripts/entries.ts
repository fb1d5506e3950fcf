/**
 * The entry points of the package that are libraries, as `exports` of package.json lists them. The
 * other entries are hooks of other tools, and lie with what they hook into.
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = new URL('../', import.meta.url);

/** Source files from the root of the checkout, by the name under which a program imports them. */
export function entryFiles(): ReadonlyMap<string, string> {
  const manifest = JSON.parse(
    readFileSync(fileURLToPath(new URL('package.json', root)), 'utf8'),
  ) as {
    readonly exports: Readonly<Record<string, string | { readonly default: string }>>;
  };
  const files = Object.entries(manifest.exports).flatMap(([entry, built]) => {
    if (typeof built === 'string') return [];
    const file = built.default.replace('./dist/', 'src/').replace(/\.js$/, '.ts');
    return /^src\/(index|entries\/[\w-]+)\.ts$/.test(file)
      ? [[entry.replace(/^\./, 'shardwright'), file] as const]
      : [];
  });
  return new Map(files);
}

/** The exports of each entry, by the name under which a program imports it. */
export async function loadEntries(): Promise<Readonly<Record<string, object>>> {
  const loaded = [...entryFiles()].map(
    async ([entry, file]) => [entry, (await import(new URL(file, root).href)) as object] as const,
  );
  return Object.fromEntries(await Promise.all(loaded));
}
