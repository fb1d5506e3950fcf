import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * The package as a user gets it: packed, and installed by npm in a folder of its own, beside the
 * Nodes that it is for.
 */
export const root = fileURLToPath(new URL('../../', import.meta.url));

/** What one program printed. */
export interface Run {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** A file of the package, as npm packs it. */
export interface Packed {
  readonly filename: string;
  readonly unpackedSize: number;
  readonly files: readonly { readonly path: string }[];
}

export class Installed {
  readonly folder = mkdtempSync(join(tmpdir(), 'shardwright-package-'));
  readonly packed: Packed;
  readonly tarball: string;
  /** The installed package. */
  readonly own = join(this.folder, 'node_modules', 'shardwright');

  constructor() {
    const [packed] = JSON.parse(
      execFileSync(
        'npm',
        ['pack', '--ignore-scripts', '--json', '--pack-destination', this.folder],
        { cwd: root, encoding: 'utf8' },
      ),
    ) as readonly Packed[];
    this.packed = packed;
    this.tarball = join(this.folder, packed.filename);
    writeFileSync(join(this.folder, 'package.json'), '{}');
    this.install(this.tarball);
  }

  /** Packages from the registry, or a tarball. */
  install(...names: readonly string[]): void {
    execFileSync('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts', ...names], {
      cwd: this.folder,
      stdio: 'ignore',
    });
  }

  /** Programs of Node releases, by major version: npm has the binaries. */
  nodes(majors: readonly number[]): ReadonlyMap<number, string> {
    const platform = `node-${process.platform === 'win32' ? 'win' : process.platform}-${process.arch}`;
    const folder = join(this.folder, 'nodes');
    mkdirSync(folder);
    writeFileSync(join(folder, 'package.json'), '{}');
    const names = majors.map((major) => `node${major}@npm:${platform}@${major}`);
    execFileSync('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts', ...names], {
      cwd: folder,
      stdio: 'ignore',
    });
    return new Map(
      majors.map((major) => [major, join(folder, 'node_modules', `node${major}`, 'bin', 'node')]),
    );
  }

  write(name: string, ...lines: readonly string[]): string {
    writeFileSync(join(this.folder, name), `${lines.join('\n')}\n`);
    return name;
  }

  run(node: string, ...argv: readonly string[]): Run {
    const { status, stdout, stderr } = spawnSync(node, argv, {
      cwd: this.folder,
      encoding: 'utf8',
    });
    return { code: status, out: stdout, err: stderr };
  }

  cli(node: string, ...argv: readonly string[]): Run {
    return this.run(node, join(this.own, 'dist/cli/main.js'), ...argv);
  }

  /** Bytes of everything that was installed. */
  bytes(folder = join(this.folder, 'node_modules')): number {
    return readdirSync(folder, { withFileTypes: true }).reduce((sum, entry) => {
      const path = join(folder, entry.name);
      return (
        sum + (entry.isDirectory() ? this.bytes(path) : entry.isFile() ? statSync(path).size : 0)
      );
    }, 0);
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
