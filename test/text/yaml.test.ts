import { describe, expect, it } from 'vitest';

import { parseQuestions } from '../../src/sweep/planning/questions.ts';
import { readYaml } from '../../src/text/yaml.ts';
import { readLayoutFile } from '../../src/trainers/read-layout-file.ts';
import { refusal } from '../support/thrown.ts';
import { layoutModel } from '../trainers/layout-model.ts';

const headline = (run: () => unknown): string => refusal(run).headline;
const read = (text: string): unknown => readYaml(text, 'f.yaml', 'write a list.');
const refused = (text: string): string => headline(() => read(text));

describe('YAML of strangers', () => {
  it('is read as YAML says, each key once', () => {
    expect(read('a: [1, 2.5, "x", null, true]\nb:\n  - c: {d: e}\n')).toEqual({
      a: [1, 2.5, 'x', null, true],
      b: [{ c: { d: 'e' } }],
    });
    expect(refused('a: 1\nb: 2\na: 3\n')).toBe("f.yaml:3:1: E_INPUT the key 'a' is given twice");
    expect(refused('a: {b: 1, "b": 2}')).toBe("f.yaml:1:11: E_INPUT the key 'b' is given twice");
  });

  it('is refused with its place where it is none', () => {
    expect(refused('a: [1')).toMatch(/^f\.yaml:1:6: E_INPUT not YAML: /);
    expect(refused('a: "x')).toMatch(/^f\.yaml:1:6: E_INPUT not YAML: /);
    expect(refused('a: *b')).toMatch(/^f\.yaml: E_INPUT not YAML: /);
  });

  it('has a limit on levels, whatever opens them, and one on characters', () => {
    // Deeper texts exhaust the stack or the memory of the parser, which ends the process.
    for (const open of ['[', '{a: ', '- ', '? ', '[{a: ', '- [']) {
      expect(refused(open.repeat(60_000).slice(0, 200_000)), open).toMatch(
        /^f\.yaml:1:\d+: E_INPUT not YAML: more than 256 levels inside each other/,
      );
    }
    const steps = Array.from({ length: 300 }, (_, i) => `${' '.repeat(i)}a:\n`).join('');
    expect(refused(steps)).toMatch(/more than 256 levels/);
    expect(refused('['.repeat(1_000_000))).toBe(
      'f.yaml: E_INPUT the file has 1000000 characters; at most 262144 are read',
    );
  });

  it('resolves aliases, and none that is inside of what it names', () => {
    // Counting what such an alias stands for takes the parser the cube of their number.
    const many = (count: number): string => `&a [*a,${'*a,'.repeat(count)}]`;
    for (const text of [many(0), many(5_000), '- 1\n- &b {c: {d: [*b]}}\n'])
      expect(() => readYaml(text, 'f.yaml', '', 100)).toThrow(
        /'\*[ab]' is inside of what it names/,
      );
    expect(readYaml('- &a [1]\n- *a\n- &a 2\n- [*a]', 'f.yaml', '', 100)).toEqual([
      [1],
      [1],
      2,
      [2],
    ]);
    const anchors = Array.from({ length: 1_001 }, (_, i) => `- &x${i} 1\n- *x${i}\n`).join('');
    expect(() => readYaml(anchors, 'f.yaml', '', 100)).toThrow('more than 1000 aliases');
  });

  it('is what questions and configurations of trainers are read as', () => {
    const deep = '- '.repeat(50_000);
    expect(headline(() => parseQuestions(deep, 'q.yaml'))).toMatch(/more than 256 levels/);
    const setting = { devices: 8, file: 'accelerate.yaml', model: layoutModel() };
    expect(headline(() => readLayoutFile(deep, setting))).toMatch(/more than 256 levels/);
    const json = `${'{"a":'.repeat(50_000)}1${'}'.repeat(50_000)}`;
    expect(headline(() => readLayoutFile(json, setting))).toMatch(/E_LIMIT/);
  });
});
