import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, normalize } from 'node:path';

import { build } from 'esbuild';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { entryFiles } from '../../scripts/entries.ts';
import { Installed, root } from './installed.ts';

/**
 * The packed files: what is in them, what they weigh, and that they run on every Node that is
 * supported.
 */

const MAJORS = [20, 22, 24] as const;

let installed: Installed;
let nodes: ReadonlyMap<number, string>;
beforeAll(() => {
  expect(existsSync(join(root, 'dist/index.js')), 'npm run build comes first').toBe(true);
  installed = new Installed();
  nodes = installed.nodes(MAJORS);
});
afterAll(() => installed.remove());

const paths = (): readonly string[] => installed.packed.files.map(({ path }) => path);
const MODEL = [
  "import { spec, type Tensor } from 'shardwright';",
  'export const inputs = { x: spec([4, 4]) };',
  'export const model = ({ x }: { x: Tensor }): Tensor => (x.shape.length > 1 ? x.relu() : x);',
];

describe('the tarball', () => {
  it('holds linked code with its source maps, types, data and docs; no module that nobody loads, no generated document', () => {
    for (const wanted of [
      'README.md',
      'LICENSE',
      'CHANGELOG.md',
      'docs/how-it-works.md',
      'data/hardware.json',
      'data/report/page.css',
      'data/report/page.js',
      'data/export/torch-helpers.py',
      'dist/index.d.ts',
    ])
      expect(paths()).toContain(wanted);
    expect(paths().filter((path) => path.startsWith('docs/built'))).toEqual([]);
    // Code outside dist/linked is workers and lines that lead there.
    const code = paths().filter((path) => path.startsWith('dist/') && path.endsWith('.js'));
    for (const path of code)
      if (path.startsWith('dist/linked/')) expect(paths(), path).toContain(`${path}.map`);
      else expect(readFileSync(join(root, path), 'utf8').length, path).toBeLessThan(200);
  });

  it('has no dead link in a page that it holds', () => {
    const dead = paths()
      .filter((path) => path.endsWith('.md'))
      .flatMap((page) =>
        [...readFileSync(join(installed.own, page), 'utf8').matchAll(/\]\(([^)#\s]+)[^)]*\)/g)]
          .filter(([, link]) => !/^[a-z]+:/.test(link))
          .map(([, link]) => `${page}: ${normalize(join(dirname(page), link))}`)
          .filter((link) => !existsSync(join(installed.own, link.split(': ')[1]))),
      );
    expect(dead).toEqual([]);
  });

  it('installs what runs and nothing else: neither zod nor typescript, under 30 MB in all', () => {
    for (const name of ['zod', 'typescript'])
      expect(existsSync(join(installed.folder, 'node_modules', name)), name).toBe(false);
    expect(installed.bytes()).toBeLessThan(30e6);
  });

  it.each([
    ['publint', ['publint', '--strict']],
    ['attw', ['attw', '--profile', 'node16', '--ignore-rules', 'cjs-resolves-to-esm', '--']],
  ])('passes %s', (_, [name, ...flags]) => {
    const run = installed.run(
      process.execPath,
      join(root, 'node_modules/.bin', name),
      ...flags,
      installed.tarball,
    );
    expect(run.code, run.out + run.err).toBe(0);
  });

  it.each([
    ['shardwright', 'ShardwrightError', "new ShardwrightError('E_MESH', 'no mesh').code", 'E_MESH'],
    ['shardwright/notations', 'parseLayout', "String(parseLayout('(4,2):(2,1)'))", '(4,2):(2,1)'],
  ])('is small in a bundle of one name of %s', async (entry, name, value, printed) => {
    installed.write('one.mjs', `import { ${name} } from '${entry}';`, `console.log(${value});`);
    const outfile = join(installed.folder, 'one.out.mjs');
    const { warnings } = await build({
      entryPoints: [join(installed.folder, 'one.mjs')],
      outfile,
      bundle: true,
      minify: true,
      format: 'esm',
      platform: 'node',
      logLevel: 'silent',
    });
    expect(warnings).toEqual([]);
    // The library as a whole is about a hundred times that; half of it are the kinds of arguments.
    expect(readFileSync(outfile).length).toBeLessThan(18e3);
    expect(installed.run(process.execPath, outfile)).toEqual({
      code: 0,
      out: `${printed}\n`,
      err: '',
    });
  });

  it.each([
    ['esm', 'mjs'],
    ['cjs', 'cjs'],
  ] as const)(
    'plans from a bundle for Node as %s, whose data travels with it',
    async (format, end) => {
      installed.write(
        'bundled.mjs',
        "import { input, parameter, shard, trace } from 'shardwright';",
        'const inputs = { x: input([64, 32]), w: parameter([32, 16]) };',
        'const graph = trace(({ x, w }) => x.matmul(w), inputs);',
        "shard(graph, { mesh: 'dp=2,tp=2', cluster: 'dgx-h100' }).then(({ plan }) =>",
        '  console.log(plan.proof.status));',
      );
      const elsewhere = mkdtempSync(join(tmpdir(), 'shardwright-bundle-'));
      const outfile = join(elsewhere, `bundled.${end}`);
      const { warnings } = await build({
        entryPoints: [join(installed.folder, 'bundled.mjs')],
        outfile,
        bundle: true,
        format,
        platform: 'node',
        external: ['typescript'],
        logLevel: 'silent',
      });
      const run = installed.run(process.execPath, outfile);
      rmSync(elsewhere, { recursive: true });
      expect([warnings, run]).toEqual([[], { code: 0, out: 'optimal\n', err: '' }]);
    },
  );

  it('has types that a strict program compiles with, libraries checked', () => {
    installed.write(
      'use.ts',
      "import { shard, type Plan } from 'shardwright';",
      'export const seconds = (plan: Plan): number => plan.objective.seconds;',
      'export const all = [shard];',
      '// @ts-expect-error a plan is not a number',
      'export const wrong: number = seconds as unknown as Plan;',
    );
    installed.write(
      'tsconfig.json',
      JSON.stringify({
        compilerOptions: {
          strict: true,
          module: 'nodenext',
          target: 'es2023',
          skipLibCheck: false,
          noEmit: true,
          types: ['node'],
          typeRoots: [join(root, 'node_modules/@types')],
        },
        include: ['use.ts'],
      }),
    );
    expect(
      installed.run(process.execPath, join(root, 'node_modules/typescript/bin/tsc'), '-p', '.'),
    ).toEqual({ code: 0, out: '', err: '' });
  });

  it('says what to install where TypeScript is missing', () => {
    const file = installed.write('small.model.ts', ...MODEL);
    const run = installed.cli(process.execPath, 'trace', file);
    expect([run.code, run.out]).toEqual([2, '']);
    expect(run.err).toBe(
      'E_DEPENDENCY programs are read with TypeScript, which is not installed\n  hint: npm install --save-dev typescript\n',
    );
  });
});

describe.each(MAJORS)('on Node %i', (major) => {
  const node = (): string => nodes.get(major)!;

  it('the test runs on the Node that it names', () => {
    expect(installed.run(node(), '--version').out).toMatch(new RegExp(`^v${major}\\.`));
  });

  it('plans, on worker threads too, and prints nothing that is not its own', () => {
    const model = join(installed.own, 'examples/llama3-8b-2l-b16.fx.txt.gz');
    const plan = installed.cli(
      node(),
      'plan',
      model,
      '--mesh',
      'dp=8,tp=8',
      '--cluster',
      'dgx-h100',
      '--no-recipes',
      '--quiet',
    );
    expect([plan.code, plan.err]).toEqual([0, '']);
    expect(plan.out).toContain('proof      optimal (gap 0)');
    const text = installed.write(
      'small.fx.txt',
      'class GraphModule(torch.nn.Module):',
      '    def forward(self, x: "f32[4, 4]"):',
      '        relu: "f32[4, 4]" = torch.ops.aten.relu.default(x)',
      '        return relu',
    );
    const highs = installed.cli(
      node(),
      'plan',
      text,
      '--mesh',
      'x=2',
      '--cluster',
      'dgx-h100',
      '--solver',
      'highs',
      '-v',
      '--quiet',
    );
    expect([highs.code, highs.err]).toEqual([0, '']);
    expect(highs.out).toContain('optimal (gap 0) by highs');
  });

  const USE = [
    'const graph = trace(({ x, w }) => x.matmul(w), { x: input([8, 16]), w: parameter([16, 8]) });',
    "const request = { mesh: 'a=2', cluster: 'dgx-h100' };",
    'shard(graph, request).then(({ status, plan }) => console.log(status, plan.proof.status));',
  ];
  const NAMES = '{ shard, trace, input, parameter }';
  it.each([
    ['imported', 'use.mjs', `import ${NAMES} from 'shardwright';`],
    ['required', 'use.cjs', `const ${NAMES} = require('shardwright');`],
  ])('is a library that is %s', (_, file, first) => {
    installed.write(file, first, ...USE);
    const run = installed.run(node(), '--disable-warning=ExperimentalWarning', file);
    expect([run.code, run.out.trim(), run.err]).toEqual([0, 'planned optimal', '']);
  });

  it('has its parts as entries of their own, and exports each name once', () => {
    const entries = [...entryFiles().keys()];
    const use = installed.write(
      'parts.mjs',
      `const parts = await Promise.all(${JSON.stringify(entries)}.map((entry) => import(entry)));`,
      'const names = parts.flatMap((part) => Object.keys(part));',
      'console.log(new Set(names).size === names.length, parts.every((part) => Object.keys(part).length >= 5));',
      "console.log(['trace', 'importGraph', 'shard', 'lower', 'verify', 'simulate', 'compare', 'audit', 'explain', 'exportPlan'].every((name) => typeof parts[0][name] === 'function'));",
    );
    expect(entries[0]).toBe('shardwright');
    expect(installed.run(node(), use)).toEqual({ code: 0, out: 'true true\ntrue\n', err: '' });
  });

  it('shows its sources in a stack', () => {
    const wrong = installed.write(
      'wrong.mjs',
      "import { parseLayout } from 'shardwright/notations';",
      "try { parseLayout('(('); } catch (error) { console.log(error.stack); }",
    );
    expect(installed.run(node(), '--enable-source-maps', wrong).out).toMatch(
      /src\/notations\/layout\/\w+\.ts:\d+/,
    );
  });
});

describe('with TypeScript beside it', () => {
  beforeAll(() => installed.install('typescript@5.9'));

  it.each(MAJORS)('Node %i traces programs and has the side entries', (major) => {
    const node = nodes.get(major)!;
    const traced = installed.cli(node, 'trace', installed.write('small.model.ts', ...MODEL));
    expect([traced.code, traced.err]).toEqual([0, '']);
    expect(traced.out).toContain('aten.relu.default');
    const use = installed.write(
      'side.mjs',
      "import eslint, { models } from 'shardwright/eslint';",
      "import { wrapConditionsPlugin } from 'shardwright/vite';",
      "import { registerTraceHook } from 'shardwright/register';",
      'console.log(eslint.models === models, typeof wrapConditionsPlugin, typeof registerTraceHook);',
    );
    expect(installed.run(node, use).out.trim()).toBe('true function function');
  });
});
