import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../../', import.meta.url));
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  readonly dependencies: Readonly<Record<string, string>>;
  readonly devDependencies: Readonly<Record<string, string>>;
  readonly files: readonly string[];
  readonly keywords: readonly string[];
};

/** Texts of the programs in some folders, by path. */
function sources(...folders: readonly string[]): readonly (readonly [path: string, text: string])[] {
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
    // dist/ is made by the build.
    for (const name of manifest.files) if (name !== 'dist') expect(existsSync(join(root, name)), name).toBe(true);
  });

  it('depends at run time on what src imports, all of it and nothing else', () => {
    const imported = new Set<string>();
    for (const [, text] of sources('src'))
      for (const [, name] of text.matchAll(/^(?:import|export) (?!type\b)[^;]*? ?from '([^.'][^']*)'|^import '([^.'][^']*)'/gms)) if (name !== undefined && !name.startsWith('node:')) imported.add(name); // prettier-ignore
    for (const [, text] of sources('src')) for (const [, name] of text.matchAll(/\bimport\('([a-z@][^':]*)'\)(?!\.)/g)) imported.add(name); // prettier-ignore
    const packages = [...imported].map((name) =>
      name
        .split('/')
        .slice(0, name.startsWith('@') ? 2 : 1)
        .join('/'),
    );
    expect([...new Set(packages)].filter((name) => name !== 'shardwright').sort()).toEqual(Object.keys(manifest.dependencies).sort()); // prettier-ignore
  });

  it('reads nothing outside its folder: what programs and benches need is in it', () => {
    const outside = sources('src', 'bench', 'examples', 'scripts').filter(([path, text]) => {
      const depth = path.split('/').length - 1;
      return [...text.matchAll(/new URL\('((?:\.\.\/)+)/g)].some(([, up]) => up.length / 3 > depth);
    });
    expect(outside.map(([path]) => path)).toEqual([]);
  });
});

const FULL = process.env.SHARDWRIGHT_FULL === '1' && existsSync(join(root, 'dist/index.js'));

describe.skipIf(!FULL)('the packed files, installed (SHARDWRIGHT_FULL=1, after npm run build)', () => {
  let [folder, modules, own] = ['', '', ''];
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'shardwright-package-'));
    modules = join(folder, 'node_modules');
    own = join(modules, 'shardwright');
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const run = (...argv: readonly string[]): string =>
    execFileSync(process.execPath, argv, { cwd: folder, encoding: 'utf8' });

  it('hold linked code, types, data and docs; no module that nobody loads', () => {
    mkdirSync(own, { recursive: true });
    const [packed] = JSON.parse(
      execFileSync('npm', ['pack', '--ignore-scripts', '--json', '--pack-destination', folder], { cwd: root, encoding: 'utf8' }),
    ) as readonly { readonly filename: string; readonly unpackedSize: number; readonly files: readonly { readonly path: string }[] }[];
    expect(packed.unpackedSize).toBeLessThan(9e6);
    const paths = packed.files.map(({ path }) => path);
    for (const wanted of ['README.md', 'LICENSE', 'CHANGELOG.md', 'docs/how-it-works.md', 'data/hardware.json', 'dist/index.d.ts'])
      expect(paths).toContain(wanted);
    expect(paths.filter((path) => path.endsWith('.map'))).toEqual([]);
    // Code outside dist/linked is workers and lines that lead there.
    for (const path of paths)
      if (path.startsWith('dist/') && path.endsWith('.js') && !path.startsWith('dist/linked/'))
        expect(readFileSync(join(root, path), 'utf8').length, path).toBeLessThan(200);
    execFileSync('tar', ['-xzf', join(folder, packed.filename), '-C', own, '--strip-components=1']);
    for (const name of Object.keys(manifest.dependencies)) {
      mkdirSync(dirname(join(modules, name)), { recursive: true });
      symlinkSync(join(root, 'node_modules', name), join(modules, name));
    }
  }); // prettier-ignore

  it('plan, on workers too', () => {
    const cli = join(own, 'dist/cli/main.js');
    const model = join(own, 'examples/llama3-8b-2l-b16.fx.txt.gz');
    const args = ['plan', model, '--mesh', 'dp=8,tp=8', '--cluster', 'dgx-h100', '--no-recipes'];
    expect(run(cli, ...args)).toContain('proof      optimal (gap 0)');
    writeFileSync(join(folder, 'small.model.ts'), "import { spec, type Tensor } from 'shardwright';\nexport const inputs = { x: spec([4, 4]) };\nexport const model = ({ x }: { x: Tensor }): Tensor => x.relu();\n"); // prettier-ignore
    expect(run(cli, 'plan', 'small.model.ts', '--mesh', 'x=2', '--cluster', 'dgx-h100', '--solver', 'highs')).toContain('optimal (gap 0) by highs'); // prettier-ignore
  });

  it('are a library, with its three side entries', () => {
    const text = [
      "import { shard, trace, builtinOperators, DEFAULT_REQUEST, input, parameter } from 'shardwright';",
      "import eslint, { models } from 'shardwright/eslint';",
      "import { wrapConditionsPlugin } from 'shardwright/vite';",
      "import { registerTraceHook } from 'shardwright/register';",
      'const graph = trace(({ x, w }) => x.matmul(w), { x: input([8, 16]), w: parameter([16, 8]) });',
      "const request = { ...DEFAULT_REQUEST, mesh: 'a=2', cluster: 'dgx-h100' };",
      'const { status, plan } = await shard(graph, request, { table: builtinOperators() });',
      'console.log(status, plan.proof.status, eslint.models === models, typeof wrapConditionsPlugin, typeof registerTraceHook);',
    ];
    writeFileSync(join(folder, 'use.mjs'), text.join('\n'));
    expect(run('use.mjs').trim()).toBe('planned optimal true function function');
  });

  it('have types that a strict program compiles with, libraries checked', () => {
    symlinkSync(join(root, 'node_modules/@types'), join(modules, '@types'));
    writeFileSync(join(folder, 'use.ts'), "import { shard, type Plan } from 'shardwright';\nimport { models } from 'shardwright/eslint';\nexport const seconds = (plan: Plan): number => plan.objective.seconds;\nexport const all = [shard, models];\n// @ts-expect-error a plan is not a number\nexport const wrong: number = seconds as unknown as Plan;\n"); // prettier-ignore
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions: { strict: true, module: 'nodenext', target: 'es2023', skipLibCheck: false, noEmit: true, types: ['node'] }, include: ['use.ts'] })); // prettier-ignore
    expect(run(join(root, 'node_modules/typescript/bin/tsc'), '-p', folder)).toBe('');
  });
});
