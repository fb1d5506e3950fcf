import { join } from 'node:path';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../../src/errors.ts';
import { type HloCollective, readHlo } from '../../../src/import/hlo/collectives.ts';
import { cli } from '../../cli/support.ts';
import { corpus, corpusFile, fileOf } from '../corpus.ts';
import { packedJax } from '../support-jax.ts';

const COMPILED = corpus.flatMap((record) => {
  const path = fileOf(record, '.hlo');
  return path === undefined ? [] : [{ record, path }];
});
const PARTITIONED = COMPILED.filter(({ record }) => record.hlo !== undefined);

describe('what XLA made of the programs', () => {
  test('there are 21 partitioned programs and 11 of one device', () => {
    expect([PARTITIONED.length, COMPILED.length - PARTITIONED.length]).toEqual([21, 11]);
  });

  test.each(PARTITIONED.map((one) => [one.path, one] as const))(
    '%s: operations and collectives',
    (path, { record }) => {
      const found = readHlo(corpusFile(path));
      expect(found.ops).toEqual(record.hlo?.by_op);
      expect(found.collectives).toEqual(record.hlo?.collectives);
      // The index keeps the comments of long tuples.
      const listed = record.hlo?.collective_list.map(({ op, type }) => [
        op,
        type.replaceAll(/\/\*index=\d+\*\//g, ''),
      ]);
      expect(found.collectiveList.map(({ kind, type }) => [kind, type])).toEqual(listed);
      for (const { kind, groups, pairs } of found.collectiveList) {
        const devices =
          kind === 'collective-permute' ? pairs?.map(([from]) => from) : groups.flat();
        expect(
          [...(devices ?? [])].sort((a, b) => a - b),
          kind,
        ).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
      }
    },
  );

  test.each(COMPILED.filter(({ record }) => record.hlo === undefined).map((one) => one.path))(
    '%s, made for one device, communicates nothing',
    (path) => {
      const found = readHlo(corpusFile(path));
      expect([found.collectives, found.collectiveList]).toEqual([{}, []]);
      expect(found.instructions).toBeGreaterThan(10);
    },
  );

  const groupsOf = (file: string): HloCollective['groups'][] =>
    readHlo(packedJax(`${file}.partitioned.hlo.gz`)).collectiveList.map((c) => c.groups);
  const ROWS = [
    [0, 1, 2, 3],
    [4, 5, 6, 7],
  ];
  const COLUMNS = [
    [0, 4],
    [1, 5],
    [2, 6],
    [3, 7],
  ];

  test('groups: the device order of einshard-mlp-2d-weight, lists, meshes', () => {
    expect(groupsOf('einshard-mlp-2d-weight/shardy')).toEqual([COLUMNS, ROWS]);
    expect(groupsOf('shard-map-mlp/gspmd')).toEqual([ROWS]);
    expect(groupsOf('mlp-constraint/shardy')).toEqual([ROWS]);
    // All gradients of the batch axis share one call.
    expect(groupsOf('lm2-unrolled-dp/shardy')).toEqual([COLUMNS]);
  });

  test.each([
    'einshard-mlp-tutorial-y',
    'einshard-mlp-batch2-y4',
    'lm2-scan-tp',
    'lm2-unrolled-tp',
    'mlp-constraint',
    'shard-map-mlp',
  ])('%s: the compiler chooses the same collectives whichever dialect it was given', (model) => {
    const [gspmd, shardy] = ['gspmd', 'shardy'].map((dialect) =>
      readHlo(packedJax(`${model}/${dialect}.partitioned.hlo.gz`)).collectiveList.map(
        ({ kind, type, groups }) => [kind, type, groups],
      ),
    );
    expect(gspmd).toEqual(shardy);
  });

  test('inspect prints the operations and collectives of HLO text', async () => {
    const file = join(
      import.meta.dirname,
      '..',
      '..',
      'fixtures',
      'jax',
      'einshard-mlp-2d-weight',
      'shardy.partitioned.hlo.gz',
    );
    const json = await cli('inspect', file, '--json');
    expect(json.code).toBe(0);
    const found = JSON.parse(json.out) as Record<string, unknown>;
    expect([found.name, found.format, found.nodes, found.collectives]).toEqual([
      'jit_forward',
      'hlo',
      40,
      { 'all-reduce': 2 },
    ]);
    const text = await cli('inspect', file);
    expect(text.out).toContain('collectives   2 all-reduce');
    expect(text.out).toContain('{0,4}{1,5}{2,6}{3,7}');
    const planned = await cli('plan', '-v', file, '--mesh', 'x=8', '--cluster', 'dgx-h100');
    expect([planned.code, planned.err]).toEqual([
      2,
      expect.stringContaining('and not a graph to plan'),
    ]);
  });
});

/** A module whose entry has one collective with these attributes. */
const program = (attributes: string, operation = 'all-reduce', type = 'f32[4]{0}'): string =>
  `HloModule m\n\n%add (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n  %y = f32[] parameter(1)\n  ROOT %s = f32[] add(%x, %y)\n}\n\nENTRY %main (p: f32[4]) -> f32[4] {\n  %p = f32[4]{0} parameter(0)\n  ROOT %r = ${type} ${operation}(%p), ${attributes}\n}\n`;
const groups = (text: string): HloCollective['groups'] =>
  readHlo(program(`replica_groups=${text}`)).collectiveList[0].groups;

/** Coordinates of a place in a box, last dim fastest. */
function coordinates(place: number, sizes: readonly number[]): number[] {
  const out: number[] = [];
  for (let d = sizes.length - 1, rest = place; d >= 0; d--) {
    out.unshift(rest % sizes[d]);
    rest = Math.floor(rest / sizes[d]);
  }
  return out;
}

describe('replica groups mean what their notation says', () => {
  const sizes = fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 4 });

  test('a count shaped, transposed and shaped again', () => {
    fc.assert(
      fc.property(
        sizes,
        fc.array(fc.nat(1000), { minLength: 4, maxLength: 4 }),
        fc.nat(20),
        (shape, rank, cut) => {
          const order = shape.map((_, i) => i);
          order.sort((a, b) => rank[a] - rank[b] || a - b);
          const count = shape.reduce((a, b) => a * b, 1);
          const divisors = Array.from({ length: count }, (_, i) => i + 1).filter(
            (n) => count % n === 0,
          );
          const size = divisors[cut % divisors.length];
          // By definition: device `id` with coordinates c stands at the place whose coordinates are
          // c in the new order.
          const line: number[] = new Array<number>(count).fill(-1);
          for (let id = 0; id < count; id++) {
            const at = coordinates(id, shape);
            line[order.reduce((place, d) => place * shape[d] + at[d], 0)] = id;
          }
          const wanted = Array.from({ length: count / size }, (_, g) =>
            line.slice(g * size, (g + 1) * size),
          );
          expect(
            groups(`[${count / size},${size}]<=[${shape.join(',')}]T(${order.join(',')})`),
          ).toEqual(wanted);
        },
      ),
      { seed: 36, numRuns: 300 },
    );
  });

  test('axes of a mesh: devices of a group differ along these axes alone', () => {
    fc.assert(
      fc.property(sizes, fc.nat(15), (shape, mask) => {
        const axes = shape.map((_, i) => i).filter((i) => (mask >> i) % 2 === 1);
        const names = (list: readonly number[]): string =>
          list.map((i) => `'axis_${i}'`).join(', ');
        const mesh = `mesh[${shape.map((size, i) => `'axis_${i}'=${size}`).join(',')}]`;
        const found = groups(`${mesh} {${names(axes)}}`);
        const fixed = (id: number): string =>
          coordinates(id, shape)
            .filter((_, i) => !axes.includes(i))
            .join();
        expect(new Set(found.map((group) => fixed(group[0]))).size).toBe(found.length);
        for (const group of found) expect(new Set(group.map(fixed)).size).toBe(1);
        expect(found.flat().sort((a, b) => a - b)).toEqual(
          Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => i),
        );
      }),
      { seed: 37, numRuns: 300 },
    );
  });

  test.each<[notation: string, wanted: number[][]]>([
    ['{}', []],
    [
      '{{0,2},{1,3}}',
      [
        [0, 2],
        [1, 3],
      ],
    ],
    [
      "mesh['a'=4,'b'=1,'c'=2], device_ids=([2,4]T(1,0)) {'a'}",
      [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
      ],
    ],
    [
      "mesh['a'=2,'b'=2], device_ids=(3,2,1,0) {'b'}",
      [
        [3, 2],
        [1, 0],
      ],
    ],
    // The first half of an axis of 4, and the second.
    [
      "mesh['a'=4] {'a':(1)2}",
      [
        [0, 2],
        [1, 3],
      ],
    ],
    [
      "mesh['a'=4] {'a':(2)2}",
      [
        [0, 1],
        [2, 3],
      ],
    ],
    ["mesh['a'=2,'b'=2] {'b','a'}", [[0, 2, 1, 3]]],
  ])('%s', (notation, wanted) => {
    expect(groups(notation)).toEqual(wanted);
  });

  test('a start and its done are one collective of the type of the result', () => {
    const text = program(
      'replica_groups={{0,1}}, dimensions={0}',
      'all-gather-start',
      '(f32[4]{0}, f32[8]{0})',
    )
      .replace('ROOT %r', '%r')
      .replace(/}\n$/, '  ROOT %d = f32[8]{0} all-gather-done(%r)\n}\n');
    const { collectives, collectiveList, ops } = readHlo(text);
    expect([collectives, ops['all-gather-start'], ops['all-gather-done']]).toEqual([
      { 'all-gather': 1 },
      1,
      1,
    ]);
    expect(collectiveList).toMatchObject([
      { name: 'r', computation: 'main', type: 'f32[8]', resultBytes: 32, groups: [[0, 1]] },
    ]);
  });

  test('pairs; layouts with tiles; bytes of small elements; operands with types; attributes with strings and commas', () => {
    const text = program(
      'source_target_pairs={{0,1},{1,0}}, metadata={op_name="a,b=\\"c}" x=1}, backend_config={"k":["}"]}',
      'collective-permute',
      '(s4[3]{0:T(8)(2,1)E(4)}, /*index=1*/pred[])',
    ).replace('(%p)', '(f32[4]{0} %p)');
    expect(readHlo(text).collectiveList).toMatchObject([
      {
        type: '(s4[3], pred[])',
        resultBytes: 3,
        pairs: [
          [0, 1],
          [1, 0],
        ],
        groups: [],
      },
    ]);
  });
});

