// Builds the wheel of the Python package with the planner in it: `node scripts/wheel.mjs [FOLDER]`,
// after `npm run build`. The wheel carries what npm packs and the packages that it loads, without
// what only developers read, and depends on the package that brings Node from PyPI. Needs python3
// with pip. Prints the path of the wheel.
import { execFileSync } from 'node:child_process';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../', import.meta.url));
const out = resolve(process.argv[2] ?? 'dist-wheel');
const folder = mkdtempSync(join(tmpdir(), 'shardwright-wheel-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));

/** @param {string} command @param {readonly string[]} args @param {string} cwd */
function run(command, args, cwd) {
  return execFileSync(command, args, {
    cwd,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}

/** Folders and files of packages that no program loads. @param {string} path */
function isLoaded(path) {
  const own = path.includes('/node_modules/shardwright/');
  return (
    !/\.(map|d\.ts|d\.mts|d\.cts|md)$/.test(path) &&
    !/\/(\.bin|\.package-lock\.json)$/.test(path) &&
    !(own && /\/shardwright\/(bench|docs|python)$/.test(path))
  );
}

/** The installed packages, as npm gives them to a user. @param {string} to */
function carryPlanner(to) {
  const npm = join(folder, 'npm');
  mkdirSync(npm);
  const packed = run(
    'npm',
    ['pack', '--ignore-scripts', '--json', '--pack-destination', npm],
    root,
  );
  writeFileSync(join(npm, 'package.json'), '{}');
  const quiet = ['--no-audit', '--no-fund', '--ignore-scripts', '--omit=peer', '--silent'];
  run('npm', ['install', ...quiet, join(npm, JSON.parse(packed)[0].filename)], npm);
  cpSync(join(npm, 'node_modules'), to, {
    recursive: true,
    filter: (path) => isLoaded(path.replaceAll('\\', '/')),
  });
}

/** A project file that needs Node, as `optional-dependencies.node` names it. @param {string} text */
function needingNode(text) {
  const [, node] = /^node = \["([^"]+)"\]$/m.exec(text) ?? [];
  const [line, listed] = /^dependencies = \[(.*)\]$/m.exec(text) ?? [];
  if (node === undefined || line === undefined)
    throw new Error('python/pyproject.toml lists its dependencies in another way now');
  return text.replace(line, `dependencies = [${listed}, "${node}"]`);
}

const project = join(folder, 'python');
cpSync(join(root, 'python'), project, {
  recursive: true,
  filter: (path) => !/[\\/](tests|__pycache__|build|[^\\/]+\.egg-info)$/.test(path),
});
carryPlanner(join(project, 'shardwright', 'planner', 'node_modules'));
const file = join(project, 'pyproject.toml');
writeFileSync(file, needingNode(readFileSync(file, 'utf8')));
const wheels = join(folder, 'wheels');
run('python3', ['-m', 'pip', 'wheel', '--quiet', '--no-deps', '-w', wheels, project], folder);
const [wheel] = readdirSync(wheels);
cpSync(wheels, out, { recursive: true });
process.stdout.write(`${join(out, wheel)}\n`);
