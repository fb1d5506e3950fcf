import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../../', import.meta.url));
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  readonly dependencies: Readonly<Record<string, string>>;
  readonly peerDependencies: Readonly<Record<string, string>>;
  readonly devDependencies: Readonly<Record<string, string>>;
  readonly files: readonly string[];
  readonly keywords: readonly string[];
};

/** Texts of the programs in some folders, by path. */
function sources(
  ...folders: readonly string[]
): readonly (readonly [path: string, text: string])[] {
  return folders.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => /\.m?[jt]s$/.test(name))
      .map((name) => [join(folder, name), readFileSync(join(root, folder, name), 'utf8')] as const),
  );
}

describe('the package', () => {
  it('names what it is for, and only files that are there', () => {
    expect(manifest.keywords.length).toBeGreaterThan(5);
    expect(new Set(manifest.keywords).size).toBe(manifest.keywords.length);
    // dist/ is made by the build, site/packed by `npm run site`.
    for (const name of manifest.files)
      if (!/^(dist|site\/packed)$|[!*]/.test(name))
        expect(existsSync(join(root, name)), name).toBe(true);
  });

  it('depends at run time on what src imports and the build does not link in, all of it and nothing else', () => {
    const imported = new Set<string>();
    for (const [, text] of sources('src'))
      for (const [, name] of text.matchAll(
        /^(?:import|export) (?!type\b)[^;]*? ?from '([^.'][^']*)'|^import '([^.'][^']*)'/gms,
      ))
        if (name !== undefined && !name.startsWith('node:')) imported.add(name);
    for (const [, text] of sources('src'))
      for (const [, name] of text.matchAll(/\bimport\('([a-z@][^':]*)'\)(?!\.)/g))
        imported.add(name);
    const packages = [...imported].map((name) =>
      name
        .split('/')
        .slice(0, name.startsWith('@') ? 2 : 1)
        .join('/'),
    );
    // zod is linked into dist/; TypeScript is for who traces programs.
    const elsewhere = ['shardwright', 'zod', ...Object.keys(manifest.peerDependencies)];
    expect([...new Set(packages)].filter((name) => !elsewhere.includes(name)).sort()).toEqual(
      Object.keys(manifest.dependencies).sort(),
    );
  });

  it('reads nothing outside its folder: what programs and benches need is in it', () => {
    const outside = sources('src', 'bench', 'examples', 'scripts').filter(([path, text]) => {
      const depth = path.split('/').length - 1;
      return [...text.matchAll(/new URL\('((?:\.\.\/)+)/g)].some(([, up]) => up.length / 3 > depth);
    });
    expect(outside.map(([path]) => path)).toEqual([]);
  });
});