describe('bad HLO text is refused with place and remedy', () => {
  const told = (text: string): string => {
    try {
      readHlo(text);
    } catch (error) {
      if (!(error instanceof ShardwrightError)) throw error;
      expect(error.details.hint ?? '').not.toBe('');
      return error.headline;
    }
    throw new Error('the text was not refused');
  };
  const good = program('replica_groups={{0,1}}, to_apply=%add');
  test.each<[what: string, from: string, to: string, message: string]>([
    ['an undefined operand', '(%p),', '(%q),', `11:34: E_REF '%q' is not defined`],
    ['a name twice', '%y =', '%x =', `5:3: E_DUP '%x' is defined twice`],
    [
      'an unknown element type',
      'f32[4]{0} all',
      'f33[4]{0} all',
      `11:13: E_TYPE 'f33' is not an element type of HLO`,
    ],
    [
      'an undefined computation',
      '%add\n',
      '%abb\n',
      `11:72: E_REF computation 'abb' is not defined`,
    ],
    ['no entry', 'ENTRY ', '', '1:1: E_SYNTAX no computation is marked ENTRY'],
    ['no root', '  ROOT %s', '  %s', `3:36: E_SYNTAX computation 'add' has 0 ROOT instructions`],
    ['an open bracket', '{{0,1}}', '{{0,1}', `11:54: E_SYNTAX the bracket '{' is never closed`],
    [
      'a device in two groups',
      '{{0,1}}',
      '{{0,1},{1,2}}',
      '11:54: E_TYPE a device is in two groups',
    ],
    [
      'groups that do not fit',
      '{{0,1}}',
      '[2,2]<=[3]',
      '11:54: E_TYPE 2 groups of 2 for 3 devices',
    ],
    [
      'an order that is none',
      '{{0,1}}',
      '[2,2]<=[2,2]T(0,0)',
      '11:61: E_TYPE (0,0) is not an order of 2 dims',
    ],
    [
      'an axis that is not there',
      '{{0,1}}',
      "mesh['a'=2] {'b'}",
      `11:67: E_REF the mesh has no axis 'b'`,
    ],
    [
      'too many devices',
      '{{0,1}}',
      '[2,99999999]<=[199999998]',
      '11:68: E_LIMIT 199999998 devices',
    ],
    [
      'an attribute twice',
      'to_apply=',
      'replica_groups=',
      `11:63: E_DUP attribute 'replica_groups' is given twice`,
    ],
    ['a computation without end', '\n}\n', '', `7:7: E_SYNTAX expected '=', found '%main'`],
  ])('%s', (_, from, to, message) => {
    expect(good).toContain(from);
    expect(told(good.replace(from, to))).toContain(message);
  });

  test('deep nesting and long names of HLO text are refused with the limit', () => {
    expect(told(good.replace('{{0,1}}', '{'.repeat(100_000)))).toMatch(
      /E_LIMIT brackets nest deeper than 256$/,
    );
    expect(told(good.replace('f32[4]{0} all', `${'('.repeat(100_000)} all`))).toMatch(/E_LIMIT/);
    expect(told(good.replaceAll('%x', `%${'x'.repeat(1 << 20)}`))).toMatch(
      /E_LIMIT a name of 1048576 characters/,
    );
    expect(told(good.replace('f32[4]{0} all', `f32[${'1,'.repeat(1000)}1] all`))).toMatch(
      /E_LIMIT more than 64 dims/,
    );
  });
});
