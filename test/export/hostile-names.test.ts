import { beforeAll, describe, expect, test } from 'vitest';

import type { ExportFile, ExportSource } from '../../src/backend/target.ts';
import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { exportFiles } from '../../src/export/export.ts';
import { rules } from '../../src/export/jax/rules.ts';
import { inputShardings } from '../../src/export/jax/shardings.ts';
import { jobOf, launcherFile, LAUNCHERS } from '../../src/export/launchers.ts';
import { EXPORT_TARGETS } from '../../src/export/targets.ts';
import { HOSTILE, hostileSource, MARK } from '../support/hostile-names.ts';

/** Strings and comments of each language as its reference defines them; the rest is code. */
const TEXTS: Readonly<Record<string, RegExp>> = {
  py: /[rbfu]*("""(?:\\[^]|[^\\])*?"""|'''(?:\\[^]|[^\\])*?'''|"(?:\\[^]|[^\\"\n])*"|'(?:\\[^]|[^\\'\n])*')|#.*/g,
  mlir: /"(?:\\[^]|[^\\"\n])*"|\/\/.*/g,
  toml: /"(?:\\[^]|[^\\"\n])*"|#.*/g,
  yaml: /"(?:\\[^]|[^\\"\n])*"|(?<=^|\s)#.*/g,
  yml: /"(?:\\[^]|[^\\"\n])*"|(?<=^|\s)#.*/g,
  args: /^#.*/gm,
  slurm: /^#.*/gm,
};

/** What a file says apart from its strings and comments; undefined where JSON or prose. */
function codeOf({ name, text }: ExportFile): string | undefined {
  const kind = name.slice(name.lastIndexOf('.') + 1);
  if (kind === 'json') return void JSON.parse(text);
  if (name === 'ds_config.txt') return undefined;
  return text.replace(TEXTS[kind], '');
}

let source: ExportSource;
beforeAll(async () => {
  source = await hostileSource();
});

describe('names that try to end a string, a comment or a line', () => {
  test.each(EXPORT_TARGETS.map(({ name, check }) => [name, check !== undefined] as const))(
    'are text in every file of --target %s',
    (target, check) => {
      const { files } = exportFiles(source, target, { allowLossy: true, check });
      let held = 0;
      for (const file of files) {
        const code = codeOf(file);
        expect(code ?? '', file.name).not.toMatch(/(?<!\w)(__import__|PWNED)/);
        if (code !== undefined)
          expect(file.text, file.name).not.toMatch(/[\r\f\u2028\u2029\u202e\x1b]/);
        if (file.text.includes(MARK)) held++;
      }
      expect(held).toBeGreaterThan(0);
    },
  );

  test.each(LAUNCHERS)('are text in the file of --launcher %s', (launcher) => {
    const names = { model: HOSTILE, devices: 16 };
    const job = jobOf(names, loadCluster('dgx-h100'), { script: 'train.py', head: [HOSTILE] });
    const file = launcherFile(launcher, job);
    expect(file.text).toContain(MARK);
    expect(codeOf(file), file.name).not.toMatch(/(?<!\w)(__import__|PWNED)/);
    expect(file.text, file.name).not.toMatch(/[\r\f\u2028\u2029\u202e\x1b]/);
  });

  test.each(EXPORT_TARGETS.filter(({ readBack }) => readBack !== undefined))(
    'are the names that are read back from the files of --target $name',
    (target) => {
      const { files } = target.write(source);
      const { parameters, nodes } = target.readBack?.(files, source.mesh) ?? {};
      const planned = [...source.plan.parameters, ...source.plan.nodes].map(({ name }) => name);
      const read = [...(nodes ?? parameters ?? new Map<string, string>()).keys()];
      expect(read.length).toBeGreaterThan(0);
      expect(planned).toEqual(expect.arrayContaining(read));
    },
  );

  test('are found by the rules of a JAX program, which say how each input is cut', () => {
    const inputs = inputShardings(source);
    const found = rules(inputs);
    for (const { name, spec } of inputs)
      expect(found.find(({ pattern }) => new RegExp(pattern, 'u').test(name))?.spec).toBe(spec);
  });
});
